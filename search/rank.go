package search

import (
	"math"
	"slices"

	"relay/db/relay"
)

// A candidate is a profile judged by its record.
type candidate struct {
	doc      uint64
	id       relay.MechaNumber
	address  relay.Address
	exact    exactness
	bonus    float64   // for the name as a whole, × searcher.top
	near     bool      // a name is the query but for one letter
	scores   []float64 // of each term
	fields   []uint8   // where each term was found, as bits
	pairs    []bool    // which pairs of the query were found
	names    []named
	coarse   float64
	text     float64
	coverage float64
	raw      float64
	score    float64
	online   bool
}

// named is one name of a profile or skill: the query's terms in it, and the
// length of its vector in the cosine.
type named struct {
	terms  []int
	length float64
}

// A judge looks at records. It keeps what it needs for that from one to the
// next, and cuts what candidates keep from large pieces: there are hundreds.
type judge struct {
	s        *searcher
	trigrams []trigram // of the query, sorted; nil if it is no name
	ofName   []trigram
	record   record
	found    []float64               // weighted frequency of each term in the record
	counts   [maxTerms][fields]uint8 // of each term in each field, at most maxCount
	next     [maxTerms][2]uint64
	norm     [fields]float64

	candidates []candidate
	scores     []float64
	fields     []uint8
	pairs      []bool
}

func (s *searcher) newJudge(documents int) *judge {
	terms, pairs := len(s.query.terms), len(s.query.pairs)
	j := &judge{s: s, found: make([]float64, terms), candidates: make([]candidate, 0, documents),
		scores: make([]float64, documents*terms), fields: make([]uint8, documents*terms), pairs: make([]bool, documents*pairs)}
	if s.byName {
		j.trigrams = trigrams(s.query.squeezed)
		slices.SortFunc(j.trigrams, compareTrigrams)
	}
	return j
}

// candidate gives the next one, which has nothing yet.
func (j *judge) candidate() *candidate {
	n, terms, pairs := len(j.candidates), len(j.s.query.terms), len(j.s.query.pairs)
	j.candidates = append(j.candidates, candidate{scores: j.scores[n*terms : (n+1)*terms],
		fields: j.fields[n*terms : (n+1)*terms], pairs: j.pairs[n*pairs : (n+1)*pairs]})
	return &j.candidates[n]
}

// examine reads a document's record and notes what it has of the query.
func (j *judge) examine(doc uint64) (*candidate, error) {
	if err := j.s.v.record(doc, &j.record); err != nil {
		return nil, &DamageError{err}
	}
	q, r := j.s.query, &j.record
	c := j.candidate()
	if c.exact = j.s.exact[doc]; c.exact == notExact && j.s.isSkilled(doc) {
		c.exact = exactSkill
	}
	c.doc, c.id, c.address, c.coarse = doc, r.id, r.address, j.s.coarse[doc]
	if j.trigrams != nil {
		c.bonus, c.near = j.nameBonus(r.names)
	}
	clear(j.found)
	clear(j.counts[:len(j.found)])
	clear(j.next[:])
	j.normalise(r)
	for i := range r.passages {
		j.passage(c, &r.passages[i])
	}
	for i, f := range j.found {
		if f > 0 {
			t := &q.terms[i]
			c.scores[i] = t.weight * t.idf * f * (fineK1 + 1) / (f + fineK1)
		}
	}
	for i, p := range q.pairs {
		c.pairs[i] = j.next[p.a][p.b/64]&(1<<(p.b%64)) != 0
	}
	return c, nil
}

func (j *judge) normalise(r *record) {
	t := &j.s.v.totals
	for f := range fields {
		average := max(float64(t.lengths[f])/max(float64(t.documents), 1), 0.1)
		j.norm[f] = 1 - fineLength[f] + fineLength[f]*float64(r.lengths[f])/average
	}
}

func (j *judge) passage(c *candidate, p *passage) {
	q := j.s.query
	previous := -1
	weight := fineWeight[p.field] / j.norm[p.field]
	note := func(h uint32) int {
		i := q.find(h)
		if i >= 0 && j.counts[i][p.field] < maxCount {
			j.counts[i][p.field]++
			j.found[i] += weight
			c.fields[i] |= 1 << p.field
		}
		return i
	}
	for _, h := range p.words {
		i := note(h)
		if i >= 0 && previous >= 0 {
			j.next[previous][i/64] |= 1 << (i % 64)
		}
		previous = i
	}
	for _, h := range p.wholes {
		note(h)
	}
	if p.field == fieldName || p.field == fieldSkillName {
		j.name(c, p)
	}
}

// name notes a name's terms and how much else it says: "human rights" is nearer
// to "human rights" than "human rights violations" is.
func (j *judge) name(c *candidate, p *passage) {
	const most = 32 // words of a name
	q := j.s.query
	other := otherNameWord * math.Log(max(float64(j.s.v.totals.documents), 2))
	var n named
	sum := 0.0
	words := p.words[:min(len(p.words), most)]
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

// requestHashes are the requestWords as records have them.
var requestHashes = func() map[uint32]bool {
	set := map[uint32]bool{}
	for w := range requestWords {
		set[hashTerm(w)] = true
	}
	return set
}()

// judgeAll examines the documents and scores them. Pairs are as rare as they
// are among these: that needs no index of pairs, and those who have both words
// are among the best anyway.
func (s *searcher) judgeAll(docs []uint64) ([]*candidate, error) {
	j := s.newJudge(len(docs))
	list := make([]*candidate, 0, len(docs))
	for i, doc := range docs {
		if i&15 == 15 && s.clock.over() {
			break
		}
		c, err := j.examine(doc)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

func (s *searcher) countPairs(list []*candidate) {
	for i := range s.query.pairs {
		for _, c := range list {
			if c.pairs[i] {
				s.query.pairs[i].frequency++
			}
		}
	}
}

// score brings all together; see ranking.go.
func (s *searcher) score(list []*candidate) {
	s.countPairs(list)
	best := 0.0
	for _, c := range list {
		c.raw = s.rawScore(c)
		if !c.near {
			best = max(best, c.raw)
		}
	}
	for _, c := range list {
		if c.near {
			c.raw = max(c.raw, nearNameShare*best)
		}
		c.score = s.finalScore(c)
	}
}

func (s *searcher) rawScore(c *candidate) float64 {
	q := s.query
	whole := s.fine(c, &q.whole)
	c.text, c.coverage = whole, s.coverage(c, &q.whole)
	if len(q.sentences) > 1 {
		best := 0.0
		for i := range q.sentences {
			best = max(best, s.fine(c, &q.sentences[i]))
		}
		c.text = (1-sentenceShare)*whole + sentenceShare*best
	}
	top := s.top
	if top == 0 {
		top = 1
	}
	return (1-coarseShare)*c.text + coarseShare*c.coarse + c.bonus*top
}

// finalScore is between 0 and 1: the tiers of ranking.go, presence a nudge.
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

// normalScore brings a score to 0–1: what has all words of the query in good
// places comes to about 0.8.
func (s *searcher) normalScore(raw float64) float64 {
	most := s.query.most
	if most == 0 {
		most = 1
	}
	return raw / (raw + most)
}

// round makes the order independent of the last bits of a float.
func round(score float64) float64 { return math.Round(score*1e6) / 1e6 }

// fine is the score of one candidate for one sentence.
func (s *searcher) fine(c *candidate, sen *sentence) float64 {
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

// nameScore is the cosine of a name and a sentence, times the sentence's length.
func (s *searcher) nameScore(n *named, sen *sentence) float64 {
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

// coverage is how much of a sentence's weight a candidate has.
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
