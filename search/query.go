package search

import (
	"math"
	"strings"
)

// A term is a word of the query as the index knows it.
type term struct {
	token
	hash   uint32
	weight float64
	idf    float64
	bags   []bag // who has it
}

// A query is a request's text, read against one state of the index.
type query struct {
	text      string
	squeezed  string
	words     int // different words, as typed
	terms     []term
	sentences []sentence
	most      float64 // the weight of all words, unknown ones as rare as can be
	corrected string
	byTerm    map[string]int
	byHash    map[uint32]int
	hashes    [16]uint64 // a filter before byHash: most words of a profile are in no query
	pairs     []pair
	whole     sentence
}

// find gives the index of the term with this hash, -1 if the query has none.
func (q *query) find(hash uint32) int {
	if q.hashes[hash>>6&15]&(1<<(hash&63)) == 0 {
		return -1
	}
	if i, ok := q.byHash[hash]; ok {
		return i
	}
	return -1
}

// A sentence is the terms that one sentence of the query has, as indices, in order.
type sentence struct {
	terms []int
	order []int
	steps []step
}

// A pair is two terms that are neighbours in a profile, in this order.
type pair struct {
	a, b      int
	frequency int // among the candidates
}

// A step is a word of a sentence and the next: as indices of pairs, what may
// be found of them in a profile.
type step struct {
	straight int // the two
	reversed int // in the other order
	skipping int // the first and the one after the next; -1: the sentence ends
}

// link fills in the steps of all sentences, and the whole query as one.
func (q *query) link() {
	index := map[[2]int]int{}
	pairOf := func(a, b int) int {
		i, ok := index[[2]int{a, b}]
		if !ok {
			i = len(q.pairs)
			index[[2]int{a, b}], q.pairs = i, append(q.pairs, pair{a: a, b: b})
		}
		return i
	}
	inWhole, steps := map[int]bool{}, map[step]bool{}
	for n := range q.sentences {
		s := &q.sentences[n]
		for i := 0; i+1 < len(s.order); i++ {
			a, b := s.order[i], s.order[i+1]
			if a == b {
				continue
			}
			st := step{pairOf(a, b), pairOf(b, a), -1}
			if i+2 < len(s.order) && s.order[i+2] != a {
				st.skipping = pairOf(a, s.order[i+2])
			}
			s.steps = append(s.steps, st)
			if !steps[st] {
				steps[st] = true
				q.whole.steps = append(q.whole.steps, st)
			}
		}
		for _, t := range s.terms {
			if !inWhole[t] {
				inWhole[t] = true
				q.whole.terms = append(q.whole.terms, t)
			}
		}
	}
}

// splitSentences cuts at the ends of sentences and lines.
func splitSentences(text string) []span {
	var out []span
	start := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '.', '?', '!', ';':
			if i+1 < len(text) && text[i+1] != ' ' && text[i+1] != '\n' {
				continue
			}
		case '\n':
		default:
			continue
		}
		out, start = append(out, span{start, i + 1}), i+1
	}
	if start < len(text) {
		out = append(out, span{start, len(text)})
	}
	return out
}

type span struct{ start, end int }

// A reader reads a query: it knows the vocabulary that the caller may see.
type reader struct {
	s    *searcher
	q    *query
	seen map[string]bool     // words as typed
	fix  []fix               // corrections, in the order of the text
	near map[string][]string // what unknown words may be, by the word as typed
}

type fix struct {
	span
	word string
}

// readQuery finds the terms of the text: its words, what the unknown ones were
// meant to be, what the last one may become.
func (s *searcher) readQuery(text string) (*query, error) {
	q := &query{text: text, squeezed: squeezeName(text), byTerm: map[string]int{}, byHash: map[uint32]int{}}
	r := &reader{s: s, q: q, seen: map[string]bool{}, near: map[string][]string{}}
	for _, part := range splitSentences(text) {
		tokens := tokenize(text[part.start:part.end])
		var sen sentence
		for i := range tokens {
			tokens[i].start += part.start
			tokens[i].end += part.start
			if err := r.read(tokens[i], &sen); err != nil {
				return nil, err
			}
		}
		if len(sen.terms) > 0 {
			q.sentences = append(q.sentences, sen)
		}
	}
	q.corrected = r.correctedText()
	q.link()
	return q, nil
}

// read takes one word into the query and the sentence.
func (r *reader) read(t token, sen *sentence) error {
	if !r.seen[t.surface] && !t.joined {
		if len(r.seen) >= maxQueryWords {
			return nil
		}
		r.seen[t.surface] = true
		r.q.words++
	}
	weight := 1.0
	if t.joined {
		weight = joinedWeight
	} else if requestWords[t.term] {
		weight = requestWeight
	}
	i, err := r.add(t, weight)
	if err != nil {
		return err
	}
	if i >= 0 {
		r.place(i, t, sen)
	}
	if t.joined {
		return nil
	}
	if i < 0 {
		r.q.most += weight * r.s.maxIDF()
	}
	return r.extend(t, i, sen)
}

// extend tries what an unknown word, or the beginning of one, may stand for.
func (r *reader) extend(t token, known int, sen *sentence) error {
	prefixes := 0
	if t.end == len(r.q.text) && r.q.words <= shortQueryWords {
		words, err := r.s.wordsBeginning(t.surface)
		if err != nil {
			return err
		}
		for _, w := range words {
			weight := prefixWeight
			if requestWords[stem(w)] {
				weight *= requestWeight
			}
			i, err := r.add(token{term: stem(w), surface: w, start: t.start, end: t.end}, weight)
			if err != nil {
				return err
			}
			if i >= 0 {
				prefixes++
				r.place(i, token{joined: true}, sen)
			}
		}
	}
	if known >= 0 || prefixes > 0 || requestWords[t.term] {
		return nil
	}
	words, err := r.corrections(t.surface)
	if err != nil || len(words) == 0 {
		return err
	}
	r.fix = append(r.fix, fix{span{t.start, t.end}, words[0]})
	for n, w := range words {
		i, err := r.add(token{term: stem(w), surface: w, start: t.start, end: t.end}, correctedWeight)
		if err != nil {
			return err
		}
		if i >= 0 {
			r.place(i, token{joined: n > 0}, sen)
		}
	}
	return nil
}

// corrections asks the vocabulary once for each word, and not for more words
// than a person misspells: a query full of unknown words is no misspelled one,
// and the search needs time too.
func (r *reader) corrections(word string) ([]string, error) {
	words, ok := r.near[word]
	if ok || len(r.near) >= maxCorrectedWords || r.s.clock.late() {
		return words, nil
	}
	words, err := r.s.corrections(word)
	r.near[word] = words
	return words, err
}

// add gives the index of the term, -1 if the caller can see nobody who uses it.
func (r *reader) add(t token, weight float64) (int, error) {
	q := r.q
	if i, ok := q.byTerm[t.term]; ok {
		return i, nil
	}
	if len(q.terms) >= maxTerms {
		return -1, nil
	}
	bags, frequency, err := r.s.bags(t.term)
	if err != nil {
		return -1, err
	}
	i := -1
	if frequency > 0 {
		i = len(q.terms)
		x := term{token: t, hash: hashTerm(t.term), weight: weight, idf: r.s.idf(float64(frequency)), bags: bags}
		q.terms = append(q.terms, x)
		q.byHash[x.hash] = i
		q.hashes[x.hash>>6&15] |= 1 << (x.hash & 63)
		if weight >= requestWeight && !t.joined {
			q.most += weight * x.idf
		}
	}
	q.byTerm[t.term] = i
	return i, nil
}

// place puts a term into a sentence, once; and into its order, unless it is a
// second reading of a word that is there already.
func (r *reader) place(i int, t token, sen *sentence) {
	found := false
	for _, j := range sen.terms {
		found = found || i == j
	}
	if !found {
		sen.terms = append(sen.terms, i)
	}
	if !t.joined {
		sen.order = append(sen.order, i)
	}
}

// correctedText is the query with its corrections; "" if there are none.
func (r *reader) correctedText() string {
	if len(r.fix) == 0 {
		return ""
	}
	var b strings.Builder
	at := 0
	for _, f := range r.fix {
		b.WriteString(r.q.text[at:f.start])
		b.WriteString(f.word)
		at = f.end
	}
	b.WriteString(r.q.text[at:])
	return b.String()
}

// idf is how much a word tells that so many profiles have.
func (s *searcher) idf(frequency float64) float64 {
	n := float64(s.v.totals.documents)
	return math.Log(1 + max(n-frequency+0.5, 0.5)/(frequency+0.5))
}

func (s *searcher) maxIDF() float64 { return s.idf(1) }
