package db

import (
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
// a few seconds longer does no harm. It is safe for concurrent use.
type Nonces struct {
	max     int64 // besides those that were restored
	count   atomic.Int64
	bounded bool
	shards  [nonceShards]nonceShard
}

type nonceShard struct {
	mu    sync.Mutex
	until map[NonceHash]int64 // Unix seconds
	sweep time.Time
}

func newNonces(limit int64) *Nonces {
	n := &Nonces{max: limit, bounded: limit > 0}
	for i := range n.shards {
		n.shards[i].until = map[NonceHash]int64{}
	}
	return n
}

// Claim remembers a nonce until a time. It refuses with NonceReused, or with
// Overloaded when more than the bound are remembered.
func (n *Nonces) Claim(h NonceHash, now, until time.Time) error {
	s := &n.shards[uint64(h)%nonceShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.After(s.sweep) {
		n.forget(s, now)
	}
	if t, ok := s.until[h]; ok && now.Unix() <= t {
		return Errorf(NonceReused, "this nonce was used before with this key; every request needs a fresh one")
	}
	if n.bounded && n.count.Load() >= n.max {
		e := Errorf(Overloaded, "too many nonces to remember (see --max-nonces)")
		e.RetryAfter = nonceSweep
		return e
	}
	n.put(s, h, until)
	return nil
}

// restore remembers a nonce that the store had kept, beyond the bound. Only at
// the start, before any Claim.
func (n *Nonces) restore(h NonceHash, until time.Time) {
	s := &n.shards[uint64(h)%nonceShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	n.put(s, h, until)
	n.max++
}

func (n *Nonces) put(s *nonceShard, h NonceHash, until time.Time) {
	if _, known := s.until[h]; !known {
		n.count.Add(1)
	}
	s.until[h] = until.Unix() + 1
}

func (n *Nonces) forget(s *nonceShard, now time.Time) {
	s.sweep = now.Add(nonceSweep)
	for h, t := range s.until {
		if t < now.Unix() {
			delete(s.until, h)
			n.count.Add(-1)
		}
	}
}
