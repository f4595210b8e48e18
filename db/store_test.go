package db_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/relay"
)

var ctx = context.Background()

// schema is the real one.
func schema(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// store is an open store on a real file. Its methods are the steps of the tests.
type store struct {
	*db.DB
	t testing.TB
}

func mustOpen(t testing.TB, options ...func(*db.Options)) store {
	t.Helper()
	serve := func(o *db.Options) { o.Serve = true }
	return store{dbtest.Open(t, append([]func(*db.Options){serve}, options...)...), t}
}

func (s store) mustIssue(a relay.Address) relay.IssuedKey {
	s.t.Helper()
	k, err := s.Issue(&relay.IssueKey{At: time.Now(), Address: a})
	if err != nil {
		s.t.Fatal(err)
	}
	return k
}

func (s store) mustSend(from *relay.Key, to relay.Address, payload string, more ...func(*relay.SendMessage)) relay.Sent {
	s.t.Helper()
	sent, err := s.send(from, to, payload, more...)
	if err != nil {
		s.t.Fatal(err)
	}
	return sent
}

func (s store) send(from *relay.Key, to relay.Address, payload string, more ...func(*relay.SendMessage)) (relay.Sent, error) {
	m := &relay.SendMessage{At: time.Now(), Key: from.Number, To: to, Payload: []byte(payload), Nonce: 1}
	for _, f := range more {
		f(m)
	}
	if err := m.Validate(); err != nil {
		return relay.Sent{}, err
	}
	return s.Send(m)
}

func (s store) mustHistory(q relay.HistoryQuery) relay.Page {
	s.t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	p, err := s.History(ctx, q)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func (s store) mustAck(k *relay.Key, id relay.MessageID, status string) relay.AckOutcome {
	s.t.Helper()
	out, err := s.ack(k, id, status)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s store) ack(k *relay.Key, id relay.MessageID, status string, more ...func(*relay.Acknowledge)) (relay.AckOutcome, error) {
	a := &relay.Acknowledge{At: time.Now(), Key: k.Number, ID: id, Status: status, ClientTS: "2026-01-01T00:00:00Z"}
	for _, f := range more {
		f(a)
	}
	if err := a.Validate(); err != nil {
		return relay.AckOutcome{}, err
	}
	return s.Acknowledge(a)
}

func wantCode(t testing.TB, err error, code relay.Code) {
	t.Helper()
	if relay.ErrorCode(err) != code {
		t.Fatalf("got error %v, want %s", err, code)
	}
}

func TestALifeOfAMessage(t *testing.T) {
	s := mustOpen(t)
	alice, bob := s.mustIssue("alice^demo"), s.mustIssue("bob^demo")

	sent := s.mustSend(alice.Key, "bob^demo", `{"n": 1.0}`)
	m, err := s.Message(ctx, bob.Mecha.Number, sent.ID)
	if err != nil || m.State != relay.Queued || m.From != "alice^demo" || m.To != "bob^demo" || m.Priority != "normal" {
		t.Fatalf("record %+v, %v", m, err)
	}
	body, err := s.Payload(ctx, bob.Mecha.Number, sent.ID)
	if err != nil || string(body) != `{"n": 1.0}` {
		t.Fatalf("payload %q, %v", body, err)
	}
	_, err = s.Payload(ctx, alice.Mecha.Number, sent.ID)
	wantCode(t, err, relay.RecipientOnly)

	d, err := s.MarkDelivered(&relay.MarkDelivered{At: time.Now(), Key: bob.Number, ID: sent.ID})
	if err != nil || d.State != relay.Delivered || d.DeliveredAt.IsZero() {
		t.Fatalf("deliver %+v, %v", d, err)
	}
	if out := s.mustAck(bob.Key, sent.ID, "Completed"); out.State != relay.Acknowledged || out.Duplicate || out.Status != "completed" {
		t.Fatalf("ack %+v", out)
	}
	if out := s.mustAck(bob.Key, sent.ID, "completed"); !out.Duplicate {
		t.Fatalf("second ack %+v", out)
	}
	_, err = s.ack(bob.Key, sent.ID, "failed")
	wantCode(t, err, relay.AlreadyAcknowledged)

	if p := s.mustHistory(relay.HistoryQuery{Mecha: alice.Mecha.Number}); len(p.Messages) != 1 || p.Messages[0].Ack.Status != "completed" || p.More {
		t.Fatalf("history %+v", p)
	}
	_, err = s.send(alice.Key, "bbo^demo", `{}`)
	wantCode(t, err, relay.RecipientNotFound)
	var e *relay.Error
	if errors.As(err, &e); len(e.DidYouMean) != 1 || e.DidYouMean[0] != "bob^demo" {
		t.Fatalf("did you mean %v", e.DidYouMean)
	}
}

func BenchmarkSend(b *testing.B) {
	for _, parallel := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(parallel), func(b *testing.B) { benchmarkSend(b, parallel, false) })
		b.Run(fmt.Sprint(parallel, "/pushed"), func(b *testing.B) { benchmarkSend(b, parallel, true) })
	}
}

// benchmarkSend sends from so many goroutines to a thousand Mechas, noting for
// every message that it was pushed if told to.
func benchmarkSend(b *testing.B, parallel int, pushed bool) {
	s := mustOpen(b)
	sender := s.mustIssue("sender^bench")
	var to []relay.Address
	for i := range 1000 {
		to = append(to, relay.Address(fmt.Sprintf("m%d^bench", i)))
		s.mustIssue(to[i])
	}
	if pushed {
		s.OnCommit(func(c *relay.Commit) {
			for _, m := range c.Messages {
				s.Pushed(sender.Number, time.Now(), []relay.Position{m.Position})
			}
		})
	}
	payload := fmt.Appendf(nil, `{"text":"%0500d"}`, 1)
	b.ReportAllocs()
	b.ResetTimer()
	var wg sync.WaitGroup
	for w := range parallel {
		wg.Go(func() {
			for i := w; i < b.N; i += parallel {
				m := &relay.SendMessage{At: time.Now(), Key: sender.Number, To: to[i%1000], Payload: payload, Nonce: 1}
				m.Validate()
				if _, err := s.Send(m); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
