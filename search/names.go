package search

import (
	"slices"
	"strings"
	"unicode/utf8"

	"relay/db/relay"
)

// findNames finds the Mechas whose address or name is the query, is similar to
// it, or begins with it. It fills exact, commonTrigrams and similar.
func (s *searcher) findNames() error {
	q := s.query
	if err := s.findExact(); err != nil || q.words > nameQueryWords || len(q.name) < 2 {
		return err
	}
	s.mayBeName = true
	if err := s.countTrigrams(); err != nil {
		return err
	}
	return s.findNearNames()
}

// findExact fills exact. Addresses and names match regardless of case.
func (s *searcher) findExact() error {
	text := s.req.Query
	s.exact = map[uint64]exactness{}
	mark := func(kind exactness) func(uint64) {
		return func(n uint64) {
			if s.wanted.has(n) {
				s.exact[n] = max(s.exact[n], kind)
			}
		}
	}
	if _, err := relay.ParseAddress(text); err == nil {
		if err := s.each(inNames, addressMark+strings.ToLower(text), mark(exactAddress)); err != nil {
			return err
		}
	}
	return s.each(inNames, truncateKey(s.query.name), mark(exactName))
}

// countTrigrams fills commonTrigrams and similar.
func (s *searcher) countTrigrams() error {
	distinct := trigrams(s.query.name)
	slices.SortFunc(distinct, compareTrigrams)
	for _, t := range slices.Compact(distinct) {
		if err := s.each(inTrigram, string(t[:]), func(n uint64) {
			if s.commonTrigrams[n] < 255 && s.wanted.has(n) {
				s.commonTrigrams[n]++
				s.similar.add(n)
			}
		}); err != nil || s.clock.over() {
			return err
		}
	}
	return nil
}

// findNearNames makes candidates of the names one edit away from the query,
// however few trigrams they share with it.
func (s *searcher) findNearNames() error {
	q := s.query.name
	if utf8.RuneCountInString(q) < typoNameLength-1 {
		return nil
	}
	near, err := s.similarWords(inNames, truncateKey(q), 1)
	if err != nil {
		return err
	}
	for _, n := range near {
		if strings.HasPrefix(n.word, addressMark) {
			continue
		}
		if err := s.each(inNames, n.word, func(doc uint64) {
			if s.wanted.has(doc) {
				s.commonTrigrams[doc] = 255
				s.similar.add(doc)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// isNameCandidate reports whether a document has a name similar enough to the query.
func (s *searcher) isNameCandidate(n uint64) bool {
	return s.mayBeName && s.commonTrigrams[n] >= s.minTrigrams || len(s.exact) > 0 && s.exact[n] > notExact
}

// trigramThreshold returns the number of trigrams that a name must share with the query
// to be a candidate: enough for the least bonus, and more if too many names have that.
func (s *searcher) trigramThreshold() uint8 {
	if !s.mayBeName {
		return 255
	}
	var names [256]int // the number of names, by the trigrams they share with the query
	s.buffers.list = s.similar.appendTo(s.buffers.list[:0])
	for _, n := range s.buffers.list {
		names[s.commonTrigrams[n]]++
	}
	least := max(len([]rune(s.query.name))/4, 1)
	total := 0
	for n := 255; n >= least; n-- {
		total += names[n]
		if total > maxCandidates {
			return uint8(min(n+1, 255))
		}
	}
	return uint8(least)
}

// compareNames compares the names of a Mecha with a query that may be a name. It
// fills bonus, as a share of the best coarse score, nearName and begun.
func (r *reranker) compareNames(c *candidate, rec *record) {
	q := r.s.query.name
	of := rec.nameTrigrams()
	for i, name := range rec.names {
		c.bonus = max(c.bonus, r.oneNameBonus(name, of[i]))
		c.nearName = c.nearName || utf8.RuneCountInString(name) >= typoNameLength && oneEdit(name, q)
		c.begun = c.begun || strings.HasPrefix(name, q)
	}
	if c.bonus < nameBonusMinimum && !c.nearName {
		c.bonus = 0
	}
}

func (r *reranker) oneNameBonus(name string, ofName []trigram) float64 {
	q, ofQuery := r.s.query.name, r.queryTrigrams
	common := 0
	for i, k := 0, 0; i < len(ofName) && k < len(ofQuery); {
		switch c := compareTrigrams(ofName[i], ofQuery[k]); {
		case c < 0:
			i++
		case c > 0:
			k++
		default:
			common, i, k = common+1, i+1, k+1
		}
	}
	bonus := nameDiceBonus * 2 * float64(common) / float64(len(ofQuery)+len(ofName))
	switch {
	case name == q:
		bonus++
	case strings.HasPrefix(name, q):
		bonus += namePrefixBonus * (0.5 + 0.5*float64(len(q))/float64(len(name)))
	}
	return bonus
}

func compareTrigrams(a, b trigram) int {
	for i := range a {
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return 0
}

// oneEdit reports whether a becomes b when one letter is inserted, deleted or
// replaced, or two neighbours are swapped.
func oneEdit(a, b string) bool {
	if d := len(a) - len(b); d > utf8.UTFMax || d < -utf8.UTFMax {
		return false
	}
	x, y := []rune(a), []rune(b)
	if len(x) > len(y) {
		x, y = y, x
	}
	i := 0
	for i < len(x) && x[i] == y[i] {
		i++
	}
	switch len(y) - len(x) {
	case 1:
		return string(x[i:]) == string(y[i+1:])
	case 0:
		if i == len(x) || string(x[i+1:]) == string(y[i+1:]) {
			return i < len(x)
		}
		return i+1 < len(x) && x[i] == y[i+1] && x[i+1] == y[i] && string(x[i+2:]) == string(y[i+2:])
	}
	return false
}
