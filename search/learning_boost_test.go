package search_test

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"relay/db/relay"
	"relay/search"
	"relay/search/learned"
)

// Indexes rank by what exchanges have taught, too, if their source has any.
func init() {
	boost = func(source any) search.Boost {
		if s, ok := source.(learned.Source); ok {
			return learned.New(s, relay.DefaultHalfLife, slog.New(slog.DiscardHandler))
		}
		return nil
	}
}

// teach replaces what is known of a Mecha.
func (s *shelf) teach(l relay.Learned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.learned == nil {
		s.learned = map[relay.MechaNumber]relay.Learned{}
	}
	s.taught++
	l.Position = s.taught
	s.learned[l.Mecha] = l
}

func (s *shelf) Learned(_ context.Context, after relay.Position, limit int) ([]relay.Learned, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page > 0 {
		limit = min(limit, s.page)
	}
	var list []relay.Learned
	for _, l := range s.learned {
		if l.Position > after {
			list = append(list, l)
		}
	}
	slices.SortFunc(list, func(a, b relay.Learned) int { return cmp.Compare(a.Position, b.Position) })
	return list[:min(len(list), limit)], nil
}

func (s *stream) Learned(_ context.Context, after relay.Position, limit int) ([]relay.Learned, error) {
	began := time.Now()
	defer func() { s.took += time.Since(began) }()
	var list []relay.Learned
	for i := int(after) + 1; s.counts > 0 && i <= s.n && len(list) < limit; i++ {
		list = append(list, s.lesson(i, s.counts))
	}
	return list, nil
}

// lesson is what exchanges have taught about a Mecha: so many words, some of one crew.
func (g *generator) lesson(id, words int) relay.Learned {
	l := relay.Learned{Mecha: relay.MechaNumber(id), Position: relay.Position(id), Exchanges: float64(1 + g.rand.IntN(words)), At: hourOfExchanges}
	seen := map[string]bool{}
	for len(l.Words) < words {
		w := search.Stem(g.word())
		if seen[w] {
			continue
		}
		seen[w] = true
		crews := 1 + g.rand.IntN(4)
		at := hourOfExchanges.Add(-time.Duration(g.rand.IntN(4000)) * time.Hour)
		l.Words = append(l.Words, relay.LearnedWord{Word: w, Weight: float64(crews) * (0.5 + g.rand.Float64()*2), At: at, Crews: crews})
	}
	return l
}

// What learned counts cost in memory and in time.
func BenchmarkLearn(b *testing.B) {
	for range b.N {
		without := bigSize{100_000, 0}
		bigIndexThatLearned(b, without)
		heap, seconds := big.heap[without.profiles], big.seconds[without.profiles]
		bigIndexThatLearned(b, bigSize{100_000, learnedPerMecha})
		b.ReportMetric(big.heap[without.profiles]-heap, "MiB-heap")
		b.ReportMetric(big.seconds[without.profiles]-seconds, "s")
	}
	b.ReportMetric(0, "ns/op")
}
