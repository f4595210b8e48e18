package console_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/http/console"
)

// story stages an ordinary team with two troubles: bob is away with work waiting, and carol
// holds a message for long.
type story struct {
	*stage
	alice, bob, carol relay.IssuedKey
	late              *relay.Message // waits for bob
	answered          *relay.Message // bob has answered it
}

func mustTell(t testing.TB, live bool, options ...func(*console.Config)) *story {
	t.Helper()
	s := mustBegin(t, live, options...)
	s.tell()
	return s
}

// mustBegin stages the team, without a message.
func mustBegin(t testing.TB, live bool, options ...func(*console.Config)) *story {
	t.Helper()
	s := &story{stage: mustStage(t, live, options...)}
	s.alice, s.bob, s.carol = s.mustIssue("alice^demo", "laptop"), s.mustIssue("bob^demo", "worker"), s.mustIssue("carol^demo", "")
	return s
}

// tell sends the messages, from an hour ago on.
func (s *story) tell() {
	s.mustSend(55*time.Minute, s.alice, "carol^demo", `{"task":"fetch"}`)
	s.answered = s.mustSend(52*time.Minute, s.alice, "bob^demo", `{"question":"what does it cost?","amount":1.10}`)
	s.Pushed(s.bob.Number, time.Now().Add(-52*time.Minute+40*time.Millisecond), []relay.Position{s.answered.Position})
	s.mustAck(51*time.Minute, s.bob, s.answered, "processing", "asking the warehouse")
	answer := s.mustSend(50*time.Minute, s.bob, "alice^demo", `{"price":42}`, func(m *relay.SendMessage) { m.InReplyTo, m.Conversation = s.answered.ID, s.answered.Conversation })
	s.mustAck(50*time.Minute-time.Second, s.alice, answer, "completed", "")
	s.mustAck(50*time.Minute-2*time.Second, s.bob, s.answered, "completed", "")
	for i := range 40 {
		past := 45*time.Minute - time.Duration(i)*time.Minute
		m := s.mustSend(past, s.alice, "carol^demo", fmt.Sprintf(`{"n":%d}`, i))
		status := "completed"
		if i%13 == 7 {
			status = "failed"
		}
		s.mustAck(past-time.Duration(i%7+1)*time.Second/2, s.carol, m, status, "")
		if i == 25 {
			s.late = s.mustSend(past-8*time.Second, s.alice, "bob^demo", `{"task":"pack the box"}`)
			s.mustSend(past-9*time.Second, s.alice, "bob^demo", `{"task":"send it"}`)
			s.mustSend(past-10*time.Second, s.carol, "bob^demo", `{"task":"tell me"}`)
		}
	}
	s.mustSee(31*time.Minute, s.bob)
	bounds := []time.Duration{time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 8 * time.Millisecond, 16 * time.Millisecond}
	s.say(func(v *console.ServerHealth) {
		v.Sockets, v.Online, v.IndexMechas, v.QueueLength = 1, 1, 3, 2
		v.Histograms = []console.Histogram{{Name: console.CommitTime, Bounds: bounds, Counts: []uint64{0, 70, 20, 1, 0, 0}}, {Name: console.SyncTime, Bounds: bounds, Counts: []uint64{10, 75, 6, 0, 0, 0}},
			{Name: console.QueueTime, Bounds: bounds, Counts: []uint64{88, 3, 0, 0, 0, 0}}, {Name: console.PushLag, Bounds: bounds, Counts: []uint64{1, 0, 0, 0, 0, 0}}}
		v.Refused = []console.Count{{Where: "http", Code: "unauthorized", N: 12}, {Where: "socket", Code: "rate_limited", N: 1234}}
		v.Settings = []console.Setting{{Name: "--retention", Value: "forever"}, {Name: "--max-pending", Value: "100000"}}
	})
	s.isOnline(s.carol)
}

// everyView lists the paths of all views of a story, by their names.
func everyView(s *play) map[string]string {
	all := s.views()
	maps.Copy(all, map[string]string{
		"now": "/", "search": "/?q=from:alice+state:pending", "message": "/message/" + string(s.late.ID), "answered": "/message/" + string(s.answered.ID),
		"send": "/send?to=bob^demo", "again": "/message/" + string(s.late.ID) + "/again",
		"health": "/health", "wrong": "/message/msg_none",
	})
	return all
}

// window is the size of a window, and a theme.
type window struct {
	width, height int64
	dark          bool
}

// sizes are the windows and themes in which the views are looked at.
var sizes = []window{{1440, 900, false}, {420, 900, true}, {1440, 900, true}, {420, 900, false}, {3840, 2160, false}}

// axe is axe-core, which finds what keeps people out.
func axe(t *testing.T) chromedp.Action[chromedp.Void] {
	t.Helper()
	text, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	return chromedp.Evaluate[chromedp.Void](string(text))
}

// Everything that a view shows stays in the window, and nobody is kept out: there is enough
// contrast, and all has its name and its role. The short form looks at each kind of view in one
// window and theme, the long form at each view in all.
func TestEverybodyCanUseThePages(t *testing.T) {
	t.Parallel()
	s := mustPlay(t, true)
	views := everyView(s)
	all := scratch.Long(t) || *shots != ""
	if !all {
		for _, asAnother := range []string{"again", "answered", "directory-search", "keys-none", "mecha-held", "mecha-quiet", "pair", "search", "wrong"} {
			delete(views, asAnother) // it has the parts of other views
		}
	}
	const tabs = 3 // at the same time
	for tab := range tabs {
		t.Run(fmt.Sprint("tab ", tab+1), func(t *testing.T) {
			t.Parallel()
			b := mustOpen(t)
			b.open(s.entry("/"))
			b.await(isLive)
			for n, name := range slices.Sorted(maps.Keys(views)) {
				if n%tabs != tab {
					continue
				}
				windows := sizes
				if !all { // every other view is dark and narrow
					windows = sizes[n%2 : n%2+1]
				}
				b.everybodyCanUse(t, name, s.url+views[name], windows)
			}
		})
	}
	t.Run("the door", func(t *testing.T) {
		t.Parallel()
		door := mustOpen(t)
		door.open(s.url + "/")
		door.await(`document.querySelector("#door")`)
		do(door, axe(t))
		if found := door.eval(`axe.run().then(r => r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html)))`); found != "[]" {
			t.Error(found)
		}
		door.shoot("door")
	})
}

// everybodyCanUse looks at a view in each size.
func (b *tab) everybodyCanUse(t *testing.T, name, to string, windows []window) {
	for n, size := range windows {
		b.look(size.width, size.height, size.dark)
		if n == 0 {
			b.open(to)
			b.await(`document.readyState == "complete" && document.querySelector("#link").dataset.state != "wait"`)
			if name == "message" {
				b.click("#payload summary")
				b.await(`document.querySelector("#payload-text").textContent != ""`)
			}
			do(b, axe(t))
		}
		if wide := b.eval(`document.documentElement.scrollWidth > innerWidth`); wide != "false" {
			t.Errorf("%s is wider than %d", name, size.width)
		}
		b.shoot(fmt.Sprintf("%s-%d-%v", name, size.width, map[bool]string{true: "dark", false: "light"}[size.dark]))
		if found := b.eval(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).slice(0, 3)))`); found != "[]" {
			t.Errorf("%s, %d wide, dark %v: %s", name, size.width, size.dark, found)
		}
	}
}

// Whatever clients write into the fields that are theirs is text in a page, and nothing of it
// runs or leads away.
func TestNothingHostileRuns(t *testing.T) {
	t.Parallel()
	const evil = `"><img src=x onerror=window.hit=1><script>window.hit=1</script><svg onload=window.hit=1>{{.}}<a href=javascript:window.hit=1>x</a>` + "\u202eevil"
	s := mustStage(t, true)
	alice, bob := s.mustIssue("alice^demo", evil[:100]), s.mustIssue("bob^demo", evil[:100])
	payload, err := json.Marshal(map[string]string{evil: evil})
	if err != nil {
		t.Fatal(err)
	}
	m := s.mustSend(20*time.Minute, alice, "bob^demo", string(payload), func(m *relay.SendMessage) {
		m.Type, m.Priority, m.CorrelationID = evil[:60], evil[:32], evil[:120]
		m.Trace = relay.Trace{Parent: evil[:100], State: evil[:100]}
	})
	s.mustAck(19*time.Minute, bob, m, "failed", evil)
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	paths := []string{"/", "/message/" + string(m.ID), "/?q=" + url.QueryEscape(evil), "/health", "/" + url.PathEscape(evil), "/message/" + url.PathEscape(evil)}
	for _, path := range paths {
		b.open(s.url + path)
		b.await(`document.readyState == "complete" && document.querySelector("#link").dataset.state == "live"`)
		if path == paths[1] {
			b.click("#payload summary")
			b.await(`document.querySelector("#payload-text").textContent.includes("onerror")`)
			b.await(`document.querySelector("#life").textContent.includes("onerror")`)
		}
		again := s.mustSend(0, alice, "bob^demo", string(payload), func(m *relay.SendMessage) { m.Type = evil[:60] })
		s.mustAck(0, bob, again, "completed", evil)
		if path == "/" { // as live rows, too
			b.await(`[...document.querySelectorAll("#flow .new .note")].some(e => e.textContent.includes("onerror"))`)
			b.await(`[...document.querySelectorAll("#flow .new .kind")].some(e => e.textContent.includes("img"))`)
		}
		if bad := b.eval(`window.hit ?? [...document.querySelectorAll("main img, main script, main [onerror], main [onload], a[href^='javascript:']")].length`); bad != "0" {
			t.Errorf("%s: %s", path, bad)
		}
	}
	if said := b.said(); strings.Contains(said, "Error") {
		t.Error(said)
	}
	b.open(s.url + "/")
	wantPolicy(t, b)
}

// wantPolicy checks that the browser refuses what a page of ours never does: script in the
// page, a page from a text, styles in the page, and requests elsewhere.
func wantPolicy(t *testing.T, b *tab) {
	t.Helper()
	if got := b.eval(`(() => { const e = document.createElement("script"); try { e.text = "window.hit = 1"; document.body.append(e); } catch (error) { return error.name; } return window.hit ?? "refused"; })()`); got != `"refused"` && got != `"TypeError"` {
		t.Errorf("a script in the page: %s", got)
	}
	if got := b.eval(`(() => { try { document.body.innerHTML = "<b>x</b>"; } catch (error) { return error.name; } })()`); got != `"TypeError"` {
		t.Errorf("a page from a text: %s", got)
	}
	if got := b.eval(`fetch("http://127.0.0.1:1/").then(() => "sent", error => error.message)`); !strings.Contains(got, "ailed") {
		t.Errorf("a request elsewhere: %s", got)
	}
	if got := b.eval(`(() => { const e = document.createElement("div"); e.setAttribute("style", "color: red"); document.body.append(e); return getComputedStyle(e).color == "rgb(255, 0, 0)"; })()`); got != "false" {
		t.Errorf("a style in the page: %s", got)
	}
}
