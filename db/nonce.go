package db

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// A NonceHash stands for a key and a nonce that it used. Zero means none.
type NonceHash int64

const (
	nonceShards  = 64
	nonceSweep   = 15 * time.Second // how often a shard forgets what has expired
	maxClockSkew = 15 * time.Minute // the highest --clock-skew
)

// Nonces remembers which nonces must not come again (PROTOCOL §2). A nonce is
// remembered for as long as a request with its timestamp could be accepted;
// a few seconds longer does no harm. A clock that is set ahead, and back again,
// makes it forget nothing: as much time must have passed, too. It is safe for
// concurrent use.
type Nonces struct {
	max     int64 // besides those that were restored
	count   atomic.Int64
	bounded bool
	passed  func(now time.Time) time.Duration // since the start, whatever the clock was set to
	shards  [nonceShards]nonceShard
}

type nonceShard struct {
	mu    sync.Mutex
	until map[NonceHash]span32
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
		n.shards[i] = nonceShard{until: map[NonceHash]span32{}, sweep: math.MinInt32}
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
func (n *Nonces) Claim(h NonceHash, now, until time.Time) error {
	s := &n.shards[uint64(h)%nonceShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	passed := n.seconds(now)
	if passed >= s.sweep {
		n.forget(s, now, passed)
	}
	if t, ok := s.until[h]; ok && now.Unix() <= int64(t.until) {
		return Errorf(NonceReused, "this nonce was used before with this key; every request needs a fresh one")
	}
	if n.bounded && n.count.Load() >= n.max {
		e := Errorf(Overloaded, "too many nonces to remember (see --max-nonces)")
		e.RetryAfter = nonceSweep
		return e
	}
	n.put(s, h, now, until)
	return nil
}

// restore remembers a nonce that the store had kept, beyond the bound. Only at
// the start, before any Claim.
func (n *Nonces) restore(h NonceHash, now, until time.Time) {
	s := &n.shards[uint64(h)%nonceShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n.put(s, h, now, until)
	n.max++
}

func (n *Nonces) put(s *nonceShard, h NonceHash, now, until time.Time) {
	if _, known := s.until[h]; !known {
		n.count.Add(1)
	}
	end := until.Unix() + 1
	s.until[h] = span32{until: uint32(max(end, 0)), keep: n.seconds(now) + int32(max(end-now.Unix(), 0))}
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
