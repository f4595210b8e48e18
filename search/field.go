package search

import (
	"github.com/blevesearch/bleve/v2/size"
	index "github.com/blevesearch/bleve_index_api"
)

// A termField hands the index terms that are ready: our analysis is done once,
// for the index and for the record, and how often a word counts is part of its
// term (see textKey), so that no posting has a number beside it.
type termField struct {
	name        string
	terms       map[string]int
	length      int
	options     index.FieldIndexingOptions
	frequencies index.TokenFrequencies
}

// setField is a field whose terms are there or not.
func setField(name string, set map[string]bool, options index.FieldIndexingOptions) *termField {
	terms := make(map[string]int, len(set))
	for t := range set {
		terms[t] = 1
	}
	return &termField{name: name, terms: terms, length: len(terms), options: options | index.IndexField | index.SkipFreqNorm}
}

// Analyze is called by bleve, once, before the frequencies are read.
func (f *termField) Analyze() {
	backing := make([]index.TokenFreq, len(f.terms))
	f.frequencies = make(index.TokenFrequencies, len(f.terms))
	i := 0
	for t, n := range f.terms {
		backing[i].Term = []byte(t)
		backing[i].SetFrequency(n)
		f.frequencies[t] = &backing[i]
		i++
	}
}

func (f *termField) Name() string                                     { return f.name }
func (f *termField) ArrayPositions() []uint64                         { return nil }
func (f *termField) Options() index.FieldIndexingOptions              { return f.options }
func (f *termField) Value() []byte                                    { return nil }
func (f *termField) NumPlainTextBytes() uint64                        { return uint64(f.length) }
func (f *termField) EncodedFieldType() byte                           { return 't' }
func (f *termField) AnalyzedLength() int                              { return f.length }
func (f *termField) AnalyzedTokenFrequencies() index.TokenFrequencies { return f.frequencies }

// Size is an estimate, for bleve's bookkeeping of batches.
func (f *termField) Size() int { return len(f.terms)*4*size.SizeOfPtr + len(f.name) }
