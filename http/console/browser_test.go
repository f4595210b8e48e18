package console_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// shots is a folder for pictures of the views:
//
//	go test ./http/console -run TestEverybody -shots /tmp/shots
var shots = flag.String("shots", "", "write pictures of the views into this `folder`")

// browser is the Chromium that all tests of this program share; each test has a profile of
// its own in it.
var browser struct {
	once sync.Once
	ctx  context.Context
	err  error
	end  func()
}

func closeBrowser() {
	if browser.end != nil {
		browser.end()
	}
}

func startBrowser() {
	program := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		browser.err = fmt.Errorf("no chromium-headless-shell or chromium here: nobody looks at the console with a browser")
		return
	}
	dir, err := os.MkdirTemp("", "relay-console-")
	if err != nil {
		browser.err = err
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.UserDataDir(dir), chromedp.WSURLReadTimeout(patience))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocated, cancelAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	_, browser.err = chromedp.Run(ctx, chromedp.Navigate("about:blank"))
	browser.ctx = ctx
	browser.end = func() {
		_ = chromedp.Cancel(ctx) // waits for its end
		cancel()
		cancelAllocator()
		os.RemoveAll(dir)
	}
}

// tab is a page in the browser.
type tab struct {
	t   testing.TB
	ctx context.Context
	mu  sync.Mutex
	log []string // what the page wrote to its console, and its errors
}

// mustOpen opens a tab of a new profile, or skips the test where there is no browser.
func mustOpen(t testing.TB) *tab {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no browser")
	}
	browser.once.Do(startBrowser)
	if browser.err != nil && browser.ctx == nil && os.Getenv("CI") != "true" {
		t.Skip(browser.err)
	}
	if browser.err != nil {
		t.Fatal(browser.err)
	}
	b := &tab{t: t}
	ctx, cancel := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext(), chromedp.WithListener(b.hear))
	b.ctx = ctx
	t.Cleanup(cancel)
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil { // its context is the tab's
		t.Fatal(err)
	}
	return b
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		for _, arg := range e.Args {
			b.log = append(b.log, string(arg.Value))
		}
	case *runtime.EventExceptionThrown:
		b.log = append(b.log, fmt.Sprint(e.ExceptionDetails.Text, " ", description(e.ExceptionDetails.Exception)))
	}
}

func do[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("%v\nthe page: %s", err, b.said())
	}
	return v
}

func (b *tab) said() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.log, "\n")
}

func (b *tab) open(url string) {
	b.t.Helper()
	do(b, chromedp.Navigate(url))
}

// eval returns the value of an expression as JSON text.
func (b *tab) eval(expression string) string {
	b.t.Helper()
	return do(b, chromedp.Evaluate[string]("(async () => JSON.stringify((await ("+expression+")) ?? null))()", chromedp.EvalAwaitPromise))
}

// await waits until an expression is true.
func (b *tab) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if ok {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("%s did not come true (%v)\nthe page: %s\n%s", expression, err, b.said(), b.text("body"))
		}
		time.Sleep(30 * time.Millisecond) // the page navigates, or is not there yet
	}
}

// text returns what a person reads in an element.
func (b *tab) text(selector string) string {
	b.t.Helper()
	quoted, _ := json.Marshal(selector)
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.querySelector("+string(quoted)+")?.innerText ?? ''"))
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

func (b *tab) press(keys string) {
	b.t.Helper()
	do(b, chromedp.KeyEvent(keys))
}

// click clicks on an element, once it stays where it is: a page that still loads its style moves it
// away from under the mouse.
func (b *tab) click(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`(() => {
		const at = document.querySelector(%q)?.getBoundingClientRect(), before = window.seenAt
		window.seenAt = at && [at.x, at.y].join()
		return document.readyState == "complete" && at && window.seenAt == before
	})()`, selector))
	withNode(b, selector, chromedp.Click(selector))
}

// fill sets the value of a field.
func (b *tab) fill(selector, value string) {
	b.t.Helper()
	withNode(b, selector, chromedp.SetValue(selector, value))
}

// withNode does something with an element. If the element is gone before it is done, because a
// live page was made again or another page came, it is done with the new one.
func withNode[T any](b *tab, selector string, action chromedp.Action[T]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		_, err := chromedp.Run(ctx, action)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "(-32000)") { // the protocol's code for a node that is gone
			b.t.Fatalf("%s: %v\nthe page: %s", selector, err, b.said())
		}
	}
}

// look sets the size of the window and the theme.
func (b *tab) look(width, height int64, dark bool) {
	b.t.Helper()
	do(b, chromedp.EmulateViewport(width, height))
	theme := map[bool]string{true: "dark", false: "light"}[dark]
	do(b, func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
		return chromedp.Void{}, err
	})
}

// shoot writes a picture of the page, if -shots asks for it.
func (b *tab) shoot(name string) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	picture := do(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(*shots, name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func description(o *runtime.RemoteObject) string {
	if o == nil {
		return ""
	}
	return o.Description
}
