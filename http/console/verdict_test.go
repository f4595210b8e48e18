package console_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"relay/db/inspect"
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
	s.await(visitor, "/", `Nothing waits longer than 10 min; 2 messages wait up to 4 min, all for bob\^demo, which has never made a request\.`)
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

// Who is connected only the server knows: a console beside it says when a request was made.
func TestAConsoleBesideTheServerSaysWhatItKnows(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, false)
	s.mustSee(40*time.Second, s.bob)
	s.mustSee(45*time.Minute, s.carol)
	s.mustSend(30*time.Minute, s.carol, "alice^demo", `{}`)
	s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	visitor := s.enter()
	for _, says := range []string{`1 message waits longer than 10 min for bob\^demo, which made a request (40|[45]\d) s ago|last request ([45]\d) s ago`, `alice\^demo last request \d\d:`} {
		s.await(visitor, "/", says)
	}
	if _, page := s.get(visitor, "/"); strings.Contains(page, "connected") && strings.Contains(words(page), "is connected") || strings.Contains(words(page), "no request yet") {
		t.Errorf("it says more than it knows: %s", words(page))
	}
}

// What failed in the last hour is listed, however long ago it was sent, and with the time and the
// words of its failure.
func TestAnOldMessageThatFailsIsListed(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(100*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustAck(5*time.Minute, s.bob, m, "failed", "the mill stands still")
	visitor := s.enter()
	s.await(visitor, "/", `1 message was acknowledged as failed or rejected in the last hour, the latest for bob\^demo\.`)
	s.await(visitor, "/", `Failed or expired in the last hour\S* ?\S*failed ?alice\^demo → bob\^demo ?the mill stands still`)
}

// short says that the disk has little room.
type short struct{ *watched }

func (s short) Overview(ctx context.Context, late time.Time) (inspect.Overview, error) {
	o, err := s.watched.Overview(ctx, late)
	o.DiskFree = 10 << 20
	return o, err
}

// A console beside the server sees for itself that the disk is nearly full.
func TestALowDiskIsSeenBesideTheServer(t *testing.T) {
	t.Parallel()
	w := &watched{}
	s := mustStage(t, false, w.watch, func(c *console.Config) { c.Store = short{w} })
	s.await(s.enter(), "/", `Only 10 MiB are free on the disk\.`)
}
