package db

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/internal/replays"
	"relay/db/relay"
	"relay/db/ring"
)

// setClock is a clock that the test sets, independently of the time that passes.
type setClock struct{ shown, passed atomic.Int64 } // ms

func (c *setClock) now() time.Time { return time.UnixMilli(c.shown.Load()).UTC() }

// set puts the clock ahead or, if by is negative, back. No time passes.
func (c *setClock) set(by time.Duration) { c.shown.Add(by.Milliseconds()) }

func (c *setClock) pass(d time.Duration) {
	c.set(d)
	c.passed.Add(d.Milliseconds())
}

func openSetClock(t *testing.T, options ...func(*Options)) (*DB, *setClock) {
	t.Helper()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	return openHere(t, append(options, c.tells)...), c
}

// tells makes a store serve by this clock, and by its time that passes.
func (c *setClock) tells(o *Options) {
	o.Now, o.Serve = c.now, true
	o.passed = func() time.Duration { return time.Duration(c.passed.Load()) * time.Millisecond }
}

// Messages are in the order in which they were accepted, even if the clock is set. Times
// never decrease along that order, and cursors stay valid.
func TestTheOrderHoldsThoughTheClockIsSet(t *testing.T) {
	t.Parallel()
	d, c := openSetClock(t)
	k := mustIssue(t, d, "a^b")
	var told []relay.MessageID
	send := func() {
		m := message(k, "a^b", `{}`)
		m.At = c.now()
		sent, err := d.Send(m)
		if err != nil {
			t.Fatal(err)
		}
		told = append(told, sent.ID)
	}
	for i, jump := range []time.Duration{0, time.Hour, -2 * time.Hour, 0, 30 * 24 * time.Hour, -31 * 24 * time.Hour, time.Minute, 0} {
		c.set(jump)
		for range 10 {
			send()
		}
		if i%2 == 1 { // a restart has only the file
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			path := d.w.Path
			d = openHere(t, c.tells, func(o *Options) { o.Path = path })
		}
	}
	var listed []relay.MessageID
	page := relay.Page{Next: ""}
	for before := (time.Time{}); ; {
		next, err := d.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 7, After: page.Next})
		if err != nil {
			t.Fatal(err)
		}
		page = next
		for _, m := range page.Messages {
			if m.CreatedAt.Before(before) {
				t.Errorf("%s was created at %v, after one of %v", m.ID, m.CreatedAt, before)
			}
			listed, before = append(listed, m.ID), m.CreatedAt
		}
		if !page.More {
			break
		}
	}
	if !slices.Equal(listed, told) {
		t.Errorf("told of %d, listed %d, or in another order", len(told), len(listed))
	}
}

// An expired message stays expired.
func TestWhatExpiredByAWrongClockStaysExpired(t *testing.T) {
	t.Parallel()
	expired := make(chan relay.MessageID, 1)
	d, c := openSetClock(t)
	d.OnCommit(func(b *relay.Commit) {
		for _, change := range b.Changes {
			expired <- change.ID
		}
	})
	k := mustIssue(t, d, "a^b")
	m := message(k, "a^b", `{}`)
	m.At, m.ExpiresAt = c.now(), c.now().Add(time.Hour)
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	c.set(2 * time.Hour)
	select {
	case <-expired:
	case <-time.After(time.Minute):
		t.Fatal("it does not expire")
	}
	c.set(-2 * time.Hour)
	_, err = d.Acknowledge(&relay.Acknowledge{At: c.now(), Key: k.Number, ID: sent.ID, Status: "completed", ClientTS: "2026-01-01T00:00:00Z"})
	if relay.ErrorCode(err) != relay.MessageExpired {
		t.Errorf("an ack got %v", err)
	}
	if got, err := d.Message(t.Context(), k.Mecha.Number, sent.ID); err != nil || got.State != relay.Expired {
		t.Errorf("%+v, %v", got, err)
	}
}

// The same holds for nonces that a start has read back from the file.
func TestRestoredNoncesOutliveAWrongClock(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{10 * time.Hour, -10 * time.Hour} {
		d, c := openSetClock(t)
		u := &used{key: mustIssue(t, d, "a^b"), stamp: c.now()}
		u.send(t, d, 3)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		path := d.w.Path
		d = openHere(t, c.tells, func(o *Options) { o.Path = path })
		c.set(jump)
		c.pass(2 * replays.NonceSweep)
		if _, err := d.Claim(u.key, "meanwhile", c.now()); err != nil {
			t.Fatal(err)
		}
		c.set(-jump)
		u.wantUsed(t, d)
		if d.Replays.Used.Restored.Load() == nil {
			t.Errorf("clock set by %v and back: the restored nonces are gone", jump)
		}
		c.pass(12 * time.Hour)
		if _, err := d.Claim(u.key, u.nonce(0), c.now()); err != nil {
			t.Errorf("clock set by %v and back, long ago: %v", jump, err)
		}
	}
}

// A start while the clock is wrong makes the store forget no nonce too early, with the ring
// and without it.
func TestAStartWithAWrongClockForgetsNoNonce(t *testing.T) {
	t.Parallel()
	for _, jump := range []time.Duration{2 * time.Hour, -2 * time.Hour, 20 * 24 * time.Hour} {
		for _, kept := range []bool{true, false} {
			d, c := openSetClock(t)
			u := &used{key: mustIssue(t, d, "a^b"), stamp: c.now()}
			u.send(t, d, 3)
			reads := []string{"read", "handshake"}
			for _, nonce := range reads {
				if _, err := d.Claim(u.key, nonce, c.now()); err != nil {
					t.Fatal(err)
				}
			}
			c.pass(time.Minute)
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			path := d.w.Path
			if !kept {
				if err := os.Remove(path + ring.Suffix); err != nil {
					t.Fatal(err)
				}
			}
			c.set(jump)
			d = openHere(t, c.tells, func(o *Options) { o.Path = path })
			c.pass(2 * replays.NonceSweep)
			if _, err := d.Claim(u.key, "meanwhile", c.now()); err != nil {
				t.Fatal(err)
			}
			c.set(-jump)
			u.wantUsed(t, d)
			for _, nonce := range reads {
				if _, err := d.Claim(u.key, nonce, u.stamp); kept && relay.ErrorCode(err) != relay.NonceReused {
					t.Errorf("clock wrong by %v at the start: a read got %v", jump, err)
				}
			}
			// Without the ring, the timestamps of those reads are refused. Timestamps of now
			// are accepted, though the start's clock was wrong.
			earliest := d.EarliestTimestamp(c.now())
			if refused := u.stamp.Before(earliest); refused == kept || earliest.After(c.now()) {
				t.Errorf("clock wrong by %v at the start, ring kept: %v; timestamps are accepted from %v on", jump, kept, earliest)
			}
		}
	}
}

// A clock that is wrong for a moment makes no request repeatable, and the
// nonces of that moment are forgotten in their time.
func TestNoncesOutliveAWrongClock(t *testing.T) {
	const many = 20 * replays.NonceShards // so that every shard sweeps
	for _, jump := range []time.Duration{10 * time.Hour, -10 * time.Hour} {
		d, c := openSetClock(t)
		k := mustIssue(t, d, "a^b")
		claim := func(nonce string, made time.Time) relay.Code {
			_, err := d.Claim(k, nonce, made)
			return relay.ErrorCode(err)
		}
		made := c.now()
		if code := claim("captured", made); code != "" {
			t.Fatal(code)
		}
		c.set(jump)
		c.pass(2 * replays.NonceSweep)
		for i := range many {
			if code := claim(fmt.Sprint("wrong", i), c.now()); code != "" {
				t.Fatal(code)
			}
		}
		c.set(-jump)
		if code := claim("captured", made); code != relay.NonceReused {
			t.Errorf("clock set by %v and back: a captured request got %q", jump, code)
		}
		c.pass(12 * time.Hour) // now all of these are over, however far ahead the clock was
		for i := range many {
			if code := claim(fmt.Sprint("later", i), c.now()); code != "" {
				t.Fatal(code)
			}
		}
		if n := d.Replays.Used.Count.Load(); n > many {
			t.Errorf("clock set by %v and back: %d nonces are remembered, of which %d live", jump, n, many)
		}
	}
}

// Nonces are swept though the clock was far ahead at the last sweep.
func TestAClockThatWasAheadDoesNotStopTheForgetting(t *testing.T) {
	n, c := replays.NewNonces(2, time.Now()), &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	n.Elapsed = func(time.Time) time.Duration { return time.Duration(c.passed.Load()) * time.Millisecond }
	claim := func(h relay.NonceHash) {
		t.Helper()
		if err := n.Claim(h*replays.NonceShards, c.now(), c.now().Add(time.Minute)); err != nil { // all in one shard
			t.Errorf("nonce %d got %v", h, err)
		}
	}
	c.set(365 * 24 * time.Hour)
	claim(1)
	c.set(-365 * 24 * time.Hour)
	claim(2)
	c.pass(time.Hour)
	claim(3)
}

// After the clock was ahead for one message and is right again, "until" finds messages by
// the time at which they were accepted, and Idempotency-Keys are kept for a day.
func TestHistoryByTimeGoesOnAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{2 * time.Hour, 365 * 24 * time.Hour} {
		d, c := openSetClock(t)
		k := mustIssue(t, d, "a^b")
		send := func(idempotency string) relay.Sent {
			t.Helper()
			m := message(k, "a^b", `{}`)
			m.At = c.now()
			if idempotency != "" {
				m.Idempotency = d.IdempotencyKey(k.Mecha.Number, idempotency, []byte(c.now().String()))
			}
			sent, err := d.Send(m)
			if err != nil {
				t.Fatalf("%v ahead: %v", ahead, err)
			}
			return sent
		}
		began := c.now()
		send("")
		c.set(ahead)
		send("")
		c.set(-ahead)
		const many, each = 90, 10 * time.Second // a quarter of an hour
		for range many {
			c.pass(each)
			send("")
		}
		count := func(since, until time.Time) int {
			t.Helper()
			p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Since: since, Until: until, Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			return len(p.Messages)
		}
		inMinute := int(time.Minute / each)
		for _, after := range []time.Duration{time.Second, 5 * time.Minute, 10 * time.Minute, many * each, time.Hour} {
			want := 1 + min(int((after-1)/each), many)
			for what, since := range map[string]time.Time{"from the beginning": began, "without since": {}} {
				if n := count(since, began.Add(after)); n < want || n > want+1+inMinute {
					t.Errorf("%v ahead, until %v after the beginning, %s: %d messages, want %d, or up to a minute's more", ahead, after, what, n, want)
				}
			}
		}
		if n := count(began.Add(many*each), time.Time{}); n != many+1 {
			t.Errorf("%v ahead: since the last minute: %d messages, want all whose created_at is ahead", ahead, n)
		}
		first := send("key")
		c.pass(23 * time.Hour)
		if _, known, err := d.Idempotent(t.Context(), k.Mecha.Number, d.IdempotencyKey(k.Mecha.Number, "key", nil), c.now()); !known && relay.ErrorCode(err) != relay.IdempotencyKeyReused {
			t.Errorf("%v ahead: the key is forgotten within a day: %v", ahead, err)
		}
		c.pass(2 * time.Hour)
		if again := send("key"); again.ID == first.ID {
			t.Errorf("%v ahead: the key is kept after a day", ahead)
		}
	}
}

// lines is a log whose lines a test can wait for.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }

func (l lines) await(t *testing.T, text string) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		select {
		case line := <-l:
			if strings.Contains(line, text) {
				return
			}
		case <-late:
			t.Fatalf("the log does not say %q", text)
		}
	}
}

// The log says that the clock was set, that created_at stands still, and that it advances again.
func TestTheLogTellsOfAClockThatIsSet(t *testing.T) {
	t.Parallel()
	log := make(lines, 100)
	d, c := openSetClock(t, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	k := mustIssue(t, d, "a^b")
	send := func() {
		t.Helper()
		m := message(k, "a^b", `{}`)
		m.At = c.now()
		if _, err := d.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	c.set(2 * time.Hour)
	log.await(t, "the clock was set")
	send()
	c.set(-2 * time.Hour)
	send()
	log.await(t, "created_at stands still")
	c.set(3 * time.Hour)
	send()
	log.await(t, "created_at advances again")
}
