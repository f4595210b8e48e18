package ws

import (
	"sync/atomic"
	"time"

	"relay/db/relay"
)

// A meter is a token bucket for the frames of one key, over all its sockets
// (PROTOCOL §7). A socket takes one token at a time, for its next frame, and waits until
// it is there. So sockets that wait take turns.
type meter struct {
	next    atomic.Int64 // when the next token is there, as Hub.elapsed; if that was a burst ago, the bucket is full
	sockets int          // how many sockets use the meter; guarded by Hub.mu
}

// meters is the meters of all keys. Hub.mu guards its maps; take needs no lock.
type meters struct {
	every, burst int64 // in nanoseconds: between two tokens, and until an empty bucket is full; 0: no limit
	of           map[relay.KeyNumber]*meter
	left         map[relay.KeyNumber]*meter // the meters without a socket, which stay until they are full
}

func newMeters(perSecond float64, burst int) meters {
	m := meters{of: map[relay.KeyNumber]*meter{}, left: map[relay.KeyNumber]*meter{}}
	if perSecond > 0 {
		every := float64(time.Second) / max(perSecond, 1e-3) // a token comes at least every quarter of an hour
		m.every, m.burst = int64(every), int64(min(every*float64(max(burst, 1)), float64(24*time.Hour)))
	}
	return m
}

// take takes a token, and tells for how long the caller must wait for it.
func (ms *meters) take(m *meter, now int64) time.Duration {
	if ms.every == 0 {
		return 0
	}
	for {
		was := m.next.Load()
		next := max(was, now-ms.burst) + ms.every
		if m.next.CompareAndSwap(was, next) {
			return time.Duration(max(next-now, 0))
		}
	}
}

// join returns the meter of a key to one more socket. Hub.mu is held.
func (ms *meters) join(key relay.KeyNumber) *meter {
	m := ms.of[key]
	if m == nil {
		m = &meter{}
		m.next.Store(-ms.burst)
		ms.of[key] = m
	}
	delete(ms.left, key)
	m.sockets++
	return m
}

// leave says that a socket of the key no longer uses its meter. Hub.mu is held.
func (ms *meters) leave(key relay.KeyNumber) {
	m := ms.of[key]
	if m.sockets--; m.sockets == 0 {
		ms.left[key] = m
	}
}

// forget drops the meters that are full and without a socket. It keeps the others, so that a key
// gains nothing by reopening its sockets. The caller must hold Hub.mu.
func (ms *meters) forget(now int64) {
	for key, m := range ms.left {
		if m.next.Load() <= now-ms.burst {
			delete(ms.left, key)
			delete(ms.of, key)
		}
	}
}
