package http

import (
	"net/http"
	"sync"
	"time"

	"relay/db/relay"

	"golang.org/x/time/rate"
)

// limiters is a token bucket per key of K. A rate of zero allows everything.
// It is safe for concurrent use.
type limiters[K comparable] struct {
	rate  float64
	burst int
	mu    sync.Mutex
	young map[K]*rate.Limiter
	old   map[K]*rate.Limiter // forgotten when young is full; whoever comes again is young again
}

// maxLimiters bounds the buckets of one limiters. A flood of new addresses makes
// it forget those that were quiet meanwhile, and not the one that goes on.
const maxLimiters = 1 << 16

func (l *limiters[K]) allow(k K, now time.Time) bool {
	return l.rate <= 0 || l.bucket(k).AllowN(now, 1)
}

func (l *limiters[K]) bucket(k K) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.young[k]
	if b != nil {
		return b
	}
	if b = l.old[k]; b == nil {
		b = rate.NewLimiter(rate.Limit(l.rate), max(l.burst, 1))
	}
	if l.young == nil || len(l.young) >= maxLimiters/2 {
		l.old, l.young = l.young, map[K]*rate.Limiter{}
	}
	l.young[k] = b
	return b
}

// memory bounds what the bodies and answers under way take together, in bytes,
// so that slow clients cost sockets and not the process. A key has a share of
// it, or one Mecha could keep all others waiting. It is safe for concurrent use.
type memory struct {
	most  int64 // 0: no bound
	share int64 // … of one key
	mu    sync.Mutex
	used  int64
	of    map[int64]int64 // by key
}

const (
	keyShare    = 8        // a key may take one part in so many
	smallEnough = 16 << 10 // bytes that are not counted: a connection's headers may be as many
)

// take counts n bytes of a key, which give returns: RateLimited if its share is
// used up, Overloaded if all is. What is alone is never too much.
func (m *memory) take(key, n int64) error {
	if n <= smallEnough {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var e *relay.Error
	switch own := m.of[key]; {
	case m.most == 0:
	case own > 0 && own+n > m.share:
		e = relay.Errorf(relay.RateLimited, "this key has %d bytes of requests and answers under way; that is its share", own)
	case m.used > 0 && m.used+n > m.most:
		e = relay.Errorf(relay.Overloaded, "the relay has %d bytes of requests and answers under way; that is the limit", m.used)
	}
	if e != nil {
		e.RetryAfter = time.Second
		return e
	}
	m.add(key, n)
	return nil
}

// force counts what cannot be refused any more.
func (m *memory) force(key, n int64) {
	if n > smallEnough {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.add(key, n)
	}
}

// give returns what was taken at once.
func (m *memory) give(key, n int64) {
	if n > smallEnough {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.add(key, -n)
	}
}

func (m *memory) add(key, n int64) {
	if m.of == nil {
		m.of = map[int64]int64{}
	}
	m.used += n
	if m.of[key] += n; m.of[key] == 0 {
		delete(m.of, key)
	}
}

// hold counts an answer, for its client may take its time to read it. Only
// what has changed nothing can still be refused.
func (s *Server) hold(c *call, n int) error {
	if c.Method != http.MethodGet {
		s.memory.force(c.key.Number, int64(n))
	} else if err := s.memory.take(c.key.Number, int64(n)); err != nil {
		return err
	}
	c.answered = int64(n)
	return nil
}
