package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/db/look/survey"
	"relay/db/relay"
	"relay/http/console"
)

// A trouble that is younger than ten minutes is not called well: Now says what waits, and for whom.
func TestAYoungTroubleIsNotCalledWell(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	visitor := s.enter()
	s.await(visitor, "/", `^All is well: nothing waits\. Nothing|^All is well: nothing waits\. 0 messages`)
	s.mustSend(4*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustSend(3*time.Minute, s.alice, "bob^demo", `{}`)
	s.await(visitor, "/", `Nothing waits longer than 10 min; 2 messages wait up to 4 min, all for bob\^demo, which has never made a request: it was registered at `+clock+`, and has a key, “worker”, that was never used\.`)
	s.isOnline(s.bob)
	s.await(visitor, "/", `2 messages wait up to 4 min, all for bob\^demo, which is connected`)
}

// A console that is a process of its own says if nobody serves the file.
func TestTheEndOfTheServerIsNamed(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, false)
	visitor := s.enter()
	s.await(visitor, "/", `All is well`)
	if err := s.DB.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(visitor, "/", `No server has the file open: nobody delivers\.`)
	s.await(visitor, "/health", `No server has the file open: nobody delivers\.`)
}

// Who is connected only the server knows: a console next to it says when a request was made.
func TestAConsoleBesideTheServerSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, false)
	s.mustSee(45*time.Minute, s.carol)
	s.mustSend(30*time.Minute, s.carol, "alice^demo", `{}`)
	s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	visitor := s.enter()
	s.awaitSeen(visitor, "/", `1 message has waited 20 min for bob\^demo, which made a request (40|[45]\d) s ago|last request ([45]\d) s ago`)
	s.await(visitor, "/", `alice\^demo last request `+clock)
	if _, page := s.get(visitor, "/"); strings.Contains(page, "connected") && strings.Contains(words(page), "is connected") || strings.Contains(words(page), "no request yet") {
		t.Errorf("it says more than it knows: %s", words(page))
	}
	// The use of a key is noted up to a minute later; what a Mecha has sent is known at once.
	dave := s.mustIssue("dave^demo", "")
	s.mustAck(0, dave, s.mustSend(time.Second, dave, "dave^demo", `{}`), "completed", "")
	s.mustIssue("erin^demo", "")
	for _, path := range []string{"/mecha", "/directory"} {
		s.await(visitor, path, `dave\^demo ?last request (just now|\d+ s ago)`)
		s.await(visitor, path, `erin\^demo ?no request noted yet`)
	}
	s.mustSend(time.Minute, s.alice, "erin^demo", `{}`)
	s.await(visitor, "/mecha/erin%5Edemo", `for erin\^demo, of which no request is noted yet: it was registered at .*Last request ?none noted yet`)
}

// awaitSeen awaits a page that says when bob made a request, which is 40 to 59 s ago: if this machine
// is too slow for a page in 15 s, he makes another one.
func (s *story) awaitSeen(visitor *http.Client, path, says string) {
	s.t.Helper()
	var seen time.Time
	text := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if time.Since(seen) > 15*time.Second {
			s.mustSee(40*time.Second, s.bob)
			seen = time.Now()
		}
		if _, text = s.get(visitor, path); regexp.MustCompile(says).MatchString(words(text)) {
			return
		}
	}
	s.t.Fatalf("%s does not say %q:\n%s", path, says, words(text))
}

// A server remembers the requests of the last minute, which the file does not have yet.
func TestARequestOfTheLastMinuteIsKnown(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	visitor := s.enter()
	for _, path := range []string{"/mecha", "/directory", "/mecha/bob%5Edemo"} {
		s.await(visitor, path, `no request yet`)
	}
	s.mustConnect(s.serve(), s.bob, "", 0).Close()
	waits := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	for _, path := range []string{"/mecha", "/directory", "/mecha/bob%5Edemo", "/", "/message/" + string(waits.ID)} {
		s.await(visitor, path, `bob\^demo\S* ?·? ?not connected, last seen `)
	}
	if _, page := s.get(visitor, "/message/"+string(waits.ID)); strings.Contains(words(page), "has never made a request") {
		t.Errorf("the page of the message says: %s", words(page))
	}
}

// A message that an operator sends from the console does not show that its Mecha is there.
func TestAnOperatorIsNoSignOfItsMecha(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	visitor := s.enter()
	m := url.Values{"to": {"bob^demo"}, "payload": {"{}"}, "once": {"once"}}
	if status, text := s.post(visitor, "/send", m); status != http.StatusSeeOther {
		t.Fatal(status, text)
	}
	for _, path := range []string{"/mecha", "/directory", "/mecha/operator%5Edemo"} {
		s.await(visitor, path, `operator\^demo\S* ?·? ?no request yet`)
	}
	s.await(visitor, "/mecha/operator%5Edemo", `Last request ?none`)
}

// What failed in the last hour is listed, however long ago it was sent, and with the time and the
// words of its failure.
func TestAnOldMessageThatFailsIsListed(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(100*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustAck(5*time.Minute, s.bob, m, "failed", "the mill stands still")
	visitor := s.enter()
	s.await(visitor, "/", `1 message was acknowledged as failed or rejected in the last hour, for bob\^demo\.`)
	s.await(visitor, "/", `Failed or expired in the last hour\S* ?\S*failed ?alice\^demo → bob\^demo ?the mill stands still`)
}

// short says that the disk has little room.
type short struct{ *watched }

func (s short) Overview(ctx context.Context, late time.Time) (survey.Overview, error) {
	o, err := s.watched.Overview(ctx, late)
	o.DiskFree = 10 << 20
	return o, err
}

// A console next to the server sees for itself that the disk is nearly full.
func TestALowDiskIsSeenBesideTheServer(t *testing.T) {
	t.Parallel()
	w := &watched{}
	s := mustStage(t, false, w.watch, func(c *console.Config) { c.Store = short{w} })
	s.await(s.enter(), "/", `Only 10 MiB are free on the disk\.`)
}

// A message that expired while no server ran has the time at which it expired, not that at which
// this was noticed, which is told next to it.
func TestAnExpiryHasTheTimeOfTheMessage(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(5 * time.Minute) })
	old := s.mustSend(3*time.Hour, s.alice, "carol^demo", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(5 * time.Minute) })
	visitor := s.enter()
	s.await(visitor, "/", `2 messages were found to have expired in the last hour, the latest for bob\^demo: bob\^demo has never made a request\.`)
	for path, shown := range map[string]int{"/": 2, "/message/" + string(m.ID): 2} { // in the flow and among the expired; in the life and in the record
		s.await(visitor, path, `noticed at \d\d:\d\d:\d\d`)
		_, page := s.get(visitor, path)
		text := fmt.Sprintf(`<time datetime="%s"`, relay.FormatTime(m.ExpiresAt))
		if n := strings.Count(page, text); n < shown {
			t.Errorf("%s has its expiry %d times", path, n)
		}
		if !strings.Contains(page, "noticed at") {
			t.Errorf("%s does not tell when that was noticed: %s", path, words(page))
		}
	}
	if _, page := s.get(visitor, "/message/"+string(m.ID)); !strings.Contains(words(page), "+5 min") {
		t.Errorf("the life of the message: %s", words(page))
	}
	s.await(visitor, "/message/"+string(old.ID), `noticed at`)
}
