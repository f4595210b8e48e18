package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/relay"
	"relay/db/scratch"
)

// pair gives two nodes of one log; the second one has a copy of the first one's file.
func pair(t *testing.T, options ...func(*Options)) (l *testLog, a, b *node) {
	t.Helper()
	var o Options
	for _, f := range options {
		f(&o)
	}
	l = newTestLog(1)
	a = newNode(t, l, "a", o, nil).found()
	b = newNode(t, l, "b", o, nil).copyOf(a)
	return l, a, b
}

// wantEnd stops the nodes when they have all entries, and compares them.
func wantEnd(nodes ...*node) {
	nodes[0].Helper()
	for _, n := range nodes {
		n.catchUp()
		n.stop()
	}
	wantSame(nodes...)
}

// A nonce that a write at one node has used is refused at the others, also after a start,
// and also if that write was refused. Only a stored answer to an Idempotency-Key is given
// again. After the time in which the request could come again, the nonce is free.
func TestReplicasRefuseTheNoncesOfEachOther(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	b.stop()
	b.options.Now = func() time.Time { return time.Now().Add(time.Hour) }
	b.start()
	k := a.issue("bob^demo")
	b.catchUp()
	sent := a.mustSend(k, 101)
	refused := a.message(k, 103)
	refused.To = "nobody^demo"
	_, err := a.Send(refused)
	a.want(relay.RecipientNotFound, err)
	again := a.message(k, 105)
	again.Idempotency = a.IdempotencyKey(k.Mecha.Number, "once", again.Payload)
	first, err := a.Send(again)
	a.want("", err)
	if _, err := a.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: k.Number, ID: sent.ID, Status: "seen", ClientTS: "2026-01-01T00:00:00Z", Nonce: 107}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, nonce := range []relay.NonceHash{101, 103, 105, 107} {
			_, err := b.Send(b.message(k, nonce))
			b.want(relay.NonceReused, err)
		}
		_, err = b.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: k.Number, ID: sent.ID, Status: "completed", ClientTS: "2026-01-01T00:00:00Z", Nonce: 107})
		b.want(relay.NonceReused, err)
		repeated := *again
		if got, err := b.Send(&repeated); err != nil || got.ID != first.ID || !got.Replayed {
			t.Errorf("the second send with the Idempotency-Key: %+v, %v", got, err)
		}
		b.catchUp()
		b.stop()
		b.start()
	}
	l.set(func() { l.ahead = 29 * time.Minute })
	_, err = b.Send(b.message(k, 101))
	b.want(relay.NonceReused, err)
	l.set(func() { l.ahead = 36 * time.Minute })
	b.mustSend(k, 101)
	for range 10 { // each entry may remove two old ones
		b.mustSend(k, 0)
	}
	wantEnd(a, b)
	if n := len(contentsOf(t, a.options.Path, []string{"entry_nonce"})) - len(contentsOf(t, a.options.Path, nil)); n != 1 {
		t.Errorf("%d entries still have nonces, want that of the last write with one alone", n)
	}
}

// A key that another node has revoked is refused, although this node does not know it yet. A
// key ends by the log's time.
func TestReplicasRefuseAKeyThatWasRevokedBefore(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(-time.Hour) } })
	k := a.issue("bob^demo")
	short, err := a.Issue(&relay.IssueKey{At: time.Now(), Address: "bob^demo", ExpiresAt: time.Now().Add(time.Minute)})
	a.want("", err)
	b.catchUp()
	b.mustSend(k, 1)
	b.mustSend(short.Key, 3)
	b.log.cut.Lock()
	a.want("", a.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}))
	refused := make(chan error)
	go func() {
		_, err := b.Send(b.message(k, 5))
		refused <- err
	}()
	for l.length() < 6 { // until the message is in the log
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if l.length() < 6 {
			<-changed
		}
	}
	b.log.cut.Unlock()
	b.want(relay.KeyRevoked, <-refused)
	l.set(func() { l.ahead = 2 * time.Minute })
	_, err = b.Send(b.message(short.Key, 7))
	b.want(relay.KeyExpired, err)
	l.set(func() { l.ahead = -time.Hour }) // time does not fall with the log's clock
	_, err = b.Send(b.message(short.Key, 9))
	b.want(relay.KeyExpired, err)
	wantEnd(a, b)
}

// Rows that one node has alone take no place in the common order, also if its clock is ahead
// and it starts again.
func TestReplicasCountTheirOwnRowsApart(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	k := a.issue("bob^demo")
	b.catchUp()
	for range 2 {
		saved := make(chan error)
		ahead := time.Now().Add(time.Hour)
		b.Pushed(k.Number, ahead, []relay.Position{relay.PositionAt(ahead)})
		b.SaveSearch(&SaveSearch{At: ahead, ID: relay.NewSearchID(), Mecha: k.Mecha.Number, Answer: []byte("{}")}, func(err error) { saved <- err })
		b.want("", <-saved)
		b.mustSend(k, 0)
		b.catchUp()
		b.stop()
		b.start()
	}
	a.mustSend(k, 0)
	wantEnd(a, b)
}

// A node that cannot write leaves no entry out: it goes on when it can. Who waits for an
// outcome meanwhile learns that it is unknown.
func TestReplicasLeaveNoEntryOut(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t, func(o *Options) { o.LockWait = time.Millisecond })
	k := a.issue("bob^demo")
	b.catchUp()
	free := b.occupy()
	a.mustSend(k, 1)
	_, err := b.Send(b.message(k, 3))
	b.want(relay.StoreFailed, err)
	a.mustSend(k, 5)
	free()
	b.catchUp()
	wantEnd(a, b)
	if n := len(contentsOf(t, b.options.Path, []string{"message"})) - len(contentsOf(t, b.options.Path, nil)); n != 3 {
		t.Errorf("it has %d messages, want 3", n)
	}
}

// A write that the log does not take is refused, and was not written. If the log does not
// answer, the outcome is unknown: the write may come into the log later. Then it is applied
// once, or not at all if the node has gone on behind it.
func TestReplicasSayWhatTheyKnow(t *testing.T) {
	t.Parallel()
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{}, func(d *DB) {
		d.w.propose.patience = patience{queued: 20 * time.Millisecond, flight: 100 * time.Millisecond, again: time.Millisecond, most: time.Millisecond, look: time.Millisecond, closing: time.Millisecond}
	}).found()
	k := a.issue("bob^demo")
	l.set(func() { l.refuses = true })
	outcomes := [2]chan error{make(chan error, 1), make(chan error, 1)}
	for i, nonce := range []relay.NonceHash{1, 3} {
		a.SendThen(a.message(k, nonce), func(_ relay.Sent, err error) { outcomes[i] <- err })
		for i == 0 && !a.isUnderWay() {
			<-time.After(time.Millisecond) // it is handed to the log within a moment
		}
	}
	a.want(relay.Overloaded, <-outcomes[1])
	a.want(relay.StoreFailed, <-outcomes[0])
	l.set(func() { l.refuses = false })
	a.mustSend(k, 0)
	last := l.length()
	e, err := readEnvelope(l.entries[last-1].Data)
	if err != nil || e.counter != 3 || len(e.writes) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	lost := formOf(envelope{origin: e.origin, counter: e.counter - 1, writes: e.writes})
	l.set(func() { l.add(lost); l.add(l.entries[last-1].Data) }) // one too late, one again
	a.catchUp()
	a.mustSend(k, 7)
	// On a close without an answer.
	l.set(func() { l.refuses = true })
	a.SendThen(a.message(k, 9), func(_ relay.Sent, err error) { outcomes[0] <- err })
	a.stop()
	if code := relay.ErrorCode(<-outcomes[0]); code != relay.StoreFailed && code != relay.ShuttingDown {
		t.Errorf("when the store closes: %s", code)
	}
	if n := len(contentsOf(t, a.options.Path, []string{"message"})) - len(contentsOf(t, a.options.Path, nil)); n != 2 {
		t.Errorf("it has %d messages, want 2", n)
	}
}

func (n *node) isUnderWay() bool {
	n.w.propose.mu.Lock()
	defer n.w.propose.mu.Unlock()
	return len(n.w.propose.flights) > 0
}

// A request that is longer than an entry can be is refused, alone.
func TestReplicasRefuseWhatNoEntryHolds(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	k := a.issue("bob^demo")
	m := a.message(k, 1)
	m.Payload = []byte(`{"a":"` + strings.Repeat("x", mostForm) + `"}`)
	_, err := a.Send(m)
	a.want(relay.PayloadTooLarge, err)
	m = a.message(k, 3)
	m.Payload = []byte(`{"a":"` + strings.Repeat("x", mostForm-1000) + `"}`)
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Send(m)
	a.want("", err)
	wantEnd(a, b)
}

// The store's own work comes from the log, from the nodes whose part it is.
func TestReplicasLeaveTheirOwnWorkToOne(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t, func(o *Options) { o.Retention, o.By = time.Hour, relay.Actor{UID: 1, User: "maria"} })
	k := a.issue("bob^demo")
	m := a.message(k, 1)
	m.ExpiresAt, m.AckBy = m.At.Add(time.Minute), m.At.Add(time.Second)
	if _, err := a.Send(m); err != nil {
		t.Fatal(err)
	}
	overdue, expired := l.waitFor("*relay.NoteOverdue"), l.waitFor("*relay.ExpireDue")
	b.catchUp()
	if l.length() != 2 {
		t.Errorf("%d entries, though nobody keeps the store", l.length())
	}
	// The node's clock is right, and the log's is ahead: what is due is decided by the log's.
	l.set(func() { l.ahead = 2 * time.Minute })
	b.w.enqueue(&choreJob{poke{}, func(error) {
		b.w.expiry.next, b.w.overdue.next = 1, 1 // as when the clock has come there
	}}, 0)
	b.keep(true)
	<-overdue
	<-expired
	wantEnd(a, b)
	state := 0
	c := contentsOf(t, a.options.Path, []string{"message"})
	for _, row := range c {
		if strings.HasPrefix(row, "message ") && strings.Contains(row, ", 0, 3, ") {
			state = 3
		}
	}
	if state != 3 {
		t.Errorf("the message has not expired:\n%s", strings.Join(c, "\n"))
	}
}

// Messages are removed by the log, from the node that keeps it, and the audit log of all copies
// says so.
func TestReplicasRemoveMessagesTogether(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t, func(o *Options) { o.Retention, o.By = 300*time.Millisecond, relay.Actor{UID: 1, User: "maria"} })
	k := a.issue("bob^demo")
	audited := l.waitFor("*relay.Act") // the first is of the key
	<-audited
	for range 5 {
		b.mustSend(k, 0)
	}
	b.keep(true)
	b.until(func() bool { return b.Measures().Removed.Load() == 5 })
	b.until(func() bool { return kindsOfAll(l, b.w.propose.origin)["*relay.Act"] > 0 })
	b.keep(false)
	for range 2 { // pieces that were begun are ended
		b.catchUp()
		a.catchUp()
	}
	if kinds := kindsOfAll(l, a.w.propose.origin); kinds["*relay.PruneMessages"]+kinds["*relay.PruneUnused"] > 0 {
		t.Errorf("a node that does not keep the log has proposed %v", kinds)
	}
	b.stop()
	wantEnd(a)
	b.start()
	wantEnd(b)
	wantSame(a, b)
	if n := len(contentsOf(t, a.options.Path, []string{"message"})) - len(contentsOf(t, a.options.Path, nil)); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// until waits until a condition holds, which it looks at whenever the node has applied entries.
func (n *node) until(holds func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for !holds() && n.fatal == nil {
		n.changed.Wait()
	}
}

// kindsOfAll counts the writes of all entries of an origin.
func kindsOfAll(l *testLog, from origin) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for _, e := range l.entries {
		if env, err := readEnvelope(e.Data); err == nil && env.origin == from {
			for kind, n := range kindsOf(e) {
				all[kind] += n
			}
		}
	}
	return all
}

// poke is a chore that does nothing.
type poke struct{}

func (poke) apply(*tx) error { return nil }
func (poke) size() int       { return 0 }

// waitFor gives a channel that is closed when the log has a write of a type.
func (l *testLog) waitFor(kind string) <-chan struct{} {
	found := make(chan struct{})
	go func() {
		for seen := 0; ; {
			l.mu.Lock()
			changed, entries := l.changed, l.entries[seen:]
			l.mu.Unlock()
			for _, e := range entries {
				seen++
				if kindsOf(e)[kind] > 0 {
					close(found)
					return
				}
			}
			<-changed
		}
	}()
	return found
}

// Nobody but the server that follows the log may write to the file of a node, and a node
// begins with the file of another one.
func TestReplicasAreWrittenByTheirServersAlone(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	a.issue("bob^demo")
	wantEnd(a, b)
	path := a.options.Path
	without := a.options
	without.Log = nil
	command := without
	command.Serve = false
	notServing := a.options
	notServing.Serve = false
	again := a.options
	again.FoundLog = true
	for what, o := range map[string]Options{"a server without a log": without, "a command": command} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "several copies that follow a log") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, o := range map[string]Options{"a command with the log": notServing, "founding again": again} {
		if _, err := Open(o); err == nil {
			t.Errorf("%s was let in", what)
		}
	}
	if _, err := file.Compact(t.Context(), file.CompactOptions{Path: path, Schema: without.Schema}); err == nil || !strings.Contains(err.Error(), "follow a log") {
		t.Errorf("relay compact: %v", err)
	}
	before := a.rows()
	copied := filepath.Join(scratch.Memory(t), "copy.db")
	if _, err := file.Backup(t.Context(), file.BackupOptions{From: path, To: copied, Schema: without.Schema}); err != nil {
		t.Fatal(err)
	}
	o := file.RestoreOptions{BackupOptions: file.BackupOptions{From: copied, To: path, Schema: without.Schema, Replace: true}, By: relay.Actor{UID: 1, User: "maria"}}
	if _, err := file.Restore(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if after := a.rows(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("the restored copy differs from its backup:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	o.RevokeNewer = true
	if _, err := file.Restore(t.Context(), o); err == nil {
		t.Error("a restore was to end keys in one copy alone")
	}
	other := newNode(t, a.log.testLog, "other", Options{Create: true}, nil)
	if err := other.tryToStart(); err == nil || !strings.Contains(err.Error(), "follows no log") {
		t.Errorf("a node with a file of its own: %v", err)
	}
	if _, err := os.Stat(copied); err != nil {
		t.Fatal(err)
	}
	a.start()
	wantEnd(a, b)
}

// A copy stops rather than leave an entry out, and says why.
func TestReplicasStopWhereTheyCannotGoOn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		spoil func(*testLog)
		want  error
	}{
		"the log has forgotten entries": {func(l *testLog) { l.first = 9 }, ErrLogTruncated},
		"the log has lost entries":      {func(l *testLog) { l.entries = l.entries[:1] }, ErrLogBehind},
		"an entry cannot be read":       {func(l *testLog) { l.add([]byte("nonsense")) }, errEnvelope},
		"a later version": {func(l *testLog) {
			l.add(append([]byte{envelopeVersion + 1}, l.entries[0].Data[1:]...))
		}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			l, a, b := pair(t)
			k := a.issue("bob^demo")
			b.catchUp()
			b.stop()
			for range 10 {
				a.mustSend(k, 0)
			}
			if what == "the log has lost entries" {
				b.start()
				b.catchUp()
				b.stop()
			}
			a.stop()
			l.set(func() { c.spoil(l) })
			b.start()
			b.wantFatal(c.want)
		})
	}
	l, a, b := pair(t)
	a.issue("bob^demo")
	b.catchUp()
	b.stop()
	byHand := b.execute("UPDATE replica SET version = 99")
	if err := b.tryToStart(); err == nil || !strings.Contains(err.Error(), "newer relay") {
		t.Errorf("%v, after %v", err, byHand)
	}
	// Somebody has changed the place while the node was at work.
	if err := b.execute("UPDATE replica SET version = 1"); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := b.execute("UPDATE replica SET applied = applied + 1"); err != nil {
		t.Fatal(err)
	}
	a.issue("eve^demo")
	b.wantFatal(nil)
	if l.length() != 2 || !errors.Is(b.Failed(), b.fatal) {
		t.Error(l.length(), b.Failed())
	}
}
