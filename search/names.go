package search

import (
	"slices"
	"strings"
	"unicode/utf8"

	"relay/db/relay"
)

// findNames looks whether the query is an address or a name, nearly one, or
// the beginning of one. It fills exact, counts and alike.
func (s *searcher) findNames() error {
	q := s.query
	if err := s.findExact(); err != nil || q.words > nameQueryWords || len(q.squeezed) < 2 {
		return err
	}
	s.byName = true
	if err := s.countTrigrams(); err != nil {
		return err
	}
	return s.findNearNames()
}

// findExact fills exact. The address of an unlisted Mecha, or the caller's own,
// makes it wanted: as written, or for those who may be seen in any case.
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
		if err := s.each(inNames, addressMark+text, mark(exactAddress)); err != nil {
			return err
		}
	}
	return s.each(inNames, clip(s.query.squeezed), mark(exactName))
}

// countTrigrams counts, for each document, the trigrams of the query that its
// names have.
func (s *searcher) countTrigrams() error {
	distinct := trigrams(s.query.squeezed)
	slices.SortFunc(distinct, compareTrigrams)
	for _, t := range slices.Compact(distinct) {
		if err := s.each(inTrigram, string(t[:]), func(n uint64) {
			if s.counts[n] < 255 && s.wanted.has(n) {
				s.counts[n]++
				s.alike.add(n)
			}
		}); err != nil || s.clock.over() {
			return err
		}
	}
	return nil
}

// findNearNames makes sure that names one edit away, and names that the query
// begins, are among the candidates, however few trigrams they share.
func (s *searcher) findNearNames() error {
	q := s.query.squeezed
	if utf8.RuneCountInString(q) < typoNameLength-1 {
		return nil
	}
	near, err := s.near(inNames, clip(q), 1)
	if err != nil {
		return err
	}
	for _, n := range near {
		if strings.HasPrefix(n.word, addressMark) {
			continue
		}
		if err := s.each(inNames, n.word, func(doc uint64) {
			if s.wanted.has(doc) {
				s.counts[doc] = 255
				s.alike.add(doc)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// nameBonus is what the names of a Mecha are worth to a query that may be one,
// as a share of the best text score, and whether one of them is the query but
// for one letter.
func (j *judge) nameBonus(names []string) (bonus float64, near bool) {
	for _, name := range names {
		bonus = max(bonus, j.oneNameBonus(name))
		near = near || utf8.RuneCountInString(name) >= typoNameLength && oneEdit(name, j.s.query.squeezed)
	}
	if bonus < nameBonusMinimum && !near {
		return 0, false
	}
	return bonus, near
}

func (j *judge) oneNameBonus(name string) float64 {
	q, ofQuery := j.s.query.squeezed, j.trigrams
	ofName := appendTrigrams(j.ofName[:0], name)
	slices.SortFunc(ofName, compareTrigrams)
	j.ofName = ofName
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

// oneEdit tells whether a and b differ by one letter more, less, other, or by
// two neighbours exchanged.
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
