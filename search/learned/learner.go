package learned

import (
	"cmp"
	"math"
	"slices"
	"sync"

	"relay/db/relay"
	"relay/search"
)

// A learner computes the learned parts of the scores of one search; ranking.go has the
// formula. Its arrays are as long as the index. Later searches reuse them, since otherwise
// garbage collection would take much of the time.
type learner struct {
	v      search.View
	l      *Counts
	docs   []uint32 // documents by the number of the Mecha, from 1, or 0
	mechas []uint32 // numbers of the Mechas by document
	crews  int      // of the directory, at most trustedCrews
	now    uint32   // the hour as of which weights are read
	total  int64    // the weight of all exchanges
	all    float64  // the idf of all words

	counts  []learnedCount // of one word
	lists   [][]count      // of the words
	sure    []learnedSum   // all zero between searches; the trusted part, by document
	doubted []learnedSum   // all zero between searches; the further part that one crew alone has reported
	known   []uint32       // the documents with such sums
	names   []float64      // raw scores of candidates
	texts   []float64
}

// A learnedSum adds up the words of a document, and then becomes a part of its raw score.
type learnedSum struct {
	sum     float64
	matched float64 // the idf of the words
}

// A learnedCount is a count of a Mecha that the search may find or count.
type learnedCount struct {
	doc    uint32
	weight int64
	trust  float64
	alone  bool // one crew alone has reported it, of a Mecha without good standing
	finds  bool // enough crews have reported it that it alone finds the Mecha
}

var pool = sync.Pool{New: func() any { return new(learner) }}

func (l *Counts) Prepare(v search.View, words []string) (search.Boosted, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.counts == 0 {
		return nil, nil
	}
	docs, mechas, crews, err := v.Directory()
	if err != nil {
		return nil, err
	}
	n := pool.Get().(*learner)
	if size := v.Size(); uint64(len(n.sure)) < size {
		size += size / 8 // the index may have grown a little by the next search
		n.sure, n.doubted = make([]learnedSum, size), make([]learnedSum, size)
	}
	n.v, n.l, n.docs, n.mechas, n.crews = v, l, docs, mechas, min(crews, trustedCrews)
	n.now, n.total, n.all = l.now(), l.total, 0
	v.EachHidden(n.leaveOut)
	work := 0
	for _, list := range n.rarest(words) {
		if work += len(list); work > maxWork || v.Over() {
			break
		}
		n.add(list)
	}
	n.weigh()
	return n, nil
}

func (n *learner) Done() {
	for _, doc := range n.known {
		n.sure[doc], n.doubted[doc] = learnedSum{}, learnedSum{}
	}
	clear(n.lists)
	n.known, n.v, n.l, n.docs, n.mechas = n.known[:0], search.View{}, nil, nil, nil
	pool.Put(n)
}

// rarest returns the counts of the words, the words of the fewest Mechas first.
func (n *learner) rarest(words []string) [][]count {
	n.lists = n.lists[:0]
	for _, word := range words {
		n.lists = append(n.lists, n.l.words[search.HashTerm(word)])
	}
	slices.SortStableFunc(n.lists, func(a, b []count) int { return cmp.Compare(len(a), len(b)) })
	return n.lists
}

// leaveOut subtracts the exchanges of a Mecha that the caller may not see.
func (n *learner) leaveOut(doc uint64) {
	if m := n.mechas[doc]; int(m) < len(n.l.mechas) && n.docs[m] == uint32(doc)+1 {
		n.total -= n.l.exchanges(&n.l.mechas[m], n.l.newest)
	}
}

// trustIn returns the share with which a word that so many crews have reported adds to a score.
func trustIn(crews int) float64 {
	if crews > 1 {
		return 1 - doubt/float64(crews)
	}
	return oneCrewTrust
}

// alone reports whether one crew alone has reported a word, of a Mecha without good standing: a
// Mecha for which fewer crews than trustedCrews, or than the directory has, have reported any
// word.
func (n *learner) alone(c *count) bool {
	return c.crews < 2 && int(n.l.mechas[c.mecha].crews) < n.crews
}

// add adds one word to the counts of all documents that have it.
func (n *learner) add(list []count) {
	n.counts = n.counts[:0]
	var frequency int64 // the weight of all counts of more than one crew
	mechas := 0         // with such a count
	for i := range list {
		c := &list[i]
		if int(c.mecha) >= len(n.docs) || n.docs[c.mecha] == 0 {
			continue
		}
		doc := n.docs[c.mecha] - 1
		if n.v.IsHidden(doc) {
			continue
		}
		weight := n.l.fade(c.weight, c.hour, n.now)
		if weight == 0 {
			continue
		}
		alone := n.alone(c)
		if !alone { // counts that one crew makes up must not change the reports of others
			frequency += weight
			mechas++
		}
		finds := int(c.crews) >= min(n.crews, findingCrews)
		n.counts = append(n.counts, learnedCount{doc, weight, trustIn(int(c.crews)), alone, finds})
	}
	idf := n.idf(max(mechas, 1))
	n.all += idf
	for _, c := range n.counts {
		if !n.v.IsWanted(c.doc) {
			continue
		}
		if n.sure[c.doc].matched == 0 && n.doubted[c.doc].matched == 0 {
			n.known = append(n.known, c.doc)
		}
		to, idf, of := &n.sure[c.doc], idf, frequency
		if c.alone { // counted as one of them
			to, idf, of = &n.doubted[c.doc], n.idf(mechas+1), frequency+c.weight
		}
		weight := float64(c.weight) / relay.LearnedUnit
		to.sum += c.trust * n.rarity(c.doc, of-c.weight) * weight / (weight + 1) * math.Sqrt(float64(c.weight)/float64(of))
		to.matched += idf
		if c.finds {
			n.v.Find(c.doc)
		}
	}
}

// idf returns the inverse document frequency of a word by which so many Mechas were found.
func (n *learner) idf(mechas int) float64 {
	return math.Log(1 + (max(float64(n.v.Documents())-float64(mechas), 0)+0.5)/(float64(mechas)+0.5))
}

// rarity returns the idf of a word among the exchanges of all Mechas but one. weight is the
// weight of the exchanges among them that have the word.
func (n *learner) rarity(but uint32, weight int64) float64 {
	all := n.total - n.l.exchanges(&n.l.mechas[n.mechas[but]], n.l.newest)
	with := float64(weight) / relay.LearnedUnit
	without := float64(max(all-weight, 0))/relay.LearnedUnit + float64(n.v.Documents())
	return math.Log(1 + (without+0.5)/(with+ownExchanges+0.5))
}

// weigh turns the sums into the learned parts.
func (n *learner) weigh() {
	for _, doc := range n.known {
		m := &n.l.mechas[n.mechas[doc]]
		evidence := float64(n.l.fade(m.exchanges, m.hour, n.now)) / relay.LearnedUnit
		scale := fullWeight * evidence / (evidence + halfWeight)
		sure, all := &n.sure[doc], &n.doubted[doc]
		all.sum, all.matched = all.sum+sure.sum, all.matched+sure.matched
		sure.sum *= scale * math.Sqrt(sure.matched/n.all)
		all.sum = all.sum*scale*math.Sqrt(all.matched/n.all) - sure.sum
	}
}

func (n *learner) Part(doc uint64) float64 { return n.sure[doc].sum }

// Lift adds the learned parts to the raw scores of the candidates. They lift no candidate above
// a name that is nearly the query, or begins with it, and that ranked higher before. Words that
// one crew alone has reported lift a candidate at most half of the way to the next better text,
// so that presence does not do the rest.
func (n *learner) Lift(all []search.Scored) {
	n.names, n.texts = n.names[:0], n.texts[:0]
	for _, c := range all {
		n.texts = append(n.texts, c.Raw)
		if c.Named {
			n.names = append(n.names, c.Raw)
		}
	}
	slices.Sort(n.names)
	slices.Sort(n.texts)
	for i := range all {
		c := &all[i]
		sure, doubted := n.sure[c.Doc].sum, n.doubted[c.Doc].sum
		with := max(c.Raw, min(c.Raw+sure, belowName*nextAbove(c.Raw, n.names)))
		if doubted > 0 {
			with = max(with, min(c.Raw+sure+doubted, (c.Raw+nextAbove(c.Raw, n.texts))/2))
		}
		c.Raw = with
	}
}

// nextAbove returns the first of the ascending scores that is greater than score, or
// +Inf.
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

// Explain shows how many exchanges of a Mecha have not faded.
func (l *Counts) Explain(id relay.MechaNumber, e *search.Explanation) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if id < 0 || int64(id) >= int64(len(l.mechas)) {
		return
	}
	m := &l.mechas[id]
	e.Exchanges = math.Round(float64(l.fade(m.exchanges, m.hour, l.now()))/relay.LearnedUnit*100) / 100
}
