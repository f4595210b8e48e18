package db

import (
	"sync/atomic"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// Copies that apply their entries in different transactions tell the same hash for a mark.
func TestPlace(t *testing.T) {
	t.Parallel()
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{}, func(d *DB) { replicated(d.w).Follow.MaxBatch = 1 }).found()
	b := newNode(t, l, "b", Options{}, func(d *DB) { replicated(d.w).Follow.MaxBatch = 500 }).copyOf(a)
	if p := a.Place(); p.Applied != 0 || p.Log != b.Place().Log {
		t.Errorf("at first: %+v, %+v", p, b.Place())
	}
	b.stop()
	k := a.issue("bob^demo")
	for l.length() < replication.MarkEvery {
		a.SendThen(a.message(k, 0), func(relay.Sent, error) {})
		a.mustSend(k, 0)
		l.set(func() { l.add(l.entries[len(l.entries)-1].Data) }) // applied once, but a number of its own
	}
	for range 10 {
		a.mustSend(k, 0)
	}
	a.catchUp()
	b.start()
	b.catchUp()
	if p, q := a.Place(), b.Place(); p != q || p.Mark != replication.MarkEvery || p.MarkHash == 0 || p.MarkHash == p.Hash || p.Applied != l.length() {
		t.Errorf("%+v and %+v, want the same place, and its mark", p, q)
	}
	b.stop()
	b.start()
	if p := b.Place(); p.Applied != l.length() || p.Mark != 0 {
		t.Errorf("after a new start: %+v", p)
	}
	alone := mustOpenAlone(t)
	if p := alone.Place(); p != (file.Place{}) {
		t.Errorf("without a log: %+v", p)
	}
}

func mustOpenAlone(t *testing.T) *DB {
	t.Helper()
	n := newNode(t, newTestLog(1), "alone", Options{}, nil)
	o := n.options
	o.Path, o.Log, o.Create = scratch.Memory(t)+"/alone.db", nil, true
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// A node that is cut off proposes nothing, and takes what waits once it is cut off no more.
func TestReplicasProposeNothingWhileTheyAreCutOff(t *testing.T) {
	t.Parallel()
	var fresh atomic.Bool
	fresh.Store(true)
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{Gate: gate{fresh: fresh.Load}}, func(d *DB) {
		replicated(d.w).Propose.Timeouts.Poll = time.Millisecond
	}).found()
	k := a.issue("bob^demo")
	fresh.Store(false)
	before := l.length()
	queued := &replicated(a.w).Propose.Timeouts.Queued // only the goroutine that sends reads it
	usual := *queued
	*queued = 50 * time.Millisecond
	_, err := a.Send(a.message(k, 0))
	a.want(relay.Overloaded, err)
	l.wantLength(t, before)
	*queued = usual
	fresh.Store(true)
	a.mustSend(k, 0)
	a.catchUp()
	a.stop()
	wantMessages(a, 1)
}
