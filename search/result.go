package search

import (
	"slices"
)

// hit makes a hit of a candidate.
func (s *searcher) hit(c *candidate) (Hit, error) {
	h := Hit{ID: c.id, Address: c.address, Score: c.score, Matched: s.matched(c)}
	var err error
	h.Matched.SkillID, err = s.bestSkill(c.doc)
	if s.req.Explain {
		h.Explanation = s.explain(c)
	}
	return h, err
}

// bestSkill returns the id of the skill whose texts have the greatest weight of the
// query's terms; of equal ones, the first. It returns "" if no skill has a term other
// than request words.
func (s *searcher) bestSkill(doc uint64) (string, error) {
	r, err := s.v.record(doc)
	if err != nil {
		return "", err
	}
	sums := make([]float64, len(r.skills))
	seen := make(map[[2]int]bool)
	for _, p := range r.passages {
		if p.skill < 0 {
			continue
		}
		for _, h := range p.words {
			i := s.query.find(h)
			if i < 0 || seen[[2]int{p.skill, i}] || requestHashes[h] {
				continue
			}
			seen[[2]int{p.skill, i}] = true
			sums[p.skill] += s.query.terms[i].weight * s.query.terms[i].idf
		}
	}
	best, id := 0.0, ""
	for i, sum := range sums {
		if sum > best {
			best, id = sum, r.skills[i]
		}
	}
	return id, nil
}

// matched returns the matching terms, and their fields. Request words are listed only if
// no other term matched.
func (s *searcher) matched(c *candidate) Matched {
	var m Matched
	var where uint8
	for _, requests := range []bool{false, true} {
		for i, score := range c.scores {
			t := &s.query.terms[i]
			if score > 0 && requests == requestWords[t.term] && !slices.Contains(m.Terms, t.surface) {
				m.Terms = append(m.Terms, t.surface)
				where |= c.fields[i]
			}
		}
		if len(m.Terms) > 0 {
			break
		}
	}
	if c.exact >= exactName || c.nearName || c.bonus > 0 {
		where |= 1 << fieldName
	}
	for f := range fields {
		if where&(1<<f) != 0 {
			m.Fields = append(m.Fields, fieldNames[f])
		}
	}
	return m
}

func (s *searcher) explain(c *candidate) *Explanation {
	e := &Explanation{Raw: round(c.raw), Coarse: round(c.coarse), Text: round(c.text), Name: round(c.bonus),
		Coverage: round(c.coverage), Online: c.online, Learned: round(c.boost)}
	if s.boost != nil {
		s.boost.Explain(c.id, e)
	}
	switch c.exact {
	case exactAddress:
		e.Exact = "address"
	case exactSkill:
		e.Exact = "skill"
	case exactName:
		e.Exact = "name"
	}
	for i, score := range c.scores {
		if t := &s.query.terms[i]; score > 0 {
			e.Words = append(e.Words, WordExplanation{Word: t.surface, Weight: t.weight, IDF: round(t.idf), Score: round(score)})
		}
	}
	return e
}

// highlightWeights returns the highlighted terms with their weights: request words only
// if there are no others.
func (s *searcher) highlightWeights() map[string]float64 {
	weights := map[string]float64{}
	for _, requests := range []bool{false, true} {
		for i := range s.query.terms {
			if t := &s.query.terms[i]; requests == requestWords[t.term] {
				weights[t.term] = t.weight * t.idf
			}
		}
		if len(weights) > 0 {
			break
		}
	}
	return weights
}
