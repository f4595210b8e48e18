package search

import (
	"slices"
	"strings"
)

// An exact skill is a skill whose name is the query. Skill names have separate keys in
// the index, because in a large directory more than maxCandidates other profiles may have
// the same words more often.

// skillKeys returns the keys of a skill's name, or of a query that may be one. The first
// is the normalised name, which is how Mechas' names are compared. The second is the
// sorted stems of its words without stop words, so that the query "who reads invoices?"
// finds the skill "Invoice reading". If a single word names the subject, the key is that
// word unstemmed, and only if the name has no other word: the query "generat", typed on
// the way to a longer word, must not find the skill "Generator".
func skillKeys(name string) []string {
	var keys []string
	if n := normalise(name); n != "" {
		keys = append(keys, truncateKey(n))
	}
	var words []string
	subjects, surface := 0, "" // subjects: words that are not request words
	for _, t := range tokenize(name) {
		if t.joined {
			continue
		}
		words, surface = append(words, t.term), t.surface
		if !requestWords[t.term] {
			subjects++
		}
	}
	switch {
	case len(words) == 1 && subjects == 1:
		keys = append(keys, truncateKey(surface))
	case subjects > 1 && len(words) <= maxSkillWords:
		slices.Sort(words)
		keys = append(keys, truncateKey(strings.Join(words, " ")))
	}
	return keys
}

// findExactSkills fills exactSkills from the documents found so far.
func (s *searcher) findExactSkills() error {
	for _, key := range skillKeys(s.req.Query) {
		if err := s.each(inSkills, key, func(n uint64) {
			if !s.found.has(n) {
				return
			}
			if s.exactSkills == nil {
				s.exactSkills = newBitset(s.v.size)
			}
			s.exactSkills.add(n)
		}); err != nil {
			return err
		}
	}
	return nil
}

// hasExactSkill reports whether a document has a skill whose name is the query.
func (s *searcher) hasExactSkill(n uint64) bool { return s.exactSkills != nil && s.exactSkills.has(n) }

// coarseScore returns the score that chooses the candidates and sorts the other
// documents: BM25 of the combined text. A document with an exact skill gets more than any
// text can.
func (s *searcher) coarseScore(n uint64) float64 {
	if s.hasExactSkill(n) {
		return s.coarse[n] + s.maxCoarse
	}
	return s.coarse[n]
}
