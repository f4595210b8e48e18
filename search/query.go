package search

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// A term is a word of the query that is in the index.
type term struct {
	token
	hash     uint32
	weight   float64
	idf      float64
	postings []postings // the documents that have the term
}

// A query is a request's text, parsed against one state of the index.
type query struct {
	text      string
	name      string // the text as a normalised name
	words     int    // the number of different words, as typed
	terms     []term
	sentences []sentence
	weight    float64 // of all words; an unknown word counts as the rarest possible
	corrected string
	subject   []string // the words for a Boost
	byTerm    map[string]int
	byHash    map[uint32]int
	hashes    [16]uint64 // a filter before byHash, since the query has few of a profile's words
	pairs     []pair
	whole     sentence // all sentences as one
}

// find returns the index of the term with this hash, or -1.
func (q *query) find(hash uint32) int {
	if q.hashes[hash>>6&15]&(1<<(hash&63)) == 0 {
		return -1
	}
	if i, ok := q.byHash[hash]; ok {
		return i
	}
	return -1
}

// A sentence is the terms of one sentence of the query, as indices.
type sentence struct {
	terms []int // each once
	order []int // as typed
	steps []step
}

// A pair is two terms that are neighbours in a profile, in this order.
type pair struct {
	a, b      int
	frequency int // the number of candidates that have the pair
}

// A step stands for two neighbouring words of a sentence: the pairs that count
// as a match of them in a profile, as indices.
type step struct {
	straight int // the two words
	reversed int // the two words in the other order
	skipping int // the first word and the one after the second, or -1
}

// link fills in the steps of all sentences, and the whole query.
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

// splitSentences splits a text at the ends of sentences and lines.
func splitSentences(text string) []textRange {
	var out []textRange
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
		out, start = append(out, textRange{start, i + 1}), i+1
	}
	if start < len(text) {
		out = append(out, textRange{start, len(text)})
	}
	return out
}

// A textRange is a part of a text, in bytes.
type textRange struct{ start, end int }

// A parser parses a query with the vocabulary that the caller may see.
type parser struct {
	s           *searcher
	q           *query
	seen        map[string]bool     // words as typed
	replaced    []replacement       // in the order of the text
	corrections map[string][]string // of unknown words, by the word as typed
}

// A replacement is a correction of one word of the query.
type replacement struct {
	textRange
	word string
}

// parseQuery finds the terms of the text: its words, corrections of the unknown
// ones, and completions of the last one.
func (s *searcher) parseQuery(text string) (*query, error) {
	q := &query{text: text, name: normaliseName(text), byTerm: map[string]int{}, byHash: map[uint32]int{}}
	p := &parser{s: s, q: q, seen: map[string]bool{}, corrections: map[string][]string{}}
	for _, part := range splitSentences(text) {
		tokens := tokenize(text[part.start:part.end])
		var sen sentence
		for i := range tokens {
			tokens[i].start += part.start
			tokens[i].end += part.start
			if err := p.addToken(tokens[i], &sen); err != nil {
				return nil, err
			}
		}
		if len(sen.terms) > 0 {
			q.sentences = append(q.sentences, sen)
		}
	}
	q.corrected = p.correctedText()
	if s.boost != nil {
		q.subject = subjectWords(cmp.Or(q.corrected, text))
	}
	q.link()
	return q, nil
}

// addToken adds one word to the query and the sentence.
func (p *parser) addToken(t token, sen *sentence) error {
	if !p.seen[t.surface] && !t.joined {
		if len(p.seen) >= maxQueryWords {
			return nil
		}
		p.seen[t.surface] = true
		p.q.words++
	}
	weight := 1.0
	if t.joined {
		weight = joinedWeight
	} else if requestWords[t.term] {
		weight = requestWeight
	}
	i, err := p.addTerm(t, weight)
	if err != nil {
		return err
	}
	if i >= 0 {
		sen.add(i, !t.joined)
	}
	if t.joined {
		return nil
	}
	if i < 0 {
		p.q.weight += weight * p.s.maxIDF()
	}
	return p.expand(t, i, sen)
}

// expand adds completions of the last word of a short query, and corrections of an
// unknown word. known is the word's index, or -1.
func (p *parser) expand(t token, known int, sen *sentence) error {
	prefixes := 0
	if t.end == len(p.q.text) && p.q.words <= shortQueryWords {
		words, err := p.s.wordsBeginning(t.surface)
		if err != nil {
			return err
		}
		for _, w := range words {
			weight := prefixWeight
			if requestWords[stem(w)] {
				weight *= requestWeight
			}
			i, err := p.addTerm(token{term: stem(w), surface: w, start: t.start, end: t.end}, weight)
			if err != nil {
				return err
			}
			if i >= 0 {
				prefixes++
				sen.add(i, false)
			}
		}
	}
	if known >= 0 || prefixes > 0 || requestWords[t.term] {
		return nil
	}
	words, err := p.correct(t.surface)
	if err != nil || len(words) == 0 {
		return err
	}
	p.replaced = append(p.replaced, replacement{textRange{t.start, t.end}, words[0]})
	for n, w := range words {
		i, err := p.addTerm(token{term: stem(w), surface: w, start: t.start, end: t.end}, correctedWeight)
		if err != nil {
			return err
		}
		if i >= 0 {
			sen.add(i, n == 0)
		}
	}
	return nil
}

// correct returns the corrections of a word. At most maxCorrectedWords words of
// a query are corrected, and none when a good part of the time has passed: a
// query full of unknown words is not a misspelled one, and looking words up is slow.
func (p *parser) correct(word string) ([]string, error) {
	words, ok := p.corrections[word]
	if ok || len(p.corrections) >= maxCorrectedWords || p.s.clock.late() {
		return words, nil
	}
	words, err := p.s.corrections(word)
	p.corrections[word] = words
	return words, err
}

// addTerm adds a term to the query, unless the query has it. It returns the term's index,
// or -1 if no profile that the caller may see has it.
func (p *parser) addTerm(t token, weight float64) (int, error) {
	q := p.q
	if i, ok := q.byTerm[t.term]; ok {
		return i, nil
	}
	if len(q.terms) >= maxTerms {
		return -1, nil
	}
	list, frequency, err := p.s.postingsOf(t.term)
	if err != nil {
		return -1, err
	}
	i := -1
	if frequency > 0 {
		i = len(q.terms)
		x := term{token: t, hash: HashTerm(t.term), weight: weight, idf: p.s.idf(float64(frequency)), postings: list}
		q.terms = append(q.terms, x)
		q.byHash[x.hash] = i
		q.hashes[x.hash>>6&15] |= 1 << (x.hash & 63)
		if weight >= requestWeight && !t.joined {
			q.weight += weight * x.idf
		}
	}
	q.byTerm[t.term] = i
	return i, nil
}

// add adds the term with index i to the sentence; ordered is false for another reading of
// a word that the sentence has.
func (s *sentence) add(i int, ordered bool) {
	if !slices.Contains(s.terms, i) {
		s.terms = append(s.terms, i)
	}
	if ordered {
		s.order = append(s.order, i)
	}
}

// correctedText returns the query's text with the corrections in it, or "".
func (p *parser) correctedText() string {
	if len(p.replaced) == 0 {
		return ""
	}
	var b strings.Builder
	at := 0
	for _, w := range p.replaced {
		b.WriteString(p.q.text[at:w.start])
		b.WriteString(w.word)
		at = w.end
	}
	b.WriteString(p.q.text[at:])
	return b.String()
}

// idf returns the inverse document frequency, as BM25 defines it, of a word that so many
// profiles have.
func (s *searcher) idf(frequency float64) float64 {
	n := float64(s.v.totals.documents)
	return math.Log(1 + max(n-frequency+0.5, 0.5)/(frequency+0.5))
}

func (s *searcher) maxIDF() float64 { return s.idf(1) }
