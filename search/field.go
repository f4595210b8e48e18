package search

import (
	"github.com/blevesearch/bleve/v2/size"
	index "github.com/blevesearch/bleve_index_api"
)

// A termField is a field of a document with given terms. Bleve's analysis is not used,
// since ours makes the terms of all fields and the record together. Every term has the
// frequency 1; see textKey.
type termField struct {
	name        string
	terms       map[string]bool
	options     index.FieldIndexingOptions
	frequencies index.TokenFrequencies
}

func newTermField(name string, terms map[string]bool, options index.FieldIndexingOptions) *termField {
	return &termField{name: name, terms: terms, options: options | index.IndexField | index.SkipFreqNorm}
}

// Analyze is called by bleve, once, before the frequencies are read.
func (f *termField) Analyze() {
	backing := make([]index.TokenFreq, len(f.terms))
	f.frequencies = make(index.TokenFrequencies, len(f.terms))
	i := 0
	for t := range f.terms {
		backing[i].Term = []byte(t)
		backing[i].SetFrequency(1)
		f.frequencies[t] = &backing[i]
		i++
	}
}

func (f *termField) Name() string                                     { return f.name }
func (f *termField) ArrayPositions() []uint64                         { return nil }
func (f *termField) Options() index.FieldIndexingOptions              { return f.options }
func (f *termField) Value() []byte                                    { return nil }
func (f *termField) NumPlainTextBytes() uint64                        { return uint64(len(f.terms)) }
func (f *termField) EncodedFieldType() byte                           { return 't' }
func (f *termField) AnalyzedLength() int                              { return len(f.terms) }
func (f *termField) AnalyzedTokenFrequencies() index.TokenFrequencies { return f.frequencies }

// Size returns an estimate, by which bleve accounts for the memory of batches.
func (f *termField) Size() int { return len(f.terms)*4*size.SizeOfPtr + len(f.name) }
