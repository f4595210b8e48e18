package replays

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/relay"
	"relay/db/ring"
)

const (
	NonceShards = 64
	NonceSweep  = 15 * time.Second // how often a shard forgets expired nonces
)

// Nonces remembers which nonces each key has used (PROTOCOL §2). It keeps a nonce for as
// long as a request with the nonce's timestamp could be accepted, or a few seconds
// longer. If the clock is set ahead and back again, no nonce is lost: Nonces also waits
// until as much running time has passed. A ring in a file has the same nonces, for the
// next start. It is safe for concurrent use.
type Nonces struct {
	max      int64 // how many to remember, in addition to the restored ones
	Count    atomic.Int64
	bounded  bool
	Elapsed  func(now time.Time) time.Duration // the time since the start, even if the clock is set
	shards   [NonceShards]nonceShard
	Restored atomic.Pointer[nonceSet] // nil once every restored nonce has expired
	ring     *ring.Ring               // nil if the nonces are in memory alone
	past     ring.Past                // which nonces of earlier runs are known
}

type nonceShard struct {
	mu        sync.Mutex
	until     map[relay.NonceHash]nonceExpiry
	nextSweep int32 // seconds since the start
	closed    bool
}

// nonceExpiry is the end of a nonce: it is remembered until both times have come.
type nonceExpiry struct {
	clock   uint32 // Unix seconds
	elapsed int32  // seconds since the start
}

// NewNonces makes a Nonces that starts now. now should have a monotonic reading, which
// setting the clock does not change.
func NewNonces(limit int64, now time.Time) *Nonces {
	n := &Nonces{max: limit, bounded: limit > 0, Elapsed: func(later time.Time) time.Duration { return later.Sub(now) }}
	n.past = ring.Past{Since: ring.Beginning, Floor: ring.Beginning}
	for i := range n.shards {
		n.shards[i] = nonceShard{until: map[relay.NonceHash]nonceExpiry{}, nextSweep: math.MinInt32}
	}
	return n
}

// seconds returns the whole seconds since the start. It bounds them, because a test's
// clock may show any time.
func (n *Nonces) seconds(now time.Time) int32 {
	const limit = 1 << 30
	return int32(min(max(int64(n.Elapsed(now)/time.Second), -limit), limit))
}

// running returns the running time of the ring (package ring).
func (n *Nonces) running(now time.Time) time.Duration {
	return n.past.Began + max(n.Elapsed(now), 0)
}

// Earliest returns the earliest timestamp that a request may have. The nonces of earlier
// requests may be forgotten, because a start found the ring incomplete. Earliest counts
// back from now by the running time since that start, so that nobody has to wait after the
// clock is set.
func (n *Nonces) Earliest(now time.Time) time.Time {
	return now.Add(n.past.Floor - n.running(now))
}

// Claim remembers a nonce until the given time, or refuses it: NonceReused if it is
// already remembered, Overloaded at the limit of nonces, ShuttingDown after Close.
func (n *Nonces) Claim(h relay.NonceHash, now, until time.Time) error {
	s := &n.shards[uint64(h)%NonceShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return readers.ErrShuttingDown()
	}
	elapsed := n.seconds(now)
	if elapsed >= s.nextSweep {
		n.forget(s, now, elapsed)
	}
	if t, ok := s.until[h]; ok && now.Unix() <= int64(t.clock) || n.wasRestored(h, now) {
		return engine.ErrNonceReused()
	}
	if n.bounded && n.Count.Load() >= n.max || errors.Is(n.keep(h, now, until), ring.ErrFull) {
		e := relay.Errorf(relay.Overloaded, "too many nonces to remember (see --max-nonces)")
		e.RetryAfter = NonceSweep
		return e
	}
	n.put(s, h, now, until)
	return nil
}

// keep adds a nonce to the ring.
func (n *Nonces) keep(h relay.NonceHash, now, until time.Time) error {
	if n.ring == nil {
		return nil
	}
	life := min(max(until.Unix()+1-now.Unix(), 0), math.MaxUint16)
	return n.ring.Add(uint64(h), uint32(n.running(now)/time.Second), uint16(life))
}

// Close refuses further nonces and closes the ring, which then has all accepted ones.
func (n *Nonces) Close() error {
	for i := range n.shards {
		s := &n.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	if n.ring == nil {
		return nil
	}
	return n.ring.Close()
}

// restore remembers the nonces that a start has read, beyond the limit. Call it before
// any Claim. now is the time of the start.
func (n *Nonces) restore(f *foundNonces, now time.Time) {
	n.Restored.Store(f.set(now, uint32(n.past.Began/time.Second)))
}

func (n *Nonces) put(s *nonceShard, h relay.NonceHash, now, until time.Time) {
	if _, known := s.until[h]; !known {
		n.Count.Add(1)
	}
	end := until.Unix() + 1
	s.until[h] = nonceExpiry{clock: uint32(max(end, 0)), elapsed: n.seconds(now) + int32(max(end-now.Unix(), 0))}
}

// wasRestored reports whether a nonce was used before the start and has not expired.
func (n *Nonces) wasRestored(h relay.NonceHash, now time.Time) bool {
	set := n.Restored.Load()
	if set == nil {
		return false
	}
	second := min(now.Unix()-set.began, int64(n.seconds(now))) // the clock may have been set ahead since the start
	if second > int64(set.last) {
		n.Restored.CompareAndSwap(set, nil)
		return false
	}
	until := set.until[set.slot(h)]
	return until != 0 && second <= int64(until)
}

// A nonceSet has the nonces that a start has read. Nothing is added later, so the set
// needs no lock. For millions of nonces it takes less time and memory than a map.
type nonceSet struct {
	// a hash table with open addressing; its length is a power of two, at least half of it is free
	hashes []relay.NonceHash
	until  []uint16 // for each slot, seconds after began; 0 if the slot is free
	began  int64    // Unix seconds
	last   uint16   // the greatest of until
}

// slot returns the slot of a hash, or the free slot where it belongs. The hashes are
// practically random, so they need no further hashing.
func (s *nonceSet) slot(h relay.NonceHash) uint64 {
	mask := uint64(len(s.hashes) - 1)
	i := uint64(h) >> 1 & mask // the lowest bit is always set
	for s.until[i] != 0 && s.hashes[i] != h {
		i = (i + 1) & mask
	}
	return i
}

// foundNonces collects the nonces that a start reads, until their number is known and
// set can make a nonceSet of them.
type foundNonces struct {
	count int
	pages []foundPage
	ring  []foundSegment
}

// foundPage has nonces from the database.
type foundPage struct {
	until  uint16 // seconds after the start
	nonces []byte // 8 bytes each
}

// foundSegment has nonces from the ring, as package ring finds them.
type foundSegment struct {
	hashes []uint64
	ends   []uint32
}

// add takes nonces of 8 bytes each, which must be refused for so many seconds.
func (f *foundNonces) add(seconds uint16, nonces []byte) {
	f.count += len(nonces) / 8
	if n := len(f.pages); n > 0 && f.pages[n-1].until == seconds { // nonces from rows come one by one
		f.pages[n-1].nonces = append(f.pages[n-1].nonces, nonces...)
		return
	}
	f.pages = append(f.pages, foundPage{seconds, append([]byte(nil), nonces...)})
}

// addSegment takes nonces from the ring.
func (f *foundNonces) addSegment(hashes []uint64, ends []uint32) {
	f.count += len(hashes)
	f.ring = append(f.ring, foundSegment{hashes, ends})
}

// set makes the nonceSet, or returns nil without nonces. now and began are the time of
// the start, by the clock and in the running time of the ring.
func (f *foundNonces) set(now time.Time, began uint32) *nonceSet {
	if f.count == 0 {
		return nil
	}
	size := 2
	for size < 2*f.count {
		size *= 2
	}
	s := &nonceSet{hashes: make([]relay.NonceHash, size), until: make([]uint16, size), began: now.Unix()}
	for _, p := range f.pages {
		for i := 0; i+8 <= len(p.nonces); i += 8 {
			s.put(relay.NonceHash(binary.LittleEndian.Uint64(p.nonces[i:])), p.until)
		}
	}
	for _, p := range f.ring {
		for i, h := range p.hashes {
			if end := p.ends[i]; end >= began {
				s.put(relay.NonceHash(h), uint16(min(end-began+1, math.MaxUint16)))
			}
		}
	}
	return s
}

// put adds a nonce. Only foundNonces.set may call it.
func (s *nonceSet) put(h relay.NonceHash, until uint16) {
	at := s.slot(h)
	s.hashes[at], s.until[at] = h, max(s.until[at], until)
	s.last = max(s.last, until)
}

// forget drops the expired nonces of a shard. elapsed is in seconds since the start.
func (n *Nonces) forget(s *nonceShard, now time.Time, elapsed int32) {
	s.nextSweep = elapsed + int32(NonceSweep/time.Second)
	for h, t := range s.until {
		if int64(t.clock) < now.Unix() && t.elapsed < elapsed {
			delete(s.until, h)
			n.Count.Add(-1)
		}
	}
}
