package search

import (
	"math"
	"slices"

	"relay/db/relay"
)

// A candidate is a profile that is scored by its record.
type candidate struct {
	doc      uint64
	id       relay.MechaNumber
	address  relay.Address
	exact    exactness
	bonus    float64     // of the best of its names, as a share of searcher.bestCoarse
	nearName bool        // a name is one edit away from the query
	begun    bool        // a name begins with the query
	scores   []float64   // of each term; nil before the candidate is examined
	fields   []uint8     // the fields that have each term, as bits
	pairs    []bool      // for each pair of the query, whether the profile has it
	names    []nameMatch // names of the Mecha and its skills that have terms of the query
	coarse   float64     // BM25 of the combined text
	text     float64     // the text score; ranking.go has the formulas of this and the following
	coverage float64
	boost    float64 // the part of a Boost
	raw      float64
	score    float64
	online   bool
}

// A nameMatch is a name of a profile or skill: the query's terms in it, and the
// length of its vector in the cosine.
type nameMatch struct {
	terms  []int
	length float64
}

// A reranker scores candidates by their records. Its working memory is reused for each
// record. The slices of the candidates are parts of a few large ones, since a search has
// hundreds of candidates.
type reranker struct {
	s             *searcher
	queryTrigrams []trigram               // sorted; nil if the query is not a name
	found         []float64               // weighted frequency of each term in the record
	counts        [maxTerms][fields]uint8 // of each term in each field, at most maxCount
	next          [maxTerms][2]uint64     // for each term, the terms that follow it in the record, as bits
	norm          [fields]float64         // BM25F's normalisation of each field's length

	candidates []candidate
	scores     []float64
	fields     []uint8
	pairs      []bool
}

func (s *searcher) newReranker(documents int) *reranker {
	terms, pairs := len(s.query.terms), len(s.query.pairs)
	r := &reranker{s: s, found: make([]float64, terms), candidates: make([]candidate, 0, documents),
		scores: make([]float64, documents*terms), fields: make([]uint8, documents*terms),
		pairs: make([]bool, documents*pairs)}
	if s.mayBeName {
		r.queryTrigrams = trigrams(s.query.name)
		slices.SortFunc(r.queryTrigrams, compareTrigrams)
	}
	return r
}

// newCandidate returns the next, empty candidate.
func (r *reranker) newCandidate() *candidate {
	n, terms, pairs := len(r.candidates), len(r.s.query.terms), len(r.s.query.pairs)
	r.candidates = append(r.candidates, candidate{scores: r.scores[n*terms : (n+1)*terms],
		fields: r.fields[n*terms : (n+1)*terms], pairs: r.pairs[n*pairs : (n+1)*pairs]})
	return &r.candidates[n]
}

// examine reads a document's record and finds the terms, pairs and names of the
// query in it.
func (r *reranker) examine(doc uint64) (*candidate, error) {
	rec, err := r.s.v.record(doc)
	if err != nil {
		return nil, &DamageError{err}
	}
	q := r.s.query
	c := r.newCandidate()
	if c.exact = r.s.exact[doc]; c.exact == notExact && r.s.hasExactSkill(doc) {
		c.exact = exactSkill
	}
	c.doc, c.id, c.address, c.coarse = doc, rec.id, rec.address, r.s.coarse[doc]
	if r.queryTrigrams != nil {
		r.compareNames(c, rec)
	}
	clear(r.found)
	clear(r.counts[:len(r.found)])
	clear(r.next[:])
	r.setNorms(rec)
	for i := range rec.passages {
		r.examinePassage(c, &rec.passages[i])
	}
	for i, f := range r.found {
		if f > 0 {
			t := &q.terms[i]
			c.scores[i] = t.weight * t.idf * f * (fineK1 + 1) / (f + fineK1)
		}
	}
	for i, p := range q.pairs {
		c.pairs[i] = r.next[p.a][p.b/64]&(1<<(p.b%64)) != 0
	}
	return c, nil
}

func (r *reranker) setNorms(rec *record) {
	t := &r.s.v.totals
	for f := range fields {
		average := max(float64(t.lengths[f])/max(float64(t.documents), 1), 0.1)
		r.norm[f] = 1 - fineLength[f] + fineLength[f]*float64(rec.lengths[f])/average
	}
}

func (r *reranker) examinePassage(c *candidate, p *passage) {
	q := r.s.query
	previous := -1
	weight := fineWeight[p.field] / r.norm[p.field]
	count := func(hash uint32) int {
		i := q.find(hash)
		if i >= 0 && r.counts[i][p.field] < maxCount {
			r.counts[i][p.field]++
			r.found[i] += weight
			c.fields[i] |= 1 << p.field
		}
		return i
	}
	for _, h := range p.words {
		i := count(h)
		if i >= 0 && previous >= 0 {
			r.next[previous][i/64] |= 1 << (i % 64)
		}
		previous = i
	}
	for _, h := range p.joined {
		count(h)
	}
	if p.field == fieldName || p.field == fieldSkillName {
		r.examineName(c, p)
	}
}

// examineName records the query's terms in a name, and the length of the name's
// vector: the query "human rights" is nearer to the name "human rights" than to
// "human rights violations".
func (r *reranker) examineName(c *candidate, p *passage) {
	const maxWords = 32
	q := r.s.query
	other := otherNameWord * math.Log(max(float64(r.s.v.totals.documents), 2))
	var n nameMatch
	sum := 0.0
	words := p.words[:min(len(p.words), maxWords)]
	for k, h := range words {
		if slices.Contains(words[:k], h) {
			continue
		}
		w := other
		if i := q.find(h); i >= 0 {
			n.terms = append(n.terms, i)
			w = q.terms[i].idf
		}
		if requestHashes[h] {
			w *= requestWeight
		}
		sum += w * w
	}
	if len(n.terms) > 0 {
		n.length = math.Sqrt(sum)
		c.names = append(c.names, n)
	}
}

// requestHashes are the hashes of the requestWords.
var requestHashes = func() map[uint32]bool {
	set := map[uint32]bool{}
	for w := range requestWords {
		set[HashTerm(w)] = true
	}
	return set
}()

// examineAll examines the documents, as far as the time allows.
func (s *searcher) examineAll(docs []uint64) ([]*candidate, error) {
	r := s.newReranker(len(docs))
	list := make([]*candidate, 0, len(docs))
	for i, doc := range docs {
		if i&15 == 15 && s.clock.over() {
			break
		}
		c, err := r.examine(doc)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// countPairs counts the candidates that have each pair of the query. The rarity
// of a pair is taken from the candidates alone: this needs no index of pairs, and
// most documents that have both words are candidates.
func (s *searcher) countPairs(list []*candidate) {
	for i := range s.query.pairs {
		for _, c := range list {
			if c.pairs[i] {
				s.query.pairs[i].frequency++
			}
		}
	}
}

// score computes the scores of all candidates; ranking.go has the formula.
func (s *searcher) score(list []*candidate) {
	s.countPairs(list)
	best := 0.0
	for _, c := range list {
		c.raw = s.rawScore(c)
		if !c.nearName {
			best = max(best, c.raw)
		}
	}
	for _, c := range list {
		if c.nearName {
			c.raw = max(c.raw, nearNameShare*best)
		}
	}
	s.lift(list)
	for _, c := range list {
		c.score = s.finalScore(c)
	}
}

func (s *searcher) rawScore(c *candidate) float64 {
	q := s.query
	whole := s.fineScore(c, &q.whole)
	c.text, c.coverage = whole, s.coverage(c, &q.whole)
	if len(q.sentences) > 1 {
		best := 0.0
		for i := range q.sentences {
			best = max(best, s.fineScore(c, &q.sentences[i]))
		}
		c.text = (1-sentenceShare)*whole + sentenceShare*best
	}
	bestCoarse := s.bestCoarse
	if bestCoarse == 0 {
		bestCoarse = 1
	}
	return (1-coarseShare)*c.text + coarseShare*c.coarse + c.bonus*bestCoarse
}

// finalScore returns a score between 0 and 1; ranking.go has the tiers.
func (s *searcher) finalScore(c *candidate) float64 {
	c.online = s.req.Online != nil && s.req.Online(c.id)
	score := s.normalScore(c.raw)
	if c.online {
		score *= 1 + onlineNudge
	}
	switch {
	case c.exact == exactAddress || s.req.Query == "":
		score = 1
	case c.exact == exactName:
		score = nameTier + nameSpan*min(score, 1)
	case c.exact == exactSkill:
		score = skillTier + skillSpan*min(score, 1)
	default:
		score *= textSpan
	}
	return round(score)
}

// normalScore maps a score to 0–1: a profile with every query word in a strong
// field scores about 0.8.
func (s *searcher) normalScore(raw float64) float64 {
	weight := s.query.weight
	if weight == 0 {
		weight = 1
	}
	return raw / (raw + weight)
}

// round drops the last digits, which depend on rounding errors, so that they do
// not decide the order.
func round(score float64) float64 { return math.Round(score*1e6) / 1e6 }

// fineScore returns the score of one candidate for one sentence.
func (s *searcher) fineScore(c *candidate, sen *sentence) float64 {
	sum := 0.0
	for _, i := range sen.terms {
		sum += c.scores[i]
	}
	if sum == 0 {
		return 0
	}
	rarity := func(i int) float64 { return s.idf(float64(s.query.pairs[i].frequency)) }
	for _, st := range sen.steps {
		if c.pairs[st.straight] {
			sum += pairWeight * rarity(st.straight)
		} else if c.pairs[st.reversed] {
			sum += loosePairWeight * rarity(st.reversed)
		}
		if st.skipping >= 0 && c.pairs[st.skipping] {
			sum += loosePairWeight * rarity(st.skipping)
		}
	}
	best := 0.0
	for _, n := range c.names {
		best = max(best, s.nameScore(&n, sen))
	}
	sum += nameWeight * best
	return sum * (1 + coverageWeight*s.coverage(c, sen))
}

// nameScore returns the cosine of a name and a sentence, times the sentence's length.
func (s *searcher) nameScore(n *nameMatch, sen *sentence) float64 {
	dot := 0.0
	for _, i := range n.terms {
		if !slices.Contains(sen.terms, i) {
			continue
		}
		t := &s.query.terms[i]
		w := t.idf
		if requestHashes[t.hash] {
			w *= requestWeight
		}
		dot += t.weight * t.idf * w
	}
	return dot / n.length
}

// coverage returns the share of a sentence's weight whose terms a candidate has.
func (s *searcher) coverage(c *candidate, sen *sentence) float64 {
	has, all := 0.0, 0.0
	for _, i := range sen.terms {
		t := &s.query.terms[i]
		all += t.weight * t.idf
		if c.scores[i] > 0 {
			has += t.weight * t.idf
		}
	}
	if all == 0 {
		return 0
	}
	return has / all
}
