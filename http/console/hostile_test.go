package console_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"relay/db/relay"
	"relay/db/scratch"
)

// mustMock returns a stage on which all that clients write is meant to break a page: markup,
// marks that turn the direction of text, characters without width, words without an end.
func mustMock(t testing.TB) (s *stage, paths []string) {
	t.Helper()
	const markup = `"><img src=x onerror=window.hit=1><script>window.hit=1</script>{{.}}`
	turned, thin := "\u202eevil\u2066\u2067", strings.Repeat("\u200b\u0301", 40)
	word := strings.Repeat("W", 16_000)
	s = mustStage(t, true)
	alice, bob := s.mustIssue("alice^demo", markup), s.mustIssue("bob^demo", turned+thin[:100]+strings.Repeat("W", 40))
	profile, err := json.Marshal(map[string]any{"display_name": markup, "description": strings.Repeat(markup, 9) + turned, "details": word,
		"tags": []string{markup[2:40], turned + thin[:20], strings.Repeat("W", 60)}, "languages": []string{"en"}, "examples": []string{word[:300]},
		"skills": []map[string]string{{"id": markup[:60], "name": turned + markup[:60], "description": word[:900]}}})
	if err != nil {
		t.Fatal(err)
	}
	s.mustPut("bob^demo", string(profile))
	name := relay.Address(strings.Repeat("n", 64) + "^" + strings.Repeat("c", 64))
	if _, err := relay.ParseAddress(string(name)); err != nil {
		t.Fatal(err)
	}
	s.mustIssue(name, strings.Repeat("W", 200))
	talk := relay.ConversationID(strings.Repeat("t", 128))
	m := s.mustSend(30*time.Minute, alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.Conversation, m.Type = talk, markup[:60] })
	s.mustAck(29*time.Minute, bob, m, "failed", markup+turned+word[:500])
	for _, kind := range []string{turned + thin[:20], strings.Repeat("W", 60)} {
		s.mustSend(20*time.Minute, alice, name, `{}`, func(m *relay.SendMessage) { m.Conversation, m.Type = talk, kind })
	}
	waits := s.mustSend(19*time.Minute, alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.Conversation, m.CorrelationID = talk, markup+turned })
	s.nonce++
	if _, err := s.ClaimMessages(t.Context(), &relay.ClaimMessages{At: time.Now(), Key: bob.Number, Limit: 1, Lease: time.Hour, Worker: markup[:60] + turned, Nonce: s.nonce}); err != nil {
		t.Fatal(err)
	}
	evil := url.QueryEscape(markup + turned)
	return s, []string{"/", "/mecha", "/mecha?q=" + evil, "/mecha/bob%5Edemo", "/mecha/" + url.PathEscape(string(name)), "/conversation/" + string(talk), "/directory", "/directory?q=" + evil,
		"/directory?q=img&tag=" + evil + "&as=" + evil, "/directory?q=WWWW&crew=" + evil, "/keys", "/keys?q=" + evil, "/message/" + string(m.ID), "/message/" + string(m.ID) + "/again", "/message/" + string(waits.ID) + "/expire",
		"/key/" + string(bob.ID) + "/revoke", "/send?to=" + evil}
}

// typed finds what the reader has typed, which stays as it is in its field, and can turn nothing else.
var typed = regexp.MustCompile(` (value|data-query)="[^"]*"`)

// Marks that turn the direction of text, and could make one address look like another, are shown as
// their escapes in each view, in titles, and in what a page is told as it happens.
func TestNoMarkTurnsTheText(t *testing.T) {
	s, paths := mustMock(t)
	const turned = "\u202egnp\u2066"
	alice, bob := s.mustIssue("alice^demo", turned), s.mustIssue("bob^demo", turned)
	m := s.mustSend(time.Minute, alice, "bob^demo", `{}`, func(m *relay.SendMessage) {
		m.Type, m.Priority, m.CorrelationID = turned, turned, turned
		if relay.ConversationID(turned).Check("id") == nil {
			m.Conversation = turned
		}
	})
	s.Pushed(bob.Number, time.Now(), []relay.Position{m.Position})
	s.mustAck(time.Second, bob, m, "failed", turned)
	paths = append(paths, "/events?after=1", "/health", "/message/"+string(m.ID), "/conversation/"+url.PathEscape(string(m.Conversation)), "/?q="+url.QueryEscape(turned+" conv:"+turned), "/message/"+url.PathEscape(turned))
	for _, index := range []bool{false, true} {
		if index {
			s.show(true, "127.0.0.1:0", searchBy(s.mustIndex()))
		}
		c := s.enter()
		for _, path := range paths {
			_, page := s.get(c, path)
			page = typed.ReplaceAllString(page, "")
			if i := strings.IndexFunc(page, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) }); i >= 0 {
				t.Errorf("%s: …%s…", path, page[max(0, i-120):min(len(page), i+40)])
			}
		}
	}
}

// What clients write is text in each view, with an index and without one.
func TestHostileWordsAreText(t *testing.T) {
	s, paths := mustMock(t)
	x := s.mustIndex()
	for _, index := range []bool{false, true} {
		if index {
			s.show(true, "127.0.0.1:0", searchBy(x))
		}
		c := s.enter()
		for _, path := range paths {
			status, page := s.get(c, path)
			main := page[strings.Index(page, "<main"):]
			if status != 200 || strings.Contains(main, "<img") || strings.Contains(main, "<script") || len(page) > 100_000 {
				t.Errorf("%s: %d, %d bytes", path, status, len(page))
			}
		}
	}
	if log := s.log.String(); strings.Contains(log, "ERROR") {
		t.Error(log)
	}
}

// Nothing of it runs, and no view becomes wider than its window.
func TestHostileWordsStayInTheWindow(t *testing.T) {
	if !scratch.Long(t) && *shots == "" {
		t.Skip("takes long; -long runs it. TestNothingHostileRuns and TestTheWidestValuesFitANarrowWindow look at less")
	}
	t.Parallel()
	s, paths := mustMock(t)
	s.show(true, "127.0.0.1:0", searchBy(s.mustIndex()))
	b := mustOpen(t)
	b.open(s.entry("/"))
	b.await(isLive)
	for _, width := range []int64{420, 1440} {
		b.look(width, 900, false)
		for n, path := range paths {
			b.open(s.url + path)
			b.await(`document.readyState == "complete"`)
			if wide := b.eval(`document.documentElement.scrollWidth - innerWidth`); wide != "0" {
				t.Errorf("%s is %s pixels wider than %d", path, wide, width)
			}
			if hit := b.eval(`window.hit ?? document.querySelectorAll("main img, main script:not([src]), [onerror]").length`); hit != "0" {
				t.Errorf("%s: %s", path, hit)
			}
			b.shoot("hostile-" + string(rune('a'+n)) + "-" + map[int64]string{420: "420", 1440: "1440"}[width])
		}
	}
}
