package db

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
	"relay/db/replication"
)

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
	for range 2 { // before the second transaction, the rooms have seen what is due
		b.poke(func() { b.Progress.Expect(1, 1) }) // as when its clock has come there
	}
	b.mustSend(k, 0)
	if kinds := kindsOfAll(l, replicated(b.w).Propose.Origin); len(kinds) != 1 {
		t.Errorf("though it does not keep the log, it has proposed %v", kinds)
	}
	// The log's time decides what is due.
	l.set(func() { l.ahead = 2 * time.Minute })
	b.keep(true)
	<-overdue
	<-expired
	wantEnd(b, a) // b, which may still do other work of the store, stops first
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
	b.until(func() bool { return kindsOfAll(l, replicated(b.w).Propose.Origin)["*relay.Act"] > 0 })
	b.keep(false)
	for range 2 { // pieces that were begun are ended
		b.catchUp()
		a.catchUp()
	}
	if kinds := kindsOfAll(l, replicated(a.w).Propose.Origin); kinds["*relay.PruneMessages"]+kinds["*relay.PruneUnused"] > 0 {
		t.Errorf("a node that does not keep the log has proposed %v", kinds)
	}
	b.stop()
	wantEnd(a)
	b.start()
	wantEnd(b)
	wantSame(a, b)
	wantMessages(a, 0)
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
func kindsOfAll(l *testLog, from replication.Origin) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]int{}
	for _, e := range l.entries {
		if env, err := replication.ReadEnvelope(e.Data); err == nil && env.Origin == from {
			for kind, n := range kindsOf(e) {
				all[kind] += n
			}
		}
	}
	return all
}

// poke calls f on the writer's goroutine, after a transaction.
func (n *node) poke(f func()) {
	done := make(chan struct{})
	n.w.Enqueue(&engine.LocalJob{LocalWrite: poke{}, Done: func(error) {
		f()
		close(done)
	}}, 0)
	<-done
}

// waitFor returns a channel that is closed when the log has a write of a type.
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

// A node notes its removals in the audit log once an hour, and the rest when it stops.
func TestReplicasNoteAtAStopWhatTheyHaveRemoved(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t, func(o *Options) { o.Retention, o.By = 300*time.Millisecond, relay.Actor{UID: 1, User: "maria"} })
	k := a.issue("bob^demo")
	b.keep(true)
	for round := range int64(2) {
		for range 5 {
			b.mustSend(k, 0)
		}
		for n := l.length(); ; n = l.length() {
			b.catchUp()
			b.poke(func() {}) // so the outcomes of these entries are known
			if b.Measures().Removed.Load() == 5*(round+1) && len(notesOf(l, replicated(b.w).Propose.Origin)) > 0 {
				break
			}
			l.waitForLength(n+1, nil)
		}
	}
	from := replicated(b.w).Propose.Origin
	b.stop()
	b.keep(false)
	removed, notes := 0, notesOf(l, from)
	for _, detail := range notes {
		n := 0
		if _, err := fmt.Sscanf(detail, "%d messages", &n); err != nil {
			t.Errorf("%q: %v", detail, err)
		}
		removed += n
	}
	if removed != 10 || len(notes) != 2 {
		t.Errorf("10 messages were removed; the log says %q", notes)
	}
	b.start()
	wantEnd(a, b)
}

// notesOf returns the details of the acts of an origin.
func notesOf(l *testLog, from replication.Origin) (details []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		env, err := replication.ReadEnvelope(e.Data)
		if err != nil || env.Origin != from {
			continue
		}
		for _, w := range env.Writes {
			if act, ok := w.(*relay.Act); ok {
				details = append(details, act.Detail)
			}
		}
	}
	return details
}
