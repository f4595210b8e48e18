package db

import (
	"testing"

	"relay/db/relay"
)

// A node applies all that stands before an entry that it cannot read, and stops there, as
// each other node does. Who waits for a write before that entry gets its outcome; who waits for
// one behind it learns that the outcome is unknown.
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
	all := append([]LogEntry(nil), l.entries[1:]...)
	l.mu.Unlock()
	if err := a.w.follow.deliver(all); err != nil { // at once, while Follow waits for the cut to end
		t.Fatal(err)
	}
	a.log.cut.Unlock()
	a.want("", <-before)
	a.want(relay.StoreFailed, <-behind)
	a.wantFatal(errEnvelope)
	b.wantFatal(errEnvelope)
	_, err := a.Send(a.message(k, 0))
	a.want(relay.StoreFailed, err)
	if n := l.length(); n != 4 {
		t.Errorf("a node that has failed has proposed a write: %d entries", n)
	}
	a.stop()
	b.stop()
	wantMessages(a, 1)
	wantMessages(b, 1)
}
