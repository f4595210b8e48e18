package ws

import (
	"testing"
	"time"

	"relay/db/relay"
)

func TestTheSocketsOfAKeyShareARate(t *testing.T) {
	ms := newMeters(10, 5)
	now := int64(time.Hour)
	one, other, third := ms.join(1), ms.join(1), ms.join(2)
	for i := range 5 { // a burst, from any of them
		if d := ms.take([]*meter{one, other}[i%2], now); d != 0 {
			t.Errorf("frame %d waits %v", i, d)
		}
	}
	for i := range 6 { // each has its turn
		if d, want := ms.take([]*meter{one, other}[i%2], now), time.Duration(i+1)*100*time.Millisecond; d != want {
			t.Errorf("frame %d waits %v, want %v", i, d, want)
		}
	}
	if d := ms.take(third, now); d != 0 {
		t.Errorf("another key waits %v", d)
	}
	if d := ms.take(one, now+int64(time.Hour)); d != 0 {
		t.Errorf("an hour later it waits %v", d)
	}
}

// A key that closes its sockets and opens others has the same bucket, until it is full.
func TestNewSocketsBringNoNewBurst(t *testing.T) {
	ms := newMeters(10, 5)
	now := int64(time.Hour)
	first := ms.join(1)
	for range 5 {
		ms.take(first, now)
	}
	ms.leave(1)
	ms.forget(now)
	again := ms.join(1)
	if d := ms.take(again, now); d == 0 {
		t.Error("a new socket brought a new burst")
	}
	ms.leave(1)
	ms.forget(now + int64(time.Second/2))
	if len(ms.of) != 1 {
		t.Error("a bucket was dropped before it was full")
	}
	ms.forget(now + int64(time.Second))
	if len(ms.of)+len(ms.left) != 0 {
		t.Error("a bucket that is full and not used was kept")
	}
	ms.join(1)
	ms.forget(now + int64(time.Hour))
	if len(ms.of) != 1 {
		t.Error("a bucket in use was dropped")
	}
}

func TestARateMayBeOffOrTiny(t *testing.T) {
	off, tiny := newMeters(0, 0), newMeters(1e-300, 1<<40)
	m := off.join(1)
	for range 100 {
		if off.take(m, 0) != 0 {
			t.Fatal("without a limit a frame waits")
		}
	}
	m = tiny.join(1)
	if d := tiny.take(m, 0); d != 0 {
		t.Errorf("with a large burst, the first frame waits %v", d)
	}
	tiny = newMeters(1e-300, 0)
	m = tiny.join(1)
	if first, second := tiny.take(m, 0), tiny.take(m, 0); first != 0 || second <= 0 || second > time.Hour {
		t.Errorf("the first waits %v, the second %v", first, second)
	}
}

// However many sockets a Mecha opens, about as many answers may be due to it.
func TestTheAnswersDueAreShared(t *testing.T) {
	h := &Hub{listeners: map[relay.MechaNumber][]listener{}, meters: newMeters(0, 0)}
	key := &relay.Key{Mecha: relay.Mecha{Number: 7}}
	var all []*Conn
	check := func() {
		t.Helper()
		sum := int32(0)
		for _, c := range all {
			sum += c.in.maxDue.Load()
		}
		n := int32(len(all))
		if least := n * minAnswers; sum > max(mechaAnswers, least) || sum < min(n*maxAnswers, mechaAnswers-n) {
			t.Fatalf("%d sockets have %d together", n, sum)
		}
	}
	for range 3 * mechaAnswers / minAnswers {
		c := &Conn{heldKey: heldKey{key: key}}
		if err := h.register(c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		check()
	}
	for len(all) > 1 {
		h.unregister(all[0])
		all = all[1:]
		check()
	}
}
