package console_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/http/console"
)

// Every view fits a window of 420 pixels, even with the longest values that can are in it: nothing
// scrolls to the side but the tables and the diagram that say so.
func TestTheWidestValuesFitANarrowWindow(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64
	s := mustPlay(t, true, func(c *console.Config) {
		c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	b := mustOpen(t)
	b.look(420, 900, false)
	s.fillWidely()
	visitor := s.enter()
	for end, measured := time.Now().Add(patience), false; !measured; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page never shows the widest values")
		}
		s.say(func(v *console.ServerHealth) { v.Histograms = slowly(ahead.Add(int64(time.Minute))) }) // a minute later, it is measured again
		_, page := s.get(visitor, "/health")
		measured = strings.Contains(words(page), "Commit, p99 47 h 59 min")
	}
	b.open(s.entry("/"))
	b.await(isLive)
	for name, path := range everyView(s) {
		b.open(s.url + path)
		b.await(`document.readyState == "complete" && document.querySelector("#link").dataset.state != "wait"`)
		b.fits(name)
	}
	if !scratch.Long(t) {
		return // the page waits ten seconds for a sign of life
	}
	b.eval(`fetch("/leave", {method: "POST"}).then(r => r.status)`) // as another tab does
	b.await(`document.querySelector("#link-text").textContent.startsWith("the session is over")`)
	b.fits("the end of a session") // one of the long states of a page
}

// fits fails the test if something of a page is beyond the window.
func (b *tab) fits(name string) {
	b.t.Helper()
	if wide := b.eval(`document.documentElement.scrollWidth - innerWidth`); wide != "0" {
		b.t.Errorf("%s: the page is %s pixels too wide", name, wide)
	}
	if cut := b.eval(beyond); cut != "[]" {
		b.t.Errorf("%s: nobody can read the end of %s", name, cut)
	}
	b.shoot("narrow-" + strings.ReplaceAll(name, " ", "-"))
}

// beyond lists the elements that end beyond their panel or the window, and that nobody can scroll. Of
// the rows of events, the end of a type and of a note is cut: their page has all of it.
const beyond = `[...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll, .lanes, .unseen, .event .kind, .event .note, svg, dialog")
	&& e.getBoundingClientRect().right > (e.parentElement.closest(".panel, .plot") ?? document.documentElement).getBoundingClientRect().right + .5).map(e => e.outerHTML.slice(0, 90)).slice(0, 5)`

// fillWidely adds what makes pages wide: long names, types and words, and great numbers.
func (p *play) fillWidely() {
	p.t.Helper()
	long := relay.Address(strings.Repeat("w", 64) + "^" + strings.Repeat("m", 64))
	k := p.mustIssue(long, strings.Repeat("label", 12))
	m := p.mustSend(20*time.Minute, k, long, `{}`, func(m *relay.SendMessage) { m.Type, m.Conversation = strings.Repeat("type", 16), p.talk })
	p.mustAck(19*time.Minute, k, m, "failed", strings.Repeat("detail", 50))
	p.mustSend(time.Minute, k, long, `{}`, func(m *relay.SendMessage) { m.Conversation = p.talk })
	p.say(func(v *console.ServerHealth) {
		v.Sockets, v.LongPolls, v.Online, v.IndexMechas, v.QueueLength, v.QueueOldest, v.IndexLag = 1_000_000, 1_000_000, 1_000_000, 1_000_000, 100_000, time.Hour, time.Hour
		v.Refused, v.Settings = nil, nil
		for _, code := range []relay.Code{relay.ConversationNotFound, relay.AlreadyAcknowledged, "idempotency_key_reused"} {
			v.Refused = append(v.Refused, console.Count{Where: "socket", Code: string(code), N: 1_000_000_000})
		}
		for _, name := range []string{"--require-message-signature", "--min-free-disk"} {
			v.Settings = append(v.Settings, console.Setting{Name: name, Value: fmt.Sprint(1 << 40)})
		}
	})
}

// slowly are the histograms of a server that is slow, and has counted n of each kind.
func slowly(n int64) (all []console.Histogram) {
	for _, name := range []string{console.CommitTime, console.SyncTime, console.QueueTime, console.PushLag} {
		all = append(all, console.Histogram{Name: name, Bounds: []time.Duration{time.Millisecond, 999 * time.Millisecond, 48*time.Hour - time.Minute}, Counts: []uint64{0, 0, uint64(n), 0}})
	}
	return all
}
