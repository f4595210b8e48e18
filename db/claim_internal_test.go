package db

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/progress"
	"relay/db/relay"
)

// claimable is what a claim has to bring, found by looking at every message.
func claimable(t *testing.T, d *DB, at time.Time, limit int) (all []relay.Position) {
	t.Helper()
	bytes := int64(0)
	err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
		r := x.C.Query(`SELECT m.position, m.payload_bytes FROM message m LEFT JOIN attempt a ON a.message = m.position
			WHERE m.open = 1 AND a.until IS NULL AND (m.expires_at IS NULL OR m.expires_at > ?) ORDER BY m.position LIMIT ?`, at.UnixMilli(), int64(limit))
		for r.Next() {
			if bytes += r.Int(1); len(all) == 0 || bytes <= relay.PageBytes {
				all = append(all, relay.Position(r.Int(0)))
			}
		}
		return r.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// In whatever order messages are sent, claimed, deferred, freed and done, and although the
// times of claims are not in order, a claim brings the oldest that are free.
func TestAClaimBringsTheOldestFreeMessages(t *testing.T) {
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	d := openHere(t, func(o *Options) { o.Now = c.now })
	k := mustIssue(t, d, "a^b")
	random := rand.New(rand.NewPCG(1, 2))
	large := func(m *relay.SendMessage) {
		m.Payload = fmt.Appendf(nil, `{"large":"%0*d"}`, relay.PageBytes/3, 1)
	}
	var ids []relay.MessageID
	brought := 0
	for i := range 400 {
		c.set(time.Duration(random.IntN(2000)) * time.Millisecond)
		pick := func() relay.MessageID { return ids[random.IntN(len(ids))] }
		ack := func(status string, after time.Duration) {
			a := &relay.Acknowledge{At: c.now(), Key: k.Number, ID: pick(), Status: status, RetryAfter: after, ClientTS: "2026-11-20T08:00:00Z"}
			if _, err := d.Acknowledge(a); relay.ErrorCode(err) == relay.Internal {
				t.Fatal(err)
			}
		}
		switch n := random.IntN(12); {
		case n < 4 || len(ids) == 0:
			sent := mustSendNow(t, d, c, k, func(m *relay.SendMessage) {
				if random.IntN(5) == 0 {
					m.ExpiresAt = c.now().Add(time.Duration(1+random.IntN(60)) * time.Second)
				}
				if random.IntN(20) == 0 {
					large(m)
				}
			})
			ids = append(ids, sent.ID)
		case n == 4:
			ack("completed", 0)
		case n < 7:
			ack(relay.Deferred, time.Duration(1+random.IntN(30))*time.Second)
		case n < 9:
			if _, err := engine.Do[progress.NextDue](d.w, &relay.EndAttempts{At: c.now()}); err != nil {
				t.Fatal(err)
			}
		default:
			at, limit := c.now().Add(time.Duration(random.IntN(40)-20)*time.Second), 1+random.IntN(4)
			want := claimable(t, d, at, limit)
			if found, err := d.Claimable(t.Context(), k.Mecha.Number); err != nil || found != (len(claimable(t, d, c.now(), 1)) > 0) {
				t.Fatalf("step %d: claimable: %v, %v", i, found, err)
			}
			got, err := d.ClaimMessages(t.Context(), &relay.ClaimMessages{At: at, Key: k.Number, Limit: limit, Lease: 10 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var positions []relay.Position
			for _, m := range got {
				positions = append(positions, m.Position)
			}
			if !slices.Equal(positions, want) {
				t.Fatalf("step %d: a claim brought %v; want %v", i, positions, want)
			}
			brought += len(got)
		}
	}
	if brought < 100 {
		t.Errorf("all claims together brought %d messages", brought)
	}
}

// A redelivered message does not make the next claims read all held messages.
func TestAClaimDoesNotLookAtHeldMessages(t *testing.T) {
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	d := openHere(t, func(o *Options) { o.Now = c.now })
	k := mustIssue(t, d, "a^b")
	var last relay.Position
	for range 5 {
		last, _ = d.w.IDs.MessagePosition(mustSendNow(t, d, c, k).ID)
	}
	claim := func(limit int, lease time.Duration) {
		t.Helper()
		got, err := d.ClaimMessages(t.Context(), &relay.ClaimMessages{At: c.now(), Key: k.Number, Limit: limit, Lease: lease})
		if err != nil || len(got) != limit {
			t.Fatalf("%d messages, %v", len(got), err)
		}
	}
	claim(1, 5*time.Second)
	claim(4, time.Hour)
	c.set(time.Minute)
	if _, err := engine.Do[progress.NextDue](d.w, &relay.EndAttempts{At: c.now()}); err != nil {
		t.Fatal(err)
	}
	claim(1, time.Hour)
	if from, _ := d.Progress.Claims.Find(k.Mecha.Number); from <= last {
		t.Errorf("the next claim looks at the messages from %d on; the last one that is held is at %d", from, last)
	}

	plan := explain(t, d, progress.FreeAgain, []any{int64(1), int64(1), int64(1)})
	if !strings.Contains(plan, "SEARCH a USING INDEX attempt_free (recipient=?)") || strings.Contains(plan, "TEMP B-TREE") {
		t.Error(plan)
	}
}

// A claim that is not committed leaves its messages to the next one.
func TestAClaimThatFailsLeavesItsMessages(t *testing.T) {
	t.Parallel()
	d := openHere(t)
	k := mustIssue(t, d, "a^b")
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	sent := mustSendNow(t, d, c, k)
	claim := &relay.ClaimMessages{At: c.now(), Key: k.Number, Limit: 1, Lease: time.Hour}
	done := make(chan error, 1)
	j := engine.WriteJobOf(d.w.Table, claim, func(_ []relay.ClaimedMessage, err error) { done <- err })
	j.Decide = func(x *engine.Tx, c *relay.ClaimMessages) ([]relay.ClaimedMessage, error) {
		if got, err := d.Progress.DecideClaim(x, c); err != nil || len(got) != 1 {
			t.Errorf("%d messages, %v", len(got), err)
		}
		return nil, errors.New("a fault of the store")
	}
	d.w.QueueFor(j)
	if err := <-done; err == nil {
		t.Fatal("the claim has not failed")
	}
	if got, err := d.ClaimMessages(t.Context(), claim); err != nil || len(got) != 1 || got[0].ID != sent.ID {
		t.Errorf("%d messages, %v", len(got), err)
	}
}
