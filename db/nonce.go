package db

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"relay/db/relay"
)

const (
	nonceShards = 64
	nonceSweep  = 15 * time.Second // how often a shard forgets what has expired
)

// Nonces remembers which nonces must not come again (PROTOCOL §2). A nonce is
// remembered for as long as a request with its timestamp could be accepted;
// a few seconds longer does no harm. A clock that is set ahead, and back again,
// makes it forget nothing: as much time must have passed, too. It is safe for
// concurrent use.
type Nonces struct {
	max      int64 // besides those that were restored
	count    atomic.Int64
	bounded  bool
	passed   func(now time.Time) time.Duration // since the start, whatever the clock was set to
	shards   [nonceShards]nonceShard
	restored atomic.Pointer[nonceSet] // nil: none that could still come again
}

type nonceShard struct {
	mu    sync.Mutex
	until map[relay.NonceHash]span32
	sweep int32 // seconds that must have passed
}

// span32 says how long a nonce is remembered: by the clock, and by time passed.
type span32 struct {
	until uint32 // Unix seconds
	keep  int32  // seconds since the start
}

func newNonces(limit int64) *Nonces {
	begin := time.Now() // has a monotonic reading, as the real clock's times have
	n := &Nonces{max: limit, bounded: limit > 0, passed: func(now time.Time) time.Duration { return now.Sub(begin) }}
	for i := range n.shards {
		n.shards[i] = nonceShard{until: map[relay.NonceHash]span32{}, sweep: math.MinInt32}
	}
	return n
}

// seconds gives how many have passed. An injected clock may say anything.
func (n *Nonces) seconds(now time.Time) int32 {
	const most = 1 << 30
	return int32(min(max(int64(n.passed(now)/time.Second), -most), most))
}

// Claim remembers a nonce until a time. It refuses with NonceReused, or with
// Overloaded when more than the bound are remembered.
func (n *Nonces) Claim(h relay.NonceHash, now, until time.Time) error {
	s := &n.shards[uint64(h)%nonceShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := n.seconds(now)
	if passed >= s.sweep {
		n.forget(s, now, passed)
	}
	if t, ok := s.until[h]; ok && now.Unix() <= int64(t.until) || n.wasRestored(h, now) {
		return relay.Errorf(relay.NonceReused, "this nonce was used before with this key; every request needs a fresh one")
	}
	if n.bounded && n.count.Load() >= n.max {
		e := relay.Errorf(relay.Overloaded, "too many nonces to remember (see --max-nonces)")
		e.RetryAfter = nonceSweep
		return e
	}
	n.put(s, h, now, until)
	return nil
}

// restore remembers the nonces that the store had kept, beyond the bound. Only
// at the start, before any Claim.
func (n *Nonces) restore(f *foundNonces) { n.restored.Store(f.set()) }

func (n *Nonces) put(s *nonceShard, h relay.NonceHash, now, until time.Time) {
	if _, known := s.until[h]; !known {
		n.count.Add(1)
	}
	end := until.Unix() + 1
	s.until[h] = span32{until: uint32(max(end, 0)), keep: n.seconds(now) + int32(max(end-now.Unix(), 0))}
}

// wasRestored tells whether a nonce was used before the start, and must not come again.
func (n *Nonces) wasRestored(h relay.NonceHash, now time.Time) bool {
	set := n.restored.Load()
	if set == nil {
		return false
	}
	second := min(now.Unix()-set.began, int64(n.seconds(now))) // the clock may have been set ahead
	if second > int64(set.last) {
		n.restored.CompareAndSwap(set, nil)
		return false
	}
	until := set.until[set.slot(h)]
	return until != 0 && second <= int64(until)
}

// A nonceSet is what a start has read back. Nothing is added later, so it needs
// no lock, and takes less of time and memory than a map for millions.
type nonceSet struct {
	hashes []relay.NonceHash // open addressing; the length is a power of two, half of it free
	until  []uint16          // seconds after began; 0: the slot is free
	began  int64             // Unix seconds
	last   uint16            // of until
}

// slot is where a hash stands, or else a free one. The hashes are as good as random.
func (s *nonceSet) slot(h relay.NonceHash) uint64 {
	mask := uint64(len(s.hashes) - 1)
	i := uint64(h) >> 1 & mask // the lowest bit is always set
	for s.until[i] != 0 && s.hashes[i] != h {
		i = (i + 1) & mask
	}
	return i
}

// foundNonces are what a start reads back, on their way into a set.
type foundNonces struct {
	now    time.Time
	window time.Duration // after a commit in which its nonce could come again
	count  int
	pages  []foundPage
}

type foundPage struct {
	until  uint16
	nonces []byte // 8 bytes each
}

// add takes nonces, 8 bytes each, the last of which was committed at a position.
func (f *foundNonces) add(p relay.Position, nonces []byte) {
	at := p.Time()
	if at.After(f.now) {
		at = f.now // the clock was ahead then
	}
	until := at.Add(f.window).Unix() + 1 - f.now.Unix()
	if until <= 0 {
		return
	}
	f.count += len(nonces) / 8
	if n := len(f.pages); n > 0 && f.pages[n-1].until == uint16(until) { // rows come one by one
		f.pages[n-1].nonces = append(f.pages[n-1].nonces, nonces...)
		return
	}
	f.pages = append(f.pages, foundPage{uint16(until), append([]byte(nil), nonces...)})
}

// set is nil if nothing was found.
func (f *foundNonces) set() *nonceSet {
	if f.count == 0 {
		return nil
	}
	size := 2
	for size < 2*f.count {
		size *= 2
	}
	s := &nonceSet{hashes: make([]relay.NonceHash, size), until: make([]uint16, size), began: f.now.Unix()}
	for _, p := range f.pages {
		s.last = max(s.last, p.until)
		for i := 0; i+8 <= len(p.nonces); i += 8 {
			h := relay.NonceHash(binary.LittleEndian.Uint64(p.nonces[i:]))
			at := s.slot(h)
			s.hashes[at], s.until[at] = h, max(s.until[at], p.until)
		}
	}
	return s
}

func (n *Nonces) forget(s *nonceShard, now time.Time, passed int32) {
	s.sweep = passed + int32(nonceSweep/time.Second)
	for h, t := range s.until {
		if int64(t.until) < now.Unix() && t.keep < passed {
			delete(s.until, h)
			n.count.Add(-1)
		}
	}
}
