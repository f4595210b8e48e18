package db

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/retention"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// keeping makes a server with a clock that the test sets, which keeps messages for a time.
func keeping(c *setClock, age time.Duration, more ...func(*Options)) []func(*Options) {
	return append([]func(*Options){c.tells, func(o *Options) { o.Retention = age }}, more...)
}

// mustReach waits until a query gives no more than a number.
func mustReach(t *testing.T, d *DB, what, query string, most int64) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if scalar(t, d, query) <= most {
			return
		}
	}
	t.Fatalf("%s: more than %d", what, most)
}

// scalar reads a number.
func scalar(t *testing.T, d *DB, query string) (n int64) {
	t.Helper()
	err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) (err error) {
		n, err = x.C.Number(query)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// counted counts the rows of all tables of a file, and its pages.
func counted(t *testing.T, d *DB) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
		var names []string
		r := x.C.Query("SELECT name FROM sqlite_schema WHERE type = 'table'")
		for r.Next() {
			names = append(names, r.Text(0))
		}
		if err := r.Close(); err != nil {
			return err
		}
		for _, name := range names {
			n, err := x.C.Number("SELECT count(*) FROM " + name)
			if err != nil {
				return err
			}
			all[name] = n
		}
		n, err := x.C.Number("PRAGMA page_count")
		all["pages"] = n
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Over twenty times the age at which messages are removed, nothing in the file grows,
// whatever clients bring: types and labels of their own, Idempotency-Keys, conversations,
// acknowledgements, claims, limits, pushes, messages that expire, Mechas and keys that come
// and go.
func TestTheFileStaysAsLargeAsItIs(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine works through many periods")
	}
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	const age = 30 * time.Hour // longer than all that keeps a row for a time of its own
	d := openHere(t, keeping(c, age, func(o *Options) {
		o.Path, o.KeepExpired = filepath.Join(scratch.Memory(t), "relay.db"), time.Hour
	})...)
	alice, bob := mustIssue(t, d, "alice^demo"), mustIssue(t, d, "bob^demo")
	const steps = 5
	half := scratch.Amount(t, 3, 10)
	var early, late map[string]int64
	grows := []string{"participant", "push", "receipt", "progress", "attempt", "conversation_limit"} // in addition to the rows of each message
	for period := range 2 * half {
		for step := range steps {
			name := fmt.Sprintf("%d-%d", period, step)
			guest := mustIssue(t, d, relay.Address("guest"+name+"^demo"))
			mustLive(t, d, c, [3]*relay.Key{alice, bob, guest}, period*steps+step)
			for _, table := range grows {
				if scalar(t, d, "SELECT count(*) FROM "+table) == 0 {
					t.Errorf("%s has no rows in period %d", table, period)
				}
			}
			if err := d.RemoveMecha(&relay.RemoveMecha{At: c.now(), Address: guest.Mecha.Address}); err != nil {
				t.Fatal(err)
			}
			for range 6 { // as time does, it passes in small steps
				c.pass(age / steps / 6)
				mustRun(t, d)
			}
			due := relay.PositionAt(c.now().Add(-age - 2*age/24))
			if n := scalar(t, d, fmt.Sprintf("SELECT count(*) FROM message WHERE position < %d", due)); n != 0 {
				t.Fatalf("%d messages are left that should have gone", n)
			}
		}
		if now := counted(t, d); period == half-1 {
			early = now
		} else if period == 2*half-1 {
			late = now
		}
	}
	for table, n := range early {
		if late[table] > n+n/4+8 {
			t.Errorf("%s: %d rows after %d periods, %d after twice as many", table, n, half, late[table])
		}
	}
	t.Logf("after %d %v", half, early)
	t.Logf("after %d %v", 2*half, late)
	path := d.w.Path
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, said, r := checked(t, path); r.Faults > 0 {
		t.Error(said)
	}
}

// mustLive does what clients do in a step of time: the three send, acknowledge and claim.
func mustLive(t *testing.T, d *DB, c *setClock, keys [3]*relay.Key, step int) {
	t.Helper()
	alice, bob, guest := keys[0], keys[1], keys[2]
	for i := range 8 {
		m := message(alice, "bob^demo", fmt.Sprintf(`{"text":"%0900d"}`, i))
		m.At, m.Type, m.Nonce = c.now(), fmt.Sprint("type-", step, "-", i), relay.NonceHash(step*10+i+1)
		switch i % 4 {
		case 0:
			m.Conversation = relay.ConversationID(fmt.Sprint("label-", step, "-", i))
		case 1:
			m.ExpiresAt = c.now().Add(time.Minute)
		case 2:
			m.Key, m.Idempotency = guest.Number, d.IdempotencyKey(guest.Mecha.Number, fmt.Sprint(step, "-", i), m.Payload)
		case 3:
			m.MaxMessages, m.AckBy = 5, c.now().Add(time.Minute)
		}
		sent, err := d.Send(m)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := d.w.IDs.MessagePosition(sent.ID)
		d.Pushed(bob.Number, c.now(), []relay.Position{p})
		for _, status := range map[int][]string{0: {"completed"}, 2: {"processing", "completed"}, 3: {"processing", relay.Deferred}}[i%4] {
			ack := &relay.Acknowledge{At: c.now(), Key: bob.Number, ID: sent.ID, Status: status, ClientTS: "2026-01-01T00:00:00Z", Nonce: m.Nonce + 1<<40}
			if status == relay.Deferred { // until long after its removal: else the messages are all given up before that
				ack.RetryAfter = 100 * time.Hour
			}
			if _, err := d.Acknowledge(ack); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := d.ClaimMessages(t.Context(), &relay.ClaimMessages{At: c.now(), Key: bob.Number, Limit: 2, Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
}

// A clock that jumps ahead removes nothing at first, and says so. If it is set back, all
// is as it was. If it stays, it is believed after a while.
func TestAClockThatJumpsRemovesNothingAtFirst(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while it runs": false, "over a start": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, log := &setClock{}, make(lines, 1000)
			c.shown.Store(time.Now().UnixMilli())
			d := openHere(t, keeping(c, 24*time.Hour, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })...)
			k := mustIssue(t, d, "a^b")
			for range 5 {
				m := message(k, "a^b", `{}`)
				m.At = c.now()
				if _, err := d.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			c.pass(time.Hour)
			mustRun(t, d)
			if n := scalar(t, d, "SELECT value FROM setting WHERE name = 'clock'"); n != c.now().UnixMilli() {
				t.Fatalf("the known time is %d", n)
			}
			count := func() int64 { return counted(t, d)["message"] }
			jump := func(by time.Duration) {
				c.set(by)
				if restart {
					path := d.w.Path
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
					d = openHere(t, keeping(c, 24*time.Hour, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) }, func(o *Options) { o.Path = path })...)
				}
			}
			jump(365 * 24 * time.Hour)
			c.pass(time.Hour)
			log.await(t, "the clock is ahead of what the store has seen")
			c.pass(retention.MaxDoubt - 2*time.Hour)
			mustRun(t, d)
			if n := count(); n != 5 {
				t.Fatalf("%d messages are left", n)
			}
			jump(-365 * 24 * time.Hour)
			mustRun(t, d)
			if n := count(); n != 5 {
				t.Fatalf("%d messages are left after it was set back", n)
			}
			jump(365 * 24 * time.Hour)
			for range 40 {
				c.pass(time.Hour)
				mustRun(t, d)
			}
			log.await(t, "the clock has not been set back")
			mustReach(t, d, "messages", "SELECT count(*) FROM message", 0)
		})
	}
}

// Nonces of removed messages and of their receipts are refused after a start that finds
// no ring, as if the messages were there.
func TestNoncesOutliveTheirMessages(t *testing.T) {
	t.Parallel()
	d, c := openSetClock(t)
	k := mustIssue(t, d, "a^b")
	m := message(k, "a^b", `{}`)
	m.At, m.Nonce = c.now(), 77
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Acknowledge(&relay.Acknowledge{At: c.now(), Key: k.Number, ID: sent.ID, Status: "completed", ClientTS: "2026-01-01T00:00:00Z", Nonce: 79}); err != nil {
		t.Fatal(err)
	}
	c.pass(time.Minute)
	out, err := d.Apply(&relay.PruneMessages{At: c.now(), Before: relay.MaxPosition, Limit: 10})
	if err != nil || out.(relay.Pruned).Messages != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	path := d.w.Path
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path + "-nonces"); err != nil {
		t.Fatal(err)
	}
	d = openHere(t, c.tells, func(o *Options) { o.Path = path })
	for _, nonce := range []relay.NonceHash{77, 79} {
		if err := d.Replays.Used.Claim(nonce, c.now(), c.now().Add(time.Minute)); relay.ErrorCode(err) != relay.NonceReused {
			t.Errorf("%d: %v", nonce, err)
		}
	}
}

// An expired message is removed some time after its receipt was told, and not before.
func TestAnExpiredMessageGoesAfterItsReceipt(t *testing.T) {
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	d := openHere(t, c.tells, func(o *Options) { o.KeepExpired = time.Second })
	told := make(chan relay.Change, 10)
	d.OnCommit(func(b *relay.Commit) {
		for _, change := range b.Changes {
			told <- change
		}
	})
	k := mustIssue(t, d, "a^b")
	m := message(k, "a^b", `{}`)
	m.At, m.ExpiresAt = c.now(), c.now().Add(time.Minute)
	if _, err := d.Send(m); err != nil {
		t.Fatal(err)
	}
	c.pass(2 * time.Minute)
	if change := <-told; !change.New || change.State != relay.Expired {
		t.Fatalf("%+v", change)
	}
	if n := counted(t, d)["message"]; n != 1 {
		t.Fatal("it went with its receipt")
	}
	c.pass(2 * time.Minute)
	mustReach(t, d, "messages", "SELECT count(*) FROM message", 0)
	if len(told) > 0 {
		t.Errorf("further changes: %+v", <-told)
	}
}

// A command without a server removes messages itself. While a server runs, the command
// has the server do so, and the file gets shorter.
func TestAPruneBesideAServerAndWithout(t *testing.T) {
	t.Parallel()
	for _, served := range []bool{true, false} {
		t.Run(fmt.Sprint("served ", served), func(t *testing.T) {
			d := openHere(t, func(o *Options) { o.Serve = true })
			k := mustIssue(t, d, "a^b")
			messages := scratch.Amount(t, 200, 400)
			for i := range messages {
				m := message(k, "a^b", `{"text":"`+strings.Repeat("x", 30_000)+`"}`)
				if i%100 == 99 {
					m.Idempotency = d.IdempotencyKey(k.Mecha.Number, fmt.Sprint(i), nil)
				}
				if _, err := d.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			before := time.Now().Add(time.Second)
			if !served {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
			in, err := look.Inspect(d.w.Path)
			if err != nil {
				t.Fatal(err)
			}
			would, err := in.Prunable(t.Context(), before, time.Now())
			in.Close()
			if err != nil || would.Messages != messages-messages/100 || would.Kept != messages/100 {
				t.Errorf("it would remove %+v, %v", would, err)
			}
			did, err := Prune(t.Context(), d.w.Path, d.w.Opts.Schema, before, func(PruneResult) {})
			if err != nil || did != (PruneResult{int64(would.Messages), would.Bytes, int64(would.Kept)}) {
				t.Errorf("it removed %+v, %v", did, err)
			}
			if served {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if size := fileSize(d.w.Path); size > 3<<20 {
				t.Errorf("the file has %d bytes", size)
			}
			if _, said, r := checked(t, d.w.Path); r.Faults > 0 || int(r.Messages) != messages/100 {
				t.Errorf("%d messages; %s", r.Messages, said)
			}
		})
	}
}

// retentionState is a local write that checks whether the removal has nothing left to do.
type retentionState struct {
	*retention.Retention
	idle bool
}

func (s *retentionState) Size() int { return 0 }

func (s *retentionState) Apply(*engine.Tx) error {
	s.idle = s.Rests()
	return nil
}

// mustRun waits until the removal has done what is due.
func mustRun(t *testing.T, d *DB) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		s, done := &retentionState{Retention: d.Retention}, make(chan error, 1)
		d.w.Submit(s, 0, func(err error) { done <- err })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if s.idle {
			return
		}
	}
	t.Fatal("the removal does not come to an end")
}

// ahead returns by how much a player's clock is ahead when it removes messages.
func (p *player) ahead() time.Duration {
	return []time.Duration{time.Second, time.Minute, 2 * time.Hour, 30 * time.Hour}[p.random.IntN(4)]
}

// prune removes some messages, and what removed ones have left.
func (p *player) prune(now time.Time) error {
	_, err := p.d.Apply(&relay.PruneMessages{At: now, Before: relay.PositionAt(now.Add(-time.Second)), Limit: 1 + p.random.IntN(20)})
	if err == nil && p.random.IntN(2) == 0 {
		_, err = p.d.Apply(&relay.PruneMessages{At: now, ExpiredBefore: now, Limit: 5})
	}
	if err == nil {
		_, err = p.d.Apply(&relay.PruneUnused{At: now, EmptySince: now.Add(-time.Duration(p.random.IntN(1000)) * time.Millisecond), Limit: 1 + p.random.IntN(50)})
	}
	return err
}

// checked checks a file. It returns the names of the checks that found faults, and these.
func checked(t *testing.T, path string) (names []string, said string, r file.CheckResult) {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	r, err = file.Check(t.Context(), file.CheckOptions{Path: path, Schema: string(schema), Report: func(f file.Finding) {
		if f.Faults > 0 && !f.Warning {
			names, said = append(names, f.Check), said+f.Check+": "+strings.Join(f.Examples, "; ")+"\n"
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return names, said, r
}
