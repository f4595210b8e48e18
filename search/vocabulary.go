package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// How many words of the dictionary are looked at for one word of a query.
const (
	maxPrefixScan = 256
	maxFuzzyScan  = 64
)

// A spelling is a word of the vocabulary that may have been meant.
type spelling struct {
	word      string
	edits     int
	frequency int
	first     bool // it has the same first letter
}

// corrections gives the nearest words of the vocabulary to one that nobody
// uses, nearest first, if it is long enough to be misspelled. Words with digits
// are names or numbers: they are not corrected. Words of profiles that the
// caller may not see do not exist.
func (s *searcher) corrections(word string) ([]string, error) {
	letters := utf8.RuneCountInString(word)
	if letters < oneEditLength || strings.ContainsFunc(word, unicode.IsDigit) || hasSpaceless(word) {
		return nil, nil
	}
	if n, err := s.frequency(inWords, word); n > 0 || err != nil {
		return nil, err
	}
	found, err := s.near(inWords, word, 1)
	if err == nil && len(found) == 0 && letters >= twoEditsLength {
		found, err = s.near(inWords, word, 2)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b spelling) int {
		switch {
		case a.first != b.first:
			if a.first {
				return -1
			}
			return 1
		case a.frequency != b.frequency:
			return b.frequency - a.frequency
		}
		return strings.Compare(a.word, b.word)
	})
	var words []string
	for _, f := range found {
		if len(words) < corrections {
			words = append(words, f.word)
		}
	}
	return words, nil
}

// near gives the words of a field within so many edits that the caller can
// see. With two edits, the first letter must be right.
func (s *searcher) near(name, word string, edits int) ([]spelling, error) {
	first, size := utf8.DecodeRuneInString(word)
	prefix := ""
	if edits > 1 {
		prefix = word[:size]
	}
	dict, err := s.v.FieldDictFuzzy(name, word, edits, prefix)
	if err != nil {
		return nil, err
	}
	defer dict.Close()
	var found []spelling
	for scanned := 0; scanned < maxFuzzyScan && !s.clock.over(); scanned++ {
		entry, err := dict.Next()
		if err != nil || entry == nil {
			return found, err
		}
		n, err := s.frequency(name, entry.Term)
		if err != nil {
			return nil, err
		}
		if r, _ := utf8.DecodeRuneInString(entry.Term); n > 0 {
			found = append(found, spelling{entry.Term, edits, n, r == first})
		}
	}
	return found, nil
}

// wordsBeginning gives the most frequent words that begin with, but are not,
// the one given.
func (s *searcher) wordsBeginning(word string) ([]string, error) {
	if len(word) < 2 {
		return nil, nil
	}
	dict, err := s.v.FieldDictPrefix(inWords, []byte(word))
	if err != nil {
		return nil, err
	}
	defer dict.Close()
	var found []spelling
	for scanned := 0; scanned < maxPrefixScan && !s.clock.over(); scanned++ {
		entry, err := dict.Next()
		if err != nil {
			return nil, err
		}
		if entry == nil {
			break
		}
		if stem(entry.Term) == stem(word) {
			continue
		}
		n, err := s.frequency(inWords, entry.Term)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			found = append(found, spelling{word: entry.Term, frequency: n})
		}
	}
	slices.SortFunc(found, func(a, b spelling) int {
		if a.frequency != b.frequency {
			return b.frequency - a.frequency
		}
		return strings.Compare(a.word, b.word)
	})
	var words []string
	for _, f := range found[:min(len(found), maxPrefixWords)] {
		words = append(words, f.word)
	}
	return words, nil
}

// frequency is the number of profiles that have the term and that the caller
// may see: a word of hidden profiles is a word that nobody uses, and the weights
// of words, which a search explains, must not tell how many hidden ones use it.
func (s *searcher) frequency(name, t string) (int, error) {
	count, err := s.v.count(name, t)
	if err != nil || count == 0 || s.hidden == nil {
		return count, err
	}
	seen := 0
	err = s.each(name, t, func(doc uint64) {
		if !s.hidden.has(doc) {
			seen++
		}
	})
	return seen, err
}
