// Package learned ranks by completed exchanges (PROTOCOL §5, Learning). Counts follow a source, and
// boost the Mechas that were the right ones for the words of a query.
//
// For another weight, begin in ranking.go: it has all constants and the formula; learner.go computes
// it. TestLearningRelevance measures that, with -long and the data that RELAY_DISCOVERY_DATA names;
// TestMadeUpExchanges shows what fraud can achieve.
package learned

import (
	"context"

	"relay/db/relay"
)

// Source is the store of learned words.
type Source interface {
	// Learned returns the Mechas whose learned counts changed after the given position,
	// each once, with all its words, in the order of positions: at most limit of them. A
	// Mecha whose learned words were removed has none. An empty list means that there are
	// no more.
	Learned(ctx context.Context, after relay.Position, limit int) ([]relay.Learned, error)
}

const (
	pageSize    = 1000
	wordsAtOnce = 200_000
)

// Follow applies what the source has learned since, in pages: the larger a page is, the
// less time each of its counts takes. It implements search.Boost.
func (l *Counts) Follow(ctx context.Context) error {
	after := l.position
	var page []relay.Learned
	for words := 0; ; {
		more, err := l.source.Learned(ctx, after, pageSize)
		if err != nil {
			return err
		}
		for i := range more {
			words += len(more[i].Words)
			after = more[i].Position
		}
		page = append(page, more...)
		if len(more) > 0 && words < wordsAtOnce {
			continue
		}
		if len(page) == 0 {
			return nil
		}
		if !l.apply(page) {
			l.log.Warn("the search index has no room for all that was learned: it keeps fewer words of each Mecha",
				"words", l.limit)
			after = 0
		}
		page, words = nil, 0
	}
}
