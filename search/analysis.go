package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/analysis/char/asciifolding"
	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
)

// A token is one word of a text. Profiles and queries are split by the same
// code, so that the words of a query match those of a profile.
type token struct {
	term       string // folded, lower case and stemmed: the term in the index
	surface    string // folded and lower case: the form in which spelling is compared
	start, end int    // in bytes of the text
	joined     bool   // a whole camelCase word, whose parts are tokens too
}

// tokenize splits s into words: at all characters other than letters, digits and
// marks, and at the humps of camelCase. A camelCase word becomes a token as a
// whole too, so that GitHub is found by "github" and by "git hub". Text in a
// script without spaces is split into bigrams. Stop words are left out.
func tokenize(s string) []token {
	var tokens []token
	forWords(s, func(start, end int) {
		tokens = appendWord(tokens, s, start, end)
	})
	return tokens
}

// forWords calls f with the range of each sequence of letters, digits and marks.
// An apostrophe ends a word. The letters after it are the rest of a contraction
// or a possessive, and are skipped.
func forWords(s string, f func(start, end int)) {
	start, contracted := -1, false
	for i, r := range s {
		switch {
		case isWordRune(r):
			if start < 0 && !contracted {
				start = i
			}
			continue
		case start >= 0:
			f(start, i)
			contracted = r == '\'' || r == '’'
		default:
			contracted = false
		}
		start = -1
	}
	if start >= 0 {
		f(start, len(s))
	}
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
	}
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r))
}

// isSpaceless reports whether r belongs to a script without spaces between words.
func isSpaceless(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
}

// appendWord splits one sequence of word runes where the script changes and at humps.
func appendWord(tokens []token, s string, start, end int) []token {
	first, parts := start, 0
	before := len(tokens)
	var previous rune
	for i := start; i < end; {
		r, size := utf8.DecodeRuneInString(s[i:])
		next, _ := utf8.DecodeRuneInString(s[min(i+size, end):end])
		if i > first && isBoundary(previous, r, next) {
			tokens, first, parts = appendPart(tokens, s, first, i), i, parts+1
		}
		previous = r
		i += size
	}
	tokens = appendPart(tokens, s, first, end)
	if parts > 0 && parts <= maxHumps && end-start <= maxTokenBytes && len(tokens) > before &&
		!hasSpaceless(s[start:end]) {
		whole := appendPart(nil, s, start, end)
		for i := range whole {
			whole[i].joined = true
		}
		tokens = append(tokens, whole...)
	}
	return tokens
}

// isBoundary reports whether a word is split before r: before the B of aB and of
// ABc, and where a script without spaces begins or ends.
func isBoundary(previous, r, next rune) bool {
	switch {
	case isSpaceless(previous) != isSpaceless(r):
		return true
	case unicode.IsUpper(r) && (unicode.IsLower(previous) || unicode.IsDigit(previous)):
		return true
	case unicode.IsUpper(r) && unicode.IsUpper(previous) && unicode.IsLower(next):
		return true
	}
	return false
}

func hasSpaceless(s string) bool { return strings.IndexFunc(s, isSpaceless) >= 0 }

func appendPart(tokens []token, s string, start, end int) []token {
	if hasSpaceless(s[start:end]) {
		return appendBigrams(tokens, s, start, end)
	}
	surface := fold(s[start:min(end, start+maxTokenBytes)])
	if surface == "" || stopWords[surface] {
		return tokens
	}
	return append(tokens, token{term: stem(surface), surface: surface, start: start, end: end})
}

func appendBigrams(tokens []token, s string, start, end int) []token {
	i := start
	_, size := utf8.DecodeRuneInString(s[i:])
	if i+size == end {
		t := fold(s[start:end])
		return append(tokens, token{term: t, surface: t, start: start, end: end})
	}
	for i+size < end {
		_, next := utf8.DecodeRuneInString(s[i+size:])
		t := fold(s[i : i+size+next])
		tokens = append(tokens, token{term: t, surface: t, start: i, end: i + size + next})
		i, size = i+size, next
	}
	return tokens
}

var folding = asciifolding.New()

// fold removes the differences of case, accents and width.
func fold(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.ToLower(string(folding.Filter([]byte(strings.ToValidUTF8(s, "")))))
		}
	}
	return strings.ToLower(s)
}

// stem returns the word's stem by Porter's second English stemmer. A word with
// other letters than a to z is its own stem.
func stem(word string) string {
	if len(word) < 3 {
		return word
	}
	for i := range len(word) {
		if c := word[i]; c < 'a' || c > 'z' {
			return word
		}
	}
	env := snowballstem.NewEnv(word)
	english.Stem(env)
	return env.Current()
}

// normalise keeps the letters, digits and marks of a name, folded, so that
// "Get-Weather", "getWeather" and "get weather" are equal.
func normalise(name string) string {
	return fold(strings.Map(func(r rune) rune {
		if isWordRune(r) {
			return r
		}
		return -1
	}, name))
}
