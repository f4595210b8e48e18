package db

import (
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/replication"
)

// pair returns two nodes of one log; the second one has a copy of the first one's file.
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

// A nonce that a write at one node has used is refused at the others, even after a start,
// and even if that write was refused. Only a stored answer to an Idempotency-Key is
// returned again. After the time in which the request could be replayed, the nonce is
// free.
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
	a.want("", a.UseNonce(k, 109))
	for range 2 {
		b.want(relay.NonceReused, b.UseNonce(k, 109))
		for _, nonce := range []relay.NonceHash{101, 103, 105, 107, 109} {
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
	l.set(func() { l.ahead = 34 * time.Minute })
	_, err = b.Send(b.message(k, 101))
	b.want(relay.NonceReused, err)
	l.set(func() { l.ahead = 41 * time.Minute })
	b.mustSend(k, 101)
	for range 10 { // each entry may remove two old ones
		b.mustSend(k, 0)
	}
	wantEnd(a, b)
	if n := a.count("entry_nonce"); n != 1 {
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
	l.waitForLength(6, nil) // until the message is in the log
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

// Rows that one node has alone take no place in the common order, even if its clock is ahead
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
		b.SaveSearch(&relay.SaveSearch{At: ahead, ID: relay.NewSearchID(), Mecha: k.Mecha.Number, Answer: []byte("{}")}, func(err error) { saved <- err })
		b.want("", <-saved)
		b.mustSend(k, 0)
		b.catchUp()
		b.stop()
		b.start()
	}
	a.mustSend(k, 0)
	wantEnd(a, b)
}

// A node that cannot write leaves no entry out: it continues when it can. A caller that
// waits for an outcome meanwhile learns that it is unknown. Further writes are refused
// before the log.
func TestReplicasLeaveNoEntryOut(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	b.catchUp()
	b.poke(func() { b.want("", b.w.C.WaitForLock(200*time.Millisecond)) }) // more than the moments for which the store's own checkpoints hold a lock
	free := b.occupy()
	_, err := b.Send(b.message(k, 1))
	b.want(relay.StoreFailed, err)
	b.wantSentence("this node cannot write just now", err)
	a.mustSend(k, 3)
	before := l.length()
	_, err = b.Send(b.message(k, 5))
	b.want(relay.DatabaseLocked, err)
	l.wantLength(t, before)
	free()
	b.catchUp()
	b.poke(func() { b.want("", b.w.C.WaitForLock(time.Minute)) }) // when it has run, the node takes writes again
	b.mustSend(k, 5)                                              // the same nonce, because nothing was written
	wantEnd(a, b)
	wantMessages(b, 3)
}

// A write that the log does not take is refused, and was not written. If the log does not
// answer, the outcome is unknown: the write may come into the log later.
func TestReplicasSayWhatTheyKnow(t *testing.T) {
	t.Parallel()
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{}, nil).found()
	k := a.issue("bob^demo")
	a.stop()
	patience := replication.Timeouts{Queued: time.Hour, Inflight: 100 * time.Millisecond, Retry: time.Millisecond, MaxRetry: time.Millisecond, Poll: time.Millisecond, Closing: time.Millisecond}
	a.prepare = func(d *DB) { replicated(d.w).Propose.Timeouts = patience }
	a.start()
	silent := make(chan struct{}, 1)
	l.set(func() { l.silent = silent })
	_, err := a.Send(a.message(k, 0))
	a.want(relay.StoreFailed, err)
	a.wantSentence("the log did not say in time", err)
	a.stop()
	patience.Inflight = time.Hour // from now on, the end of the store comes first
	a.start()
	under := make(chan struct{}, 1)
	l.set(func() { l.silent = under })
	outcomes := [3]chan error{make(chan error, 1), make(chan error, 1), make(chan error, 1)}
	a.SendThen(a.message(k, 0), func(_ relay.Sent, err error) { outcomes[0] <- err })
	<-under // it is under way, so the next one waits
	replicated(a.w).Propose.Timeouts.Queued = 20 * time.Millisecond
	a.SendThen(a.message(k, 0), func(_ relay.Sent, err error) { outcomes[1] <- err })
	a.want(relay.Overloaded, <-outcomes[1])
	a.stop()
	a.want(relay.StoreFailed, <-outcomes[0])
	a.start()
	a.SendThen(a.message(k, 0), func(_ relay.Sent, err error) { outcomes[2] <- err })
	a.stop()
	if code := relay.ErrorCode(<-outcomes[2]); code != relay.StoreFailed && code != relay.ShuttingDown {
		t.Errorf("when the store closes: %s", code)
	}
	wantMessages(a, 0)
}

// An envelope that the log has twice is applied once, and one that comes behind its successor
// not at all: its node has given it up.
func TestReplicasApplyAnEnvelopeOnce(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	for range 3 {
		a.mustSend(k, 0)
	}
	e, err := replication.ReadEnvelope(l.entries[3].Data)
	if err != nil || e.Counter != 4 || len(e.Writes) != 1 {
		t.Fatalf("%+v, %v", e, err)
	}
	late := replication.AppendToEnvelope(replication.AppendEnvelope(nil, e.Log, e.Origin, 2, 1), relay.AppendWrite(nil, e.Writes[0]))
	l.set(func() {
		l.add(l.entries[3].Data)
		l.add(late)
	})
	b.catchUp()
	b.stop()
	b.start() // also after a start
	l.set(func() { l.add(l.entries[2].Data) })
	wantEnd(a, b)
	wantMessages(a, 3)
}

// wantMessages fails the test unless the file of a stopped node has so many messages.
func wantMessages(n *node, want int) {
	n.Helper()
	if got := n.count("message"); got != want {
		n.Errorf("it has %d messages, want %d", got, want)
	}
}

// A request that is longer than an entry can be is refused, alone.
func TestReplicasRefuseWhatNoEntryHolds(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	k := a.issue("bob^demo")
	m := a.message(k, 1)
	m.Payload = []byte(`{"a":"` + strings.Repeat("x", replication.MaxForm) + `"}`)
	_, err := a.Send(m)
	a.want(relay.PayloadTooLarge, err)
	m = a.message(k, 3)
	m.Payload = []byte(`{"a":"` + strings.Repeat("x", replication.MaxForm-1000) + `"}`)
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	_, err = a.Send(m)
	a.want("", err)
	wantEnd(a, b)
}

// wantSentence fails the test unless an error has some words.
func (n *node) wantSentence(words string, err error) {
	n.Helper()
	if err == nil || !strings.Contains(err.Error(), words) {
		n.Errorf("%v, which does not say that %s", err, words)
	}
}
