package http

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiters is a token bucket per key of K. A rate of zero allows everything.
// It is safe for concurrent use.
type limiters[K comparable] struct {
	rate  float64
	burst int
	mu    sync.Mutex
	of    map[K]*rate.Limiter
}

const maxLimiters = 1 << 16 // then all start anew, full: memory stays bounded

func (l *limiters[K]) allow(k K, now time.Time) bool {
	if l.rate <= 0 {
		return true
	}
	l.mu.Lock()
	b := l.of[k]
	if b == nil {
		if l.of == nil || len(l.of) >= maxLimiters {
			l.of = map[K]*rate.Limiter{}
		}
		b = rate.NewLimiter(rate.Limit(l.rate), max(l.burst, 1))
		l.of[k] = b
	}
	l.mu.Unlock()
	return b.AllowN(now, 1)
}
