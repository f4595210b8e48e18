package search

import (
	"slices"
	"strings"
)

// An exact skill is one whose name says just what the query says. Its name has
// keys in the index, so that it is found in a large directory too, where more
// than maxCandidates others may have the words oftener.

// skillKeys gives the keys of a skill's name, and of a query that may be one:
// the name squeezed, as Mechas' names are compared; and its words without stop
// words, stemmed and in the order of the alphabet, so that "who reads
// invoices?" is "Invoice reading". One word of matter must stand there as
// written, and alone: "generat", typed on the way to a longer name, is no
// "Generator".
func skillKeys(name string) []string {
	var keys []string
	if q := squeeze(name); q != "" {
		keys = append(keys, clip(q))
	}
	var words []string
	matter, surface := 0, ""
	for _, t := range tokenize(name) {
		if t.joined {
			continue
		}
		words, surface = append(words, t.term), t.surface
		if !requestWords[t.term] {
			matter++
		}
	}
	switch {
	case len(words) == 1 && matter == 1:
		keys = append(keys, clip(surface))
	case matter > 1 && len(words) <= maxSkillWords:
		slices.Sort(words)
		keys = append(keys, clip(strings.Join(words, " ")))
	}
	return keys
}

// findSkills fills skilled: who of the found has the query as a skill.
func (s *searcher) findSkills() error {
	for _, key := range skillKeys(s.req.Query) {
		if err := s.each(inSkills, key, func(n uint64) {
			if !s.found.has(n) {
				return
			}
			if s.skilled == nil {
				s.skilled = newBitset(s.v.size)
			}
			s.skilled.add(n)
		}); err != nil {
			return err
		}
	}
	return nil
}

// isSkilled tells whether a document has the query as a skill.
func (s *searcher) isSkilled(n uint64) bool { return s.skilled != nil && s.skilled.has(n) }

// rough is the score that chooses the candidates and orders the rest: that of
// the combined text, and more than any text can have for an exact skill.
func (s *searcher) rough(n uint64) float64 {
	if s.isSkilled(n) {
		return s.coarse[n] + s.mostCoarse
	}
	return s.coarse[n]
}
