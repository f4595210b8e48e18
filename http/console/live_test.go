package console_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/http/console"
)

// isLive is when a page has its socket.
const isLive = `document.querySelector("#link")?.dataset.state == "live"`

// A browser that opens the printed URL is in; the token leaves its address at once. A message that is sent then is in the flow, and what waits in its row, without a reload.
func TestAPageIsLive(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice, bob := s.mustIssue("alice^demo", ""), s.mustIssue("bob^demo", "")
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	if at := b.eval(`location.href`); strings.Contains(at, "t=") || at != fmt.Sprintf("%q", s.url+"/") {
		t.Errorf("the address is %s", at)
	}
	if cookie := b.eval(`document.cookie`); cookie != `""` {
		t.Errorf("a script can read the cookie: %s", cookie)
	}
	b.eval(`window.same = true`)
	m := s.mustSend(0, alice, "bob^demo", `{"text":"hello"}`)
	b.await(`document.querySelector("#flow .event .what")?.textContent == "accepted"`)
	if row := b.text("#flow .event"); !strings.Contains(row, "alice^demo → bob^demo") {
		t.Errorf("the row: %q", row)
	}
	b.await(`document.querySelector("#boxes").textContent.includes("bob^demo")`)
	s.Pushed(bob.Number, time.Now(), []relay.Position{m.Position})
	s.mustAck(0, bob, m, "completed", "all done")
	b.await(`[...document.querySelectorAll("#flow .note")].some(e => e.textContent.includes("all done"))`)
	b.await(`[...document.querySelectorAll("#flow .what")].some(e => e.textContent == "pushed")`)
	b.await(`!document.querySelector("#boxes").textContent.includes("bob^demo")`)
	if same := b.eval(`window.same`); same != "true" {
		t.Error("the page was loaded again")
	}
	if b.said() != "" {
		t.Error(b.said())
	}
}

// A page of a message changes with it.
func TestAMessagePageIsLive(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice, bob := s.mustIssue("alice^demo", ""), s.mustIssue("bob^demo", "")
	m := s.mustSend(0, alice, "bob^demo", `{"amount":1.10,"text":"hello"}`)
	b := mustOpen(t)
	b.open(s.entry("/message/" + string(m.ID)))
	b.await(isLive)
	b.click("#payload summary")
	b.await(`document.querySelector("#payload-text").textContent.includes('"amount": 1.10')`)
	s.mustAck(0, bob, m, "failed", "no such warehouse")
	b.await(`document.querySelector("#verdict").textContent.includes("no such warehouse")`)
	b.await(`document.querySelector("#life").textContent.includes("failed")`)
	if open := b.eval(`document.querySelector("#payload").open`); open != "true" {
		t.Error("the payload has closed")
	}
}

// The page of a message that is removed says so, and is not live any more.
func TestTheEndOfAMessageIsTold(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	m := s.mustSend(0, alice, "alice^demo", `{}`)
	b := mustOpen(t)
	b.open(s.entry("/message/" + string(m.ID)))
	b.await(isLive)
	d, err := sql.Open("sqlite", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Exec("PRAGMA busy_timeout = 60000; DELETE FROM payload; DELETE FROM message"); err != nil {
		t.Fatal(err)
	}
	s.mustSend(0, alice, "alice^demo", `{}`) // something happens, and the page looks
	b.await(`document.querySelector("#verdict-text").textContent.startsWith("This was removed from the database. What follows is how it was at ")`)
	b.await(`document.querySelector("#link-text").textContent == "removed" && document.querySelector("#link").dataset.state == "lost"`)
}

// When the console is away, the page says so. When it is back, the page continues, with what
// it has missed. Of another start it is told that the session is over.
func TestAPageComesBack(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	b := mustOpen(t)
	w := mustWire(t, strings.TrimPrefix(s.url, "http://"))
	b.open("http://" + w.addr + "/" + s.console.Fragment())
	b.await(isLive)
	w.cut(true)
	b.await(`document.querySelector("#link").dataset.state == "lost"`)
	s.mustSend(0, alice, "alice^demo", `{"text":"meanwhile"}`)
	w.cut(false)
	b.await(isLive)
	b.await(`document.querySelectorAll("#flow .event").length == 1`)

	addr := strings.TrimPrefix(s.url, "http://")
	s.console.Close()
	s.server.Close()
	b.await(`document.querySelector("#link").dataset.state == "lost"`)
	s.show(true, addr)
	b.await(`document.querySelector("#link-text").textContent.includes("session is over")`)
	if log := b.said(); strings.Contains(log, "Error") && !strings.Contains(log, "WebSocket") {
		t.Error(log)
	}
}

// Who asks is told what has happened since a cursor, each time once; also what happened while
// nobody was told anything, and what is more than can be told.
func TestAPollIsToldWhatItHasNotSeen(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	alice := s.mustIssue("alice^demo", "")
	c := s.enter()
	type news struct {
		Cursor        string
		Total, Passed int
		Rows          []struct{ ID relay.MessageID }
	}
	ask := func(after string) (n news) {
		t.Helper()
		status, text := s.get(c, "/events?after="+after)
		if err := json.Unmarshal([]byte(text), &n); err != nil || status != http.StatusOK {
			t.Fatal(status, text)
		}
		return n
	}
	next := func(after string, events int) news { // once all of them are counted
		t.Helper()
		for end := time.Now().Add(patience); ; {
			n := ask(after)
			if n.Total >= events {
				return n
			}
			if time.Now().After(end) {
				t.Fatalf("%d events were sent after %s: %+v", events, after, n)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	early := s.mustSend(0, alice, "alice^demo", `{}`)
	first := s.mustSend(0, alice, "alice^demo", `{}`)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // a page that does not listen
		_, page := s.get(c, "/")
		_, page, _ = strings.Cut(page, `data-cursor="`)
		cursor, _, _ := strings.Cut(page, `"`)
		if cursor == fmt.Sprint(int64(first.Position)) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the page is at %s", cursor)
		}
	}
	n := next(fmt.Sprint(int64(early.Position)), 1)
	if n.Total != 1 || len(n.Rows) != 1 || n.Rows[0].ID != first.ID || n.Passed != 0 {
		t.Errorf("%+v", n)
	}
	if again := ask(n.Cursor); again.Total != 0 || len(again.Rows) != 0 || again.Cursor != n.Cursor {
		t.Errorf("told twice: %+v", again)
	}
	second := s.mustSend(0, alice, "alice^demo", `{}`)
	if n = next(n.Cursor, 1); len(n.Rows) != 1 || n.Rows[0].ID != second.ID {
		t.Errorf("%+v", n)
	}
	s.mustSendMany(alice, "alice^demo", 150)
	if many := next(n.Cursor, 150); many.Total != 150 || len(many.Rows)+many.Passed != 150 || many.Passed == 0 || len(many.Rows) > 100 {
		t.Errorf("%d events, %d rows, %d passed over", many.Total, len(many.Rows), many.Passed)
	}
	if n := ask("nonsense"); n.Total != 0 {
		t.Errorf("%+v", n)
	}
}

// Without sockets, pages ask.
func TestAPagePollsWithoutASocket(t *testing.T) {
	t.Parallel()
	if !scratch.Long(t) {
		t.Skip("-long runs it")
	}
	s := mustStage(t, true, func(c *console.Config) { c.Upgrade = nil })
	alice := s.mustIssue("alice^demo", "")
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(`document.querySelector("#link")?.dataset.state == "poll"`)
	s.mustSend(0, alice, "alice^demo", `{}`)
	b.await(`document.querySelectorAll("#flow .event").length == 1`)
}

// The keys lead to the search and through the rows, into one and back to it.
func TestTheKeysLeadThroughThePage(t *testing.T) {
	t.Parallel()
	s := mustTell(t, true)
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	b.await(`document.querySelectorAll("#boxes .box").length == 2`)
	focus := func(want string) {
		t.Helper()
		b.await(`(document.activeElement.closest("li") ?? document.activeElement).matches(` + fmt.Sprintf("%q", want) + `)`)
	}
	b.press("j")
	focus("#boxes .box:first-child")
	b.press("j")
	b.press("j")
	b.press("k")
	focus("#boxes .box:last-child")
	b.eval(`document.querySelector("#flow li:nth-child(3) a").focus()`)
	third := b.eval(`document.activeElement.closest("li").id`)
	b.press(kb.Enter)
	b.await(`location.pathname.startsWith("/message/")`)
	b.await(isLive)
	b.press(kb.Escape)
	b.await(`location.pathname == "/"`)
	b.await(`document.activeElement.closest("li")?.id == ` + third)
	b.press("/")
	focus("#search")
	b.eval(`document.activeElement.value = ""`) // the browser would not type the key that led here
	b.press("to:bob^demo state:pending" + kb.Enter)
	b.await(`location.search.includes("q=") && document.querySelectorAll("#flow .event").length == 3`)
	b.await(isLive) // so its script listens
	b.press("?")
	b.await(`document.querySelector("#keys").open`)
	b.press(kb.Escape)
	b.await(`!document.querySelector("#keys").open && location.search.includes("q=")`)
}

// A flood of events is sampled: the page says so, shows only so many rows, and follows.
func TestAFloodIsSampled(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	for range 20 {
		s.mustSendMany(alice, "alice^demo", 400)
		if b.eval(`document.querySelector("#sampled").textContent.startsWith("sampled")`) == "true" {
			break
		}
	}
	b.await(`document.querySelector("#link-text").textContent == "page is live, sampled" || document.querySelector("#sampled").textContent.startsWith("sampled")`)
	var rows int
	if err := json.Unmarshal([]byte(b.eval(`document.querySelectorAll("#flow .event").length`)), &rows); err != nil || rows > 60 || rows == 0 {
		t.Error(rows, err)
	}
	last := s.mustSend(time.Nanosecond, alice, "alice^demo", `{}`)
	b.await(`document.querySelector("#flow .event a").href.endsWith(` + fmt.Sprintf("%q", last.ID) + `)`)
}

// A console that stands still closes no socket, nor does a dead line. The page says on its own that
// it hears nothing, and since when, and is live again when somebody answers.
func TestAPageNoticesThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	b := mustOpen(t)
	w := mustWire(t, strings.TrimPrefix(s.url, "http://"))
	b.open("http://" + w.addr + "/" + s.console.Fragment())
	b.await(isLive)
	revive := w.die()
	t.Cleanup(revive)
	b.eval(`(Date.now = (now => () => now() + 60000)(Date.now), true)`) // a minute passes
	b.await(`document.querySelector("#link").dataset.state == "lost" && /^lost, nothing heard since \d\d:\d\d:\d\d$/.test(document.querySelector("#link-text").textContent)`)
	revive()
	b.await(isLive)
}
