package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blevesearch/bleve/v2/analysis/char/asciifolding"
	"github.com/blevesearch/snowballstem"
	"github.com/blevesearch/snowballstem/english"
)

// A token is one word of a text. Profiles and queries are cut by the same
// code, so that a word typed is a word found.
type token struct {
	term       string // what is indexed: folded, lower case, stemmed
	surface    string // folded and lower case: what spelling is judged by
	start, end int    // bytes in the text; the spans of highlights
	joined     bool   // the whole of a camelCase word whose parts are tokens too
}

// tokenize cuts s into words: at everything that is neither letter nor digit,
// at the humps of camelCase (whose whole is given as well: GitHub is found by
// "github" and by "git hub"), into pairs of characters in scripts without
// spaces. Stop words are left out. It is a pure function of s.
func tokenize(s string) []token {
	var tokens []token
	forWords(s, func(start, end int) {
		tokens = appendWord(tokens, s, start, end)
	})
	return tokens
}

// forWords calls f with the bounds of each run of letters, digits and marks.
// An apostrophe ends a word, and what follows it up to the next boundary is
// the rest of a contraction or a possessive: dropped.
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

// isSpaceless tells the scripts that write no spaces between words.
func isSpaceless(r rune) bool {
	return r >= 0x0E00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai)
}

// appendWord cuts one run of word runes at script changes and humps.
func appendWord(tokens []token, s string, start, end int) []token {
	first, parts := start, 0
	before := len(tokens)
	var previous, current rune
	for i := start; i < end; {
		r, size := utf8.DecodeRuneInString(s[i:])
		next, _ := utf8.DecodeRuneInString(s[min(i+size, end):end])
		if i > first && isBoundary(previous, current, r, next) {
			tokens, first, parts = appendPart(tokens, s, first, i), i, parts+1
		}
		previous, current = current, r
		i += size
	}
	tokens = appendPart(tokens, s, first, end)
	if parts > 0 && parts <= maxHumps && end-start <= maxTokenBytes && len(tokens) > before && !hasSpaceless(s[start:end]) {
		whole := appendPart(nil, s, start, end)
		for i := range whole {
			whole[i].joined = true
		}
		tokens = append(tokens, whole...)
	}
	return tokens
}

// isBoundary tells whether a word is cut before r: aB, ABc (before B), and
// wherever a spaceless script begins or ends.
func isBoundary(_, current, r, next rune) bool {
	switch {
	case isSpaceless(current) != isSpaceless(r):
		return true
	case unicode.IsUpper(r) && (unicode.IsLower(current) || unicode.IsDigit(current)):
		return true
	case unicode.IsUpper(r) && unicode.IsUpper(current) && unicode.IsLower(next):
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

// fold makes words equal that differ in case, accents or width only.
func fold(s string) string {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return strings.ToLower(string(folding.Filter([]byte(strings.ToValidUTF8(s, "")))))
		}
	}
	return strings.ToLower(s)
}

// stem is Porter's second English stemmer; other languages' words pass.
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

// squeeze leaves letters and digits only, folded: names are compared so that
// "Get-Weather", "getWeather" and "get weather" are one.
func squeeze(s string) string {
	var b strings.Builder
	forRunes := func(r rune) {
		if isWordRune(r) {
			b.WriteRune(r)
		}
	}
	for _, r := range s {
		forRunes(r)
	}
	return fold(b.String())
}
