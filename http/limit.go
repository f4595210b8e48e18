package http

import (
	"sync"
	"time"

	"relay/db/cache"
	"relay/db/relay"

	"golang.org/x/time/rate"
)

// limiters is a token bucket per key of K. A rate of zero allows everything.
// It is safe for concurrent use.
type limiters[K comparable] struct {
	rate    float64 // tokens per second
	burst   int
	mu      sync.Mutex // held while a bucket is made
	buckets *cache.Cache[K, *rate.Limiter]
}

// maxLimiters bounds the buckets of one limiters. A flood of new addresses makes
// it drop the buckets that were not used meanwhile, and keeps those in use.
const maxLimiters = 1 << 16

func newLimiters[K comparable](perSecond float64, burst int) limiters[K] {
	return limiters[K]{rate: perSecond, burst: burst, buckets: cache.New[K, *rate.Limiter](maxLimiters)}
}

func (l *limiters[K]) allow(k K, now time.Time) bool {
	return l.rate <= 0 || l.bucket(k).AllowN(now, 1)
}

// charge takes n tokens for a request that has cost more than its first token. It may
// leave a debt: then the next requests of the key are refused until it is paid.
func (l *limiters[K]) charge(k K, n int, now time.Time) {
	if l.rate <= 0 || n <= 0 {
		return
	}
	b := l.bucket(k)
	for ; n > 0; n -= b.Burst() { // a reservation is never larger than the burst
		b.ReserveN(now, min(n, b.Burst()))
	}
}

// reserve takes a token, and gives how long it takes until it is there.
func (l *limiters[K]) reserve(k K, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	return l.bucket(k).ReserveN(now, 1).DelayFrom(now)
}

// wait returns how long it takes until k has a token; 0 if it has one.
func (l *limiters[K]) wait(k K, now time.Time) time.Duration {
	if l.rate <= 0 {
		return 0
	}
	missing := 1 - l.bucket(k).TokensAt(now)
	return time.Duration(max(missing, 0) / l.rate * float64(time.Second))
}

func (l *limiters[K]) bucket(k K) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, known := l.buckets.Find(k)
	if !known {
		b = rate.NewLimiter(rate.Limit(l.rate), max(l.burst, 1))
		l.buckets.Put(k, b, 1)
	}
	return b
}

// memory bounds the bytes that all bodies and answers under way take together,
// so that slow clients cannot exhaust the memory of the process. Each Mecha has a
// share of the bound, so that it cannot keep all others waiting, however many keys
// it has. It is safe for concurrent use.
type memory struct {
	limit int64 // bytes in all; 0: no bound
	share int64 // bytes of one Mecha
	mu    sync.Mutex
	all   usage
	of    map[relay.MechaNumber]*usage
}

// usage is the bytes that are in use.
type usage struct {
	bytes int64
	freed chan struct{} // closed when bytes are given back; nil: nobody waits for that
}

func (u *usage) add(n int64) {
	if u.bytes += n; n < 0 && u.freed != nil {
		close(u.freed)
		u.freed = nil
	}
}

// wait returns a channel that is closed when bytes are given back.
func (u *usage) wait() <-chan struct{} {
	if u.freed == nil {
		u.freed = make(chan struct{})
	}
	return u.freed
}

const (
	memoryShare = 8        // the share of a Mecha is limit / memoryShare
	smallEnough = 16 << 10 // bytes of a body or answer that is not counted: the headers may be as long
)

// take counts n bytes for a Mecha until give returns them: RateLimited if its share
// is used up, Overloaded if the whole bound is. The first request of a Mecha always
// passes its share, however large, and the first of all the bound.
func (m *memory) take(owner relay.MechaNumber, n int64) error {
	if n <= smallEnough {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var e *relay.Error
	switch full := m.full(owner, n); full {
	case nil:
		m.add(owner, n)
		return nil
	case &m.all:
		e = relay.Errorf(relay.Overloaded, "all requests and answers already hold %d bytes; the limit is %d",
			full.bytes, m.limit)
	default:
		e = relay.Errorf(relay.RateLimited, "the requests and answers of this Mecha already hold %d bytes; its share is %d",
			full.bytes, m.share)
	}
	e.RetryAfter = time.Second
	return e
}

// takeLater is take for a caller that can wait: if there is no room, it gives a channel
// that is closed when it is worth asking again.
func (m *memory) takeLater(owner relay.MechaNumber, n int64) (room <-chan struct{}) {
	if n <= smallEnough {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if full := m.full(owner, n); full != nil {
		return full.wait()
	}
	m.add(owner, n)
	return nil
}

// full returns the usage that leaves no room for n more bytes of a Mecha: its own, or that
// of all; nil if there is room.
func (m *memory) full(owner relay.MechaNumber, n int64) *usage {
	switch own := m.of[owner]; {
	case m.limit == 0:
		return nil
	case own != nil && own.bytes+n > m.share:
		return own
	case m.all.bytes > 0 && m.all.bytes+n > m.limit:
		return &m.all
	}
	return nil
}

// change counts n bytes in place of those that a call of take or takeLater has counted, beyond any bound.
func (m *memory) change(owner relay.MechaNumber, from, n int64) {
	if from, n = counted(from), counted(n); from != n {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.add(owner, n-from)
	}
}

// give returns n bytes that one call of take, takeLater or change has counted.
func (m *memory) give(owner relay.MechaNumber, n int64) { m.change(owner, n, 0) }

func counted(n int64) int64 {
	if n <= smallEnough {
		return 0
	}
	return n
}

func (m *memory) add(owner relay.MechaNumber, n int64) {
	own := m.of[owner]
	if own == nil {
		if m.of == nil {
			m.of = map[relay.MechaNumber]*usage{}
		}
		own = &usage{}
		m.of[owner] = own
	}
	m.all.add(n)
	if own.add(n); own.bytes == 0 {
		delete(m.of, owner)
	}
}

const (
	rowsPerRequest  = 100  // rows of a page that cost the relay about as much as a request
	countPerRequest = 1000 // rows of an inbox, which are counted and not read
	rowsPerStep     = 3    // rows that a step of a trace reads: a receipt, its status and its key
)

// chargeRows charges the rows that a request has looked through to its key, as if each
// further `each` rows had been a request. So the rate of a key bounds what it costs, and
// not only how often it asks.
func (s *Server) chargeRows(key *relay.Key, looked, each int) {
	s.keys.charge(key.Number, (looked-1)/each, s.config.Now())
}
