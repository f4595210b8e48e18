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
	mechas []uint32 // numbers of the Mechas by document
	crews  int      // of the directory, at most trustedCrews
	now    uint32   // the hour as of which weights are read
	total  int64    // the weight of all exchanges
	all    float64  // the idf of all words
	counts []lesson // of one word
}

// A learnedSum adds up the words of a document, and then is a part of its raw score.
type learnedSum struct {
	sum     float64
	matched float64 // the idf of the words
}

// A lesson is a count of a Mecha that the search may find or count.
type lesson struct {
	doc    uint32
	weight int64
	trust  float64
	alone  bool // one crew alone has reported it, of a Mecha without good standing
	finds  bool // enough crews have reported it that it finds the Mecha by itself
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
	s.lessons, s.doubted = s.buffers.lessons, s.buffers.doubted
	n := learner{s: s, l: l, docs: d.docs, mechas: d.mechas, crews: d.crews, now: l.now(), total: l.total}
	n.leaveOutHidden(d)
	work := 0
	for _, list := range l.rarest(s.query.learnable) {
		if work += len(list); work > maxLearnedWork || s.clock.over() {
			break
		}
		n.add(list)
	}
	n.weigh(d)
	s.buffers.list = s.buffers.findable.appendTo(s.buffers.list[:0])
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

// trustIn is the share with which a word that so many crews have reported adds to a score.
func trustIn(crews int) float64 {
	if crews > 1 {
		return 1 - doubt/float64(crews)
	}
	return oneCrewTrust
}

// alone tells whether one crew alone has reported a word, of a Mecha without good standing: one
// for which fewer crews than there are, up to trustedCrews, have reported any word.
func (n *learner) alone(c *count) bool {
	return c.crews < 2 && int(n.l.mechas[c.mecha].crews) < n.crews
}

// add adds one word to the lessons of all documents that have it.
func (n *learner) add(list []count) {
	n.counts = n.counts[:0]
	var frequency int64 // the weight of all counts that are not of one crew alone
	mechas := 0         // that have such a count
	for i := range list {
		c := &list[i]
		if int(c.mecha) >= len(n.docs) || n.docs[c.mecha] == 0 {
			continue
		}
		doc := n.docs[c.mecha] - 1
		if n.s.hidden != nil && n.s.hidden.has(uint64(doc)) {
			continue
		}
		weight := n.l.fade(c.weight, c.hour, n.now)
		if weight == 0 {
			continue
		}
		alone := n.alone(c)
		if !alone { // what one crew makes up must not change what others have reported
			frequency += weight
			mechas++
		}
		n.counts = append(n.counts, lesson{doc, weight, trustIn(int(c.crews)), alone, int(c.crews) >= min(n.crews, findingCrews)})
	}
	idf := n.idf(max(mechas, 1))
	n.all += idf
	for _, c := range n.counts {
		if !n.s.wanted.has(uint64(c.doc)) {
			continue
		}
		to, idf, of := &n.s.buffers.lessons[c.doc], idf, frequency
		if c.alone { // as if it were one of them
			to, idf, of = &n.s.buffers.doubted[c.doc], n.idf(mechas+1), frequency+c.weight
		}
		weight := float64(c.weight) / relay.LearnedUnit
		to.sum += c.trust * n.rarity(c.doc, of-c.weight) * weight / (weight + 1) * math.Sqrt(float64(c.weight)/float64(of))
		to.matched += idf
		n.s.known.add(uint64(c.doc))
		if c.finds {
			n.s.buffers.findable.add(uint64(c.doc))
		}
	}
}

// idf is that of a word which so many Mechas were found by.
func (n *learner) idf(mechas int) float64 {
	return math.Log(1 + (max(float64(n.s.v.totals.documents)-float64(mechas), 0)+0.5)/(float64(mechas)+0.5))
}

// rarity is the idf of a word among the exchanges of all Mechas but one, which have this weight
// with the word.
func (n *learner) rarity(but uint32, weight int64) float64 {
	all := n.total - n.l.exchanges(&n.l.mechas[n.mechas[but]], n.l.newest)
	with := float64(weight) / relay.LearnedUnit
	without := float64(max(all-weight, 0))/relay.LearnedUnit + float64(n.s.v.totals.documents)
	return math.Log(1 + (without+0.5)/(with+ownExchanges+0.5))
}

// weigh turns the sums into the learned parts.
func (n *learner) weigh(d *directory) {
	n.s.buffers.list = n.s.known.appendTo(n.s.buffers.list[:0])
	for _, doc := range n.s.buffers.list {
		m := &n.l.mechas[d.mechas[doc]]
		evidence := float64(n.l.fade(m.exchanges, m.hour, n.now)) / relay.LearnedUnit
		scale := learnedWeight * evidence / (evidence + learnedDoubt)
		sure, all := &n.s.buffers.lessons[doc], &n.s.buffers.doubted[doc]
		all.sum, all.matched = all.sum+sure.sum, all.matched+sure.matched
		sure.sum *= scale * math.Sqrt(sure.matched/n.all)
		all.sum = all.sum*scale*math.Sqrt(all.matched/n.all) - sure.sum
	}
}

// learnedPart is the learned part of a document's raw score.
func (s *searcher) learnedPart(doc uint64) float64 {
	if s.lessons == nil {
		return 0
	}
	return s.lessons[doc].sum
}

// addLearned adds the learned parts to the raw scores of the candidates. None comes above
// a name that is nearly the query, or that begins with it, and that was above it before. What
// one crew alone has reported lifts none above a better text: at most half of the way to it, so
// that presence does not do the rest.
func (s *searcher) addLearned(list []*candidate) {
	if s.lessons == nil {
		return
	}
	var names, texts []float64
	for _, c := range list {
		texts = append(texts, c.raw)
		if c.nearName || c.begun {
			names = append(names, c.raw)
		}
	}
	slices.Sort(names)
	slices.Sort(texts)
	for _, c := range list {
		sure, doubted := s.lessons[c.doc].sum, s.doubted[c.doc].sum
		with := max(c.raw, min(c.raw+sure, belowName*nextAbove(c.raw, names)))
		if doubted > 0 {
			with = max(with, min(c.raw+sure+doubted, (c.raw+nextAbove(c.raw, texts))/2))
		}
		c.learned, c.raw = with-c.raw, with
	}
}

// nextAbove is the first of the scores, which ascend, that is greater than score; +Inf if
// there is none.
func nextAbove(score float64, scores []float64) float64 {
	i, _ := slices.BinarySearchFunc(scores, score, func(other, score float64) int {
		if other > score {
			return 1
		}
		return -1
	})
	if i == len(scores) {
		return math.Inf(1)
	}
	return scores[i]
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
