package search

import (
	"context"
	"maps"
	"slices"
	"strings"
	"unicode"

	"relay/db/relay"
)

// A Boost adds to scores what the texts do not show. Any goroutine may call its methods, except Follow.
type Boost interface {
	// Follow takes new changes. Index.Follow calls it when all entries have been applied.
	Follow(context.Context) error
	// At returns the position of the last change that Follow has taken.
	At() relay.Position
	// Prepare returns the additions to the scores of one search for these words, or nil.
	Prepare(v View, words []string) (Boosted, error)
	// Explain fills in the Boost's part of an explanation.
	Explain(id relay.MechaNumber, e *Explanation)
}

// Boosted is what a Boost adds to the scores of one search.
type Boosted interface {
	// Part returns the addition to the raw score of a document that is not a candidate.
	Part(doc uint64) float64
	// Lift adds to the raw scores of the candidates.
	Lift([]Scored)
	// Done ends the search.
	Done()
}

// Scored is a candidate for a Boost.
type Scored struct {
	Doc   uint64
	Raw   float64
	Named bool // a name is nearly the query, or begins with it
}

// MaxMecha is the greatest number of a Mecha that View.Directory has, since its arrays have an element
// for each; CountedCrews is the maximum number of crews that it counts.
const (
	MaxMecha     = 1<<24 - 1
	CountedCrews = 3
)

// A View is a Boost's view of a search. Documents are numbers from 0 to Size.
type View struct{ s *searcher }

// Size returns how many documents there are, deleted ones included.
func (v View) Size() uint64 { return v.s.v.size }

// Documents returns how many documents are not deleted.
func (v View) Documents() int { return v.s.v.totals.documents }

// Over reports whether the search must end.
func (v View) Over() bool { return v.s.clock.over() }

// IsHidden reports whether the caller may not see a document.
func (v View) IsHidden(doc uint32) bool { return v.s.hidden != nil && v.s.hidden.has(uint64(doc)) }

// IsWanted reports whether a document may be found.
func (v View) IsWanted(doc uint32) bool { return v.s.wanted.has(uint64(doc)) }

// Find makes a document a match, whatever its text.
func (v View) Find(doc uint32) { v.s.buffers.findable.add(uint64(doc)) }

// EachHidden calls f with the documents that the caller may not see.
func (v View) EachHidden(f func(doc uint64)) {
	if v.s.hidden == nil {
		return
	}
	v.s.buffers.list = v.s.hidden.appendTo(v.s.buffers.list[:0])
	for _, doc := range v.s.buffers.list {
		f(doc)
	}
}

// Directory returns the document, from 1, by the number of the Mecha, or 0; the number of the Mecha
// by document, deleted ones included; and the number of crews.
func (v View) Directory() (docs, mechas []uint32, crews int, err error) {
	d, err := v.s.v.columns.directoryOf(v.s.v)
	if err != nil {
		return nil, nil, 0, err
	}
	return d.docs, d.mechas, d.crews, nil
}

// subjectWords returns the words of a query that name its subject: at most
// relay.MaxSearchWords, in alphabetical order, which hides the order in which they were
// typed. Left out are the requestWords, words with digits, which are numbers and ids, and
// single letters.
func subjectWords(query string) []string {
	words := map[string]bool{}
	for _, t := range tokenize(query) {
		if len(words) == relay.MaxSearchWords {
			break
		}
		if !t.joined && len(t.surface) > 1 && !requestWords[t.term] && !strings.ContainsFunc(t.surface, unicode.IsDigit) {
			words[t.term] = true
		}
	}
	return slices.Sorted(maps.Keys(words))
}

// prepareBoost fills boosted and wellKnown.
func (s *searcher) prepareBoost() (err error) {
	if s.boost == nil || len(s.query.subject) == 0 {
		return nil
	}
	if s.boosted, err = s.boost.Prepare(View{s}, s.query.subject); err != nil || s.boosted == nil {
		return err
	}
	s.buffers.list = s.buffers.findable.appendTo(s.buffers.list[:0])
	best, err := s.highest(s.buffers.list, maxBoosted, s.boosted.Part)
	s.wellKnown = slices.Sorted(slices.Values(best))
	return err
}

// lift has the Boost add to the raw scores of the candidates.
func (s *searcher) lift(list []*candidate) {
	if s.boosted == nil {
		return
	}
	scored := make([]Scored, len(list))
	for i, c := range list {
		scored[i] = Scored{c.doc, c.raw, c.nearName || c.begun}
	}
	s.boosted.Lift(scored)
	for i, c := range list {
		c.boost, c.raw = scored[i].Raw-c.raw, scored[i].Raw
	}
}

// boostOf returns what the Boost adds to a document that is not a candidate.
func (s *searcher) boostOf(doc uint64) float64 {
	if s.boosted == nil {
		return 0
	}
	return s.boosted.Part(doc)
}

// isWellKnown reports whether a document is a candidate by a Boost.
func (s *searcher) isWellKnown(doc uint64) bool {
	_, found := slices.BinarySearch(s.wellKnown, doc)
	return found
}
