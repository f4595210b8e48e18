package search

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The maximum numbers of words of the dictionary that are read for one word of a query.
const (
	maxPrefixScan = 256
	maxFuzzyScan  = 64
)

// A suggestion is a word of the vocabulary that may be meant by a word of the query.
type suggestion struct {
	word            string
	frequency       int
	sameFirstLetter bool
}

// corrections returns the words of the vocabulary that are most similar to an unknown
// word, the most similar first. Short words are not corrected, nor are words with digits,
// which are names or numbers. The vocabulary has only words of profiles that the caller
// may see.
func (s *searcher) corrections(word string) ([]string, error) {
	letters := utf8.RuneCountInString(word)
	if letters < oneEditLength || strings.ContainsFunc(word, unicode.IsDigit) || hasSpaceless(word) {
		return nil, nil
	}
	if n, err := s.frequency(inWords, word); n > 0 || err != nil {
		return nil, err
	}
	found, err := s.similarWords(inWords, word, 1)
	if err == nil && len(found) == 0 && letters >= twoEditsLength {
		found, err = s.similarWords(inWords, word, 2)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b suggestion) int {
		if a.sameFirstLetter != b.sameFirstLetter {
			if a.sameFirstLetter {
				return -1
			}
			return 1
		}
		return byFrequency(a, b)
	})
	return wordsOf(found, maxCorrections), nil
}

func byFrequency(a, b suggestion) int {
	if a.frequency != b.frequency {
		return cmp.Compare(b.frequency, a.frequency)
	}
	return strings.Compare(a.word, b.word)
}

// wordsOf returns the first n words of the list.
func wordsOf(list []suggestion, n int) []string {
	var words []string
	for _, x := range list[:min(len(list), n)] {
		words = append(words, x.word)
	}
	return words
}

// similarWords returns the words of a field, within so many edits, that the
// caller may see. With two edits the first letter must be the same.
func (s *searcher) similarWords(name, word string, edits int) ([]suggestion, error) {
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
	var found []suggestion
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
			found = append(found, suggestion{entry.Term, n, r == first})
		}
	}
	return found, nil
}

// wordsBeginning returns the most frequent words that begin with the given one
// and have another stem.
func (s *searcher) wordsBeginning(word string) ([]string, error) {
	if len(word) < 2 {
		return nil, nil
	}
	dict, err := s.v.FieldDictPrefix(inWords, []byte(word))
	if err != nil {
		return nil, err
	}
	defer dict.Close()
	var found []suggestion
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
			found = append(found, suggestion{word: entry.Term, frequency: n})
		}
	}
	slices.SortFunc(found, byFrequency)
	return wordsOf(found, maxPrefixWords), nil
}

// frequency returns the number of profiles with the term that the caller may see. A word
// of hidden profiles alone counts as unknown, and the weights of words, which a search
// explains, must not reveal how many hidden profiles have them.
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
