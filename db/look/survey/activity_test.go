package survey_test

import (
	"math"
	"testing"
	"time"

	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

// The spans of an Activity cover all events, however few rows it reads in one turn.
func TestAnActivityCountsAllEventsInTheirSpans(t *testing.T) {
	s := dbtest.Open(t)
	now := time.Now()
	k, err := s.Issue(&relay.IssueKey{At: now.Add(-time.Hour), Address: "alice^demo"})
	if err != nil {
		t.Fatal(err)
	}
	for n, status := range []string{"completed", "failed", "rejected", "", "completed", ""} {
		at := now.Add(time.Duration(n-10) * 50 * time.Second)
		m := &relay.SendMessage{At: at, Key: k.Number, To: "alice^demo", Payload: []byte(`{}`), Nonce: relay.NonceHash(n + 1)}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		sent, err := s.Send(m)
		if err == nil && status != "" {
			at = at.Add(20 * time.Second)
			_, err = s.Acknowledge(&relay.Acknowledge{At: at, Key: k.Number, ID: sent.ID, Status: status, ClientTS: relay.FormatTime(at), Nonce: relay.NonceHash(n + 100)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	in, err := browse.Inspect(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	events, err := in.Events(0, 100)
	if err != nil || len(events) != 10 {
		t.Fatal(len(events), err)
	}
	want := map[time.Time]survey.Span{}
	for _, e := range events {
		begin := e.Position.Time().Truncate(time.Minute)
		one := survey.Span{Events: 1}
		if e.Step.What == look.StepAccepted {
			one.Sent = 1
		} else {
			one.Acked, one.Lag, one.MaxLag = 1, 20*time.Second, 20*time.Second
			if e.Step.Status != "completed" {
				one.Failed = 1
			}
		}
		sum := want[begin]
		sum.Add(one)
		want[begin] = sum
	}
	for _, limit := range []int{1, 3, 100} {
		got := map[time.Time]survey.Span{}
		a := survey.Activity{More: true}
		for turns := 0; a.More; turns++ {
			if a, err = (survey.Inspector{Inspector: in}).Activity(a.Upto, time.Minute, limit); err != nil || turns > len(events) {
				t.Fatal(turns, err)
			}
			for _, span := range a.Spans {
				sum := got[span.Begin.UTC()]
				sum.Add(span)
				got[span.Begin.UTC()] = sum
			}
		}
		if last := events[len(events)-1].Position; a.Upto != last {
			t.Errorf("limit %d: it counts up to %d, not %d", limit, a.Upto, last)
		}
		if len(got) != len(want) {
			t.Errorf("limit %d: %d spans, not %d", limit, len(got), len(want))
		}
		for begin, w := range want {
			g := got[begin]
			g.Begin = time.Time{}
			if near(g.Lag, w.Lag) && near(g.MaxLag, w.MaxLag) {
				g.Lag, g.MaxLag = w.Lag, w.MaxLag
			}
			if g != w {
				t.Errorf("limit %d, %v: %+v, not %+v", limit, begin, g, w)
			}
		}
	}
}

// near reports whether two times differ by no more than what positions round.
func near(a, b time.Duration) bool { return math.Abs(float64(a-b)) <= float64(10*time.Millisecond) }
