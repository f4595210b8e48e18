package search

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"

	"relay/db/relay"
)

// learnableWords returns the words of a query by which the ranking learns: at most
// relay.MaxSearchWords, in the order of the alphabet, which does not tell the order in
// which they were typed. Left out are the requestWords, words with digits, which are
// numbers and ids, and single letters.
func learnableWords(query string) []string {
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

// A learner computes the learned parts of the scores of one search; ranking.go has the
// formula.
type learner struct {
	s      *searcher
	l      *learned
	docs   []uint32 // documents by the number of the Mecha, from 1; 0 if there is none
	crews  int      // of the directory, at most trustedCrews
	now    uint32   // the hour as of which weights are read
	total  int64    // the weight of all exchanges
	all    float64  // the idf of all words
	counts []lesson // of one word
}

// A lesson is a count of a Mecha that the search may find or count.
type lesson struct {
	doc    uint32
	weight int64
	trust  float64
}

// scoreLearned fills lessons, known and wellKnown.
func (s *searcher) scoreLearned() error {
	if s.learned == nil || len(s.query.learnable) == 0 {
		return nil
	}
	l := s.learned
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.counts == 0 {
		return nil
	}
	d, err := s.v.columns.directoryOf(s.v)
	if err != nil {
		return err
	}
	s.lessons = s.buffers.lessons
	n := learner{s: s, l: l, docs: d.docs, crews: d.crews, now: l.now(), total: l.total}
	n.leaveOutHidden(d)
	work := 0
	for _, list := range l.rarest(s.query.learnable) {
		if work += len(list); work > maxLearnedWork || s.clock.over() {
			break
		}
		n.add(list)
	}
	n.weigh(d)
	best, err := s.highest(s.buffers.list, maxLearnedCandidates, s.learnedPart)
	s.wellKnown = slices.Sorted(slices.Values(best))
	return err
}

// rarest gives the counts of the words, those of the fewest Mechas first.
func (l *learned) rarest(words []string) [][]count {
	lists := make([][]count, len(words))
	for i, word := range words {
		lists[i] = l.words[hashTerm(word)]
	}
	slices.SortStableFunc(lists, func(a, b []count) int { return cmp.Compare(len(a), len(b)) })
	return lists
}

// leaveOutHidden subtracts the exchanges of Mechas that the caller may not see.
func (n *learner) leaveOutHidden(d *directory) {
	if n.s.hidden == nil {
		return
	}
	n.s.buffers.list = n.s.hidden.appendTo(n.s.buffers.list[:0])
	for _, doc := range n.s.buffers.list {
		if m := d.mechas[doc]; int(m) < len(n.l.mechas) && n.docs[m] == uint32(doc)+1 {
			n.total -= n.l.exchanges(&n.l.mechas[m], n.l.newest)
		}
	}
}

// trust is the share with which a count adds to a score. A word that one crew alone has
// reported counts only for a Mecha of good standing: one for which so many crews as there
// are, up to trustedCrews, have reported some word.
func (n *learner) trust(c *count) float64 {
	switch {
	case c.crews > 1:
		return 1 - doubt/float64(c.crews)
	case int(n.l.mechas[c.mecha].crews) >= n.crews:
		return oneCrewTrust
	}
	return 0
}

// add adds one word to the lessons of all documents that have it.
func (n *learner) add(list []count) {
	n.counts = n.counts[:0]
	frequency := int64(0)
	for i := range list {
		c := &list[i]
		if int(c.mecha) >= len(n.docs) || n.docs[c.mecha] == 0 {
			continue
		}
		doc := n.docs[c.mecha] - 1
		if n.s.hidden != nil && n.s.hidden.has(uint64(doc)) {
			continue
		}
		trust := n.trust(c)
		weight := n.l.fade(c.weight, c.hour, n.now)
		if trust == 0 || weight == 0 {
			continue
		}
		frequency += weight
		n.counts = append(n.counts, lesson{doc, weight, trust})
	}
	df := float64(frequency) / relay.LearnedUnit
	others := max(float64(n.total-frequency)/relay.LearnedUnit, 0) + float64(n.s.v.totals.documents)
	idf := math.Log(1 + (others+0.5)/(df+0.5))
	n.all += idf
	for _, c := range n.counts {
		if doc := uint64(c.doc); n.s.wanted.has(doc) {
			weight := float64(c.weight) / relay.LearnedUnit
			n.s.lessons[doc] += c.trust * idf * weight / (weight + 1) * math.Sqrt(weight/df)
			n.s.buffers.learnedMatch[doc] += idf
			n.s.known.add(doc)
		}
	}
}

// weigh turns the sums into the learned parts. It lists their documents in buffers.list.
func (n *learner) weigh(d *directory) {
	n.s.buffers.list = n.s.known.appendTo(n.s.buffers.list[:0])
	for _, doc := range n.s.buffers.list {
		m := &n.l.mechas[d.mechas[doc]]
		evidence := float64(n.l.fade(m.exchanges, m.hour, n.now)) / relay.LearnedUnit
		n.s.lessons[doc] *= learnedWeight * math.Sqrt(n.s.buffers.learnedMatch[doc]/n.all) * evidence / (evidence + learnedDoubt)
	}
}

// learnedPart is the learned part of a document's raw score.
func (s *searcher) learnedPart(doc uint64) float64 {
	if s.lessons == nil {
		return 0
	}
	return s.lessons[doc]
}

// addLearned adds the learned parts to the raw scores of the candidates. None comes above
// a name that is nearly the query, or that begins with it, and that was above it before.
func (s *searcher) addLearned(list []*candidate) {
	if s.lessons == nil {
		return
	}
	var names []float64
	for _, c := range list {
		if c.nearName || c.begun {
			names = append(names, c.raw)
		}
	}
	slices.Sort(names)
	for _, c := range list {
		with := c.raw + s.lessons[c.doc]
		if i, _ := slices.BinarySearchFunc(names, c.raw, func(name, raw float64) int {
			if name > raw {
				return 1
			}
			return -1
		}); i < len(names) {
			with = max(c.raw, min(with, belowName*names[i]))
		}
		c.learned, c.raw = with-c.raw, with
	}
}

// exchangesOf is the number of exchanges of a Mecha that have not faded.
func (s *searcher) exchangesOf(id relay.MechaNumber) float64 {
	l := s.learned
	l.mu.RLock()
	defer l.mu.RUnlock()
	if id < 0 || int64(id) >= int64(len(l.mechas)) {
		return 0
	}
	m := &l.mechas[id]
	return float64(l.fade(m.exchanges, m.hour, l.now())) / relay.LearnedUnit
}

// isWellKnown tells whether a document is a candidate by what was learned.
func (s *searcher) isWellKnown(doc uint64) bool {
	_, found := slices.BinarySearch(s.wellKnown, doc)
	return found
}

// highest returns the documents with the highest scores, at most limit. Of those with
// equal scores the first addresses are taken.
func (s *searcher) highest(docs []uint64, limit int, score func(uint64) float64) ([]uint64, error) {
	if len(docs) <= limit {
		return docs, nil
	}
	lowest := lowestOf(docs, limit, score)
	var best, ties []uint64
	for _, n := range docs {
		switch c := cmp.Compare(score(n), lowest); {
		case c > 0:
			best = append(best, n)
		case c == 0:
			ties = append(ties, n)
		}
	}
	ties, err := s.firstAddresses(ties, limit-len(best))
	return append(best, ties...), err
}
