package db

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/names"
	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// occupy takes n idle connections of a lane, until the returned function is called.
func occupy(t *testing.T, l *readers.Lane, n int) (free func()) {
	t.Helper()
	own := readers.Turn{Lane: l, Of: 0, MaxWaiting: 0}
	var taken []*sqlite.Conn
	free = func() {
		for _, c := range taken {
			own.Give(c)
		}
	}
	for range n {
		c, err := own.Take(t.Context())
		if err != nil {
			free()
			t.Fatal("a connection is in use:", err)
		}
		taken = append(taken, c)
	}
	return free
}

// untilWaiting waits until n reads of a Mecha wait in the lane.
func untilWaiting(l *readers.Lane, of relay.MechaNumber, n int) {
	for l.Waiting(of) != n {
		runtime.Gosched()
	}
}

// mustHaveMessages makes a key whose Mecha has n messages from itself.
func mustHaveMessages(t *testing.T, d *DB, a relay.Address, n int) *relay.Key {
	t.Helper()
	k := mustIssue(t, d, a)
	for range n {
		if _, err := d.Send(message(k, a, `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	return k
}

// One Mecha has as many scans waiting as it may. Another Mecha's read still gets its turn
// before the first of those scans has ended, because a scan is read in pieces.
func TestOneMechasScansDoNotHoldUpAnothers(t *testing.T) {
	t.Parallel()
	d := openHere(t)
	busy, other := mustHaveMessages(t, d, "busy^x", 10*messages.PieceRows), mustHaveMessages(t, d, "other^x", 1)
	noMatch := relay.HistoryQuery{Mecha: busy.Mecha.Number, Limit: 1, Type: "normal"} // a word in use, but of a priority
	scans := d.w.Readers.Scans
	defer occupy(t, scans, readers.ScanConns-1)()
	free := occupy(t, scans, 1)
	var ended atomic.Int32
	var wg sync.WaitGroup
	for range readers.ScansWait {
		wg.Go(func() {
			p, err := d.History(t.Context(), noMatch)
			if err != nil || p.Looked != 10*messages.PieceRows {
				t.Errorf("looked at %d rows, %v", p.Looked, err)
			}
			ended.Add(1)
		})
	}
	untilWaiting(scans, busy.Mecha.Number, readers.ScansWait)
	if _, err := d.History(t.Context(), noMatch); relay.ErrorCode(err) != relay.RateLimited {
		t.Errorf("a scan beyond the bound got %v", err)
	}
	wg.Go(func() {
		err := d.w.ReadIn(t.Context(), d.w.Readers.Scan(other.Mecha.Number), func(*engine.Rx) error {
			if n := ended.Load(); n > 0 {
				t.Errorf("%d scans of the busy Mecha came first", n)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	untilWaiting(scans, other.Mecha.Number, 1)
	free()
	wg.Wait()
}

// Reads of keys, which let requests in and end sockets, go through while every other
// connection is in use. A point read goes through while all scans are in use.
func TestKeysWaitForNoOtherRead(t *testing.T) {
	d := openHere(t, func(o *Options) { o.Serve = true })
	k, spare := mustHaveMessages(t, d, "a^x", 1), mustIssue(t, d, "b^x")
	issued, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "c^x"})
	if err != nil {
		t.Fatal(err)
	}
	latest, err := d.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	freeScans := occupy(t, d.w.Readers.Scans, readers.ScanConns)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a read that waits fails the test
	defer cancel()
	if m, err := d.Message(ctx, k.Mecha.Number, d.w.IDs.Message(latest)); err != nil || m.Position != latest {
		t.Error(m, err)
	}
	freePoints := occupy(t, d.w.Readers.Points, readers.PointConns)
	if err := d.Revoke(&relay.RevokeKey{At: time.Now(), ID: spare.ID}); err != nil {
		t.Error(err)
	}
	if found, err := d.KeysByID(ctx, []relay.KeyID{spare.ID}); err != nil || len(found) != 1 || found[0].RevokedAt.IsZero() {
		t.Error(found, err)
	}
	if found, err := d.Key(ctx, issued.Text); err != nil || found.ID != issued.ID { // it is in no cache
		t.Error(found, err)
	}
	if p, err := d.Latest(ctx); err != nil || p != latest {
		t.Error(p, err)
	}
	if d.Failed() != nil || !d.AcceptsMessages() {
		t.Error("the store is not ready")
	}
	freePoints()
	freeScans()
}

// A read that gives up leaves its place. If its turn comes in that moment, the connection
// goes to the next read.
func TestAReadThatGivesUpLeavesItsPlace(t *testing.T) {
	d := openHere(t)
	for range 50 { // in each round, chance decides which reads see their turn first, and which the end
		free := occupy(t, d.w.Readers.Points, readers.PointConns)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := d.w.ReadIn(ctx, d.w.Readers.Point(1), func(*engine.Rx) error { return nil }); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
		untilWaiting(d.w.Readers.Points, 1, 20)
		cancel()
		free()
		wg.Wait()
	}
	occupy(t, d.w.Readers.Points, readers.PointConns)() // all have come back
}

// One Mecha fills its share of the writer's queue. Still, the next transaction takes
// another Mecha's write, and a key's own writes keep their order.
func TestAFloodOfWritesDoesNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	d := openHere(t)
	flooding, other := mustIssue(t, d, "flooding^x"), mustIssue(t, d, "other^x")
	sent, err := d.Send(message(flooding, "flooding^x", `{}`))
	if err != nil {
		t.Fatal(err)
	}
	b := block{make(chan struct{}), make(chan struct{})}
	go d.wait(b)
	<-b.entered
	var done, refused atomic.Int32
	var wg sync.WaitGroup
	const flood = 10_000
	wg.Add(flood)
	for i := range flood {
		a := &relay.Acknowledge{At: time.Now(), Key: flooding.Number, ID: sent.ID, Status: "processing", ClientTS: "2026-01-01T00:00:00Z"}
		d.AcknowledgeThen(a, func(_ relay.AckOutcome, err error) {
			defer wg.Done()
			switch {
			case relay.ErrorCode(err) == relay.RateLimited:
				refused.Add(1)
			case err != nil:
				t.Error(err)
			case int(done.Add(1)) != i+1:
				t.Errorf("acknowledgement %d is done as number %d", i, done.Load())
			}
		})
	}
	wg.Add(3)
	in := func(what string) {
		if n := done.Load(); n > engine.CutBatch {
			t.Errorf("%d writes of the flood came before %s", n, what)
		}
		wg.Done()
	}
	engine.Then(d.w, message(other, "flooding^x", `{}`), func(_ relay.Sent, err error) {
		if err != nil {
			t.Error(err)
		}
		in("another's message")
	})
	engine.Then(d.w, &relay.RevokeKey{At: time.Now(), ID: other.ID}, func(_ *relay.Key, err error) {
		if err != nil {
			t.Error(err)
		}
		in("a revocation")
	})
	d.w.Submit(nothing{}, 0, func(err error) {
		if err != nil {
			t.Error(err)
		}
		in("a chore")
	})
	close(b.release)
	wg.Wait()
	if n := refused.Load(); n != flood-engine.MaxQueue/2 {
		t.Errorf("%d writes of the flood were refused, not those beyond half of the queue", n)
	}
}

// Reads of many more words than a cache may hold do not fill it beyond its bound.
func TestTheCachesOfNamesHaveABound(t *testing.T) {
	t.Parallel()
	d := openHere(t)
	k := mustIssue(t, d, "a^x")
	most := names.CacheBytes / names.PairOverhead
	for i := range 3 * most {
		m := message(k, "a^x", `{}`)
		m.Type, m.Conversation = fmt.Sprintf("type-%d", i), relay.ConversationID(fmt.Sprintf("label-%d", i))
		if _, err := d.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	d.w.Words.Forget() // from now on, only reads fill the cache
	p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 3 * most})
	if err != nil || len(p.Messages) != 3*most {
		t.Fatal(len(p.Messages), err)
	}
	for i, m := range p.Messages {
		if m.Type != fmt.Sprintf("type-%d", i) || m.Priority != "normal" {
			t.Fatalf("message %d is %+v", i, m)
		}
		q := relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 1, Conversation: m.Conversation}
		if p, err := d.History(t.Context(), q); err != nil || len(p.Messages) != 1 {
			t.Fatal(m.Conversation, len(p.Messages), err)
		}
	}
	if n := d.w.Words.Text.Size(); n > names.CacheBytes {
		t.Errorf("words with %d bytes are cached by number, the bound is %d", n, names.CacheBytes)
	}
	if n := d.w.Words.ID.Size(); n > names.CacheBytes {
		t.Errorf("words with %d bytes are cached by text, the bound is %d", n, names.CacheBytes)
	}
}
