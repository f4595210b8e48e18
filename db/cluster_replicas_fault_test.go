package db

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
	"relay/db/replication"
)

// A node applies everything before an entry that it cannot read, and stops there, as each other
// node does. A caller that waits for a write before that entry gets its outcome; one that waits
// for a later write learns that the outcome is unknown.
func TestReplicasEndAllWaitersAtAnEntryThatTheyCannotRead(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	a.log.cut.Lock()
	before, behind := make(chan error, 1), make(chan error, 1)
	a.SendThen(a.message(k, 0), func(_ relay.Sent, err error) { before <- err })
	l.waitForLength(2, nil)
	l.set(func() { l.add([]byte("nonsense")) })
	a.SendThen(a.message(k, 0), func(_ relay.Sent, err error) { behind <- err })
	l.waitForLength(4, nil)
	l.mu.Lock()
	all := append([]replication.Entry(nil), l.entries[1:]...)
	l.mu.Unlock()
	if err := replicated(a.w).Follow.Deliver(all); err != nil { // at once, while Follow waits for the cut to end
		t.Fatal(err)
	}
	a.log.cut.Unlock()
	a.want("", <-before)
	a.want(relay.StoreFailed, <-behind)
	a.wantFatal(replication.ErrEnvelope)
	b.wantFatal(replication.ErrEnvelope)
	_, err := a.Send(a.message(k, 0))
	a.want(relay.StoreFailed, err)
	l.wantLength(t, 4)
	a.stop()
	b.stop()
	wantMessages(a, 1)
	wantMessages(b, 1)
}

// wantLength fails the test unless the log has so many entries.
func (l *testLog) wantLength(t *testing.T, want uint64) {
	t.Helper()
	if got := l.length(); got != want {
		t.Errorf("the log has %d entries, want %d", got, want)
	}
}

// A node whose disk is full cannot tell the outcome of a write that is in the log already. It
// refuses further ones before the log, as long as the disk is full.
func TestReplicasRefuseWritesBeforeTheLogWhileTheirDiskIsFull(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	sent := a.mustSend(k, 0)
	b.catchUp()
	b.limitPages(0)
	large := b.message(k, 1)
	large.Payload = []byte(`{"a":"` + strings.Repeat("x", 100_000) + `"}`)
	if err := large.Validate(); err != nil {
		t.Fatal(err)
	}
	_, err := b.Send(large)
	b.want(relay.StoreFailed, err)
	before := l.length()
	_, err = b.Send(b.message(k, 3))
	b.want(relay.DiskFull, err)
	ack := &relay.Acknowledge{At: time.Now(), Key: k.Number, ID: sent.ID, Status: "completed", ClientTS: "2026-01-01T00:00:00Z"}
	_, err = b.Acknowledge(ack)
	b.want(relay.DiskFull, err)
	l.wantLength(t, before)
	b.limitPages(1_000_000)
	b.catchUp()
	b.poke(b.w.Disk.Check)
	b.mustSend(k, 3)
	_, err = b.Acknowledge(ack)
	b.want("", err)
	wantEnd(a, b)
	wantMessages(b, 3)
}

// limitPages sets how many pages the node's file may have; at least as many as it has. Beyond
// these, SQLite finds the disk full.
func (n *node) limitPages(most int) {
	n.poke(func() {
		pages, err := n.w.C.Number("PRAGMA page_count")
		if err == nil {
			_, err = n.w.C.Number(fmt.Sprintf("PRAGMA max_page_count = %d", max(most, int(pages))))
		}
		if err != nil {
			n.Error(err)
		}
	})
}

// A node with little room refuses messages before the log, and still accepts writes that make room.
func TestReplicasRefuseMessagesBeforeTheLogWhileTheirDiskIsLow(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	b.stop()
	b.options.MinFreeDisk = math.MaxInt64
	b.start()
	k := a.issue("bob^demo")
	sent := a.mustSend(k, 0)
	b.catchUp()
	before := l.length()
	_, err := b.Send(b.message(k, 1))
	b.want(relay.DiskFull, err)
	l.wantLength(t, before)
	_, err = b.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: k.Number, ID: sent.ID, Status: "completed", ClientTS: "2026-01-01T00:00:00Z"})
	b.want("", err)
	wantEnd(a, b)
	wantMessages(b, 1)
}

// While the entries do not come back from the log, a node proposes no more than so much. Further
// writes wait in the queue, where a Mecha has its share and others have places left.
func TestReplicasProposeNoMoreThanTheyMeet(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k, other := a.issue("bob^demo"), a.issue("eve^demo")
	b.stop()
	b.prepare = func(d *DB) {
		replicated(d.w).Propose.Timeouts.Queued, replicated(d.w).Propose.Timeouts.Inflight = time.Hour, time.Hour
	}
	b.start()
	b.catchUp()
	b.log.cut.Lock()
	before, sent := l.length(), make(chan error, 2*engine.MaxQueue)
	done := func(_ relay.Sent, err error) { sent <- err }
	for i := range uint64(replication.MaxInflight) {
		b.SendThen(b.message(k, 0), done)
		l.waitForLength(before+1+i, nil)
	}
	flood := b.message(k, 0)
	flood.OnlyReplay = true // in the end each is refused, and writes no rows
	for range engine.MaxQueue / 2 {
		m := *flood
		b.SendThen(&m, done)
	}
	_, err := b.Send(b.message(k, 0))
	b.want(relay.RateLimited, err)
	b.SendThen(b.message(other, 0), done)
	l.wantLength(t, before+replication.MaxInflight)
	b.log.cut.Unlock()
	outcomes := map[relay.Code]int{}
	for range replication.MaxInflight + engine.MaxQueue/2 + 1 {
		outcomes[relay.ErrorCode(<-sent)]++
	}
	if outcomes[relay.NonceReused] != engine.MaxQueue/2 || outcomes[""] != replication.MaxInflight+1 {
		t.Errorf("once the entries come, the outcomes are %v", outcomes)
	}
	wantEnd(a, b)
	wantMessages(b, replication.MaxInflight+1)
}
