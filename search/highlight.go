package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"relay/db/relay"
)

const (
	maxHighlights  = 3        // of a hit
	highlightBytes = 240      // of one highlight's text
	maxScanned     = 16 << 10 // bytes of a text in which words are looked for
)

// highlight fills in the hits' highlights from the profiles that Lookup returns. weights
// has the weights of the query's terms.
func highlight(ctx context.Context, req *Request, result *Result, weights map[string]float64) error {
	if len(result.Hits) == 0 || len(weights) == 0 {
		return nil
	}
	ids := make([]relay.MechaNumber, len(result.Hits))
	for i := range result.Hits {
		ids[i] = result.Hits[i].ID
	}
	entries, err := req.Lookup(ctx, ids)
	if err != nil {
		return fmt.Errorf("search: read profiles for highlights: %w", err)
	}
	byID := make(map[relay.MechaNumber]*relay.Entry, len(entries))
	for i := range entries {
		byID[entries[i].Number] = &entries[i]
	}
	for i := range result.Hits {
		// Since the search a profile may have been removed, or been hidden from
		// req.Caller; the caller of Search checks the latter.
		if e := byID[result.Hits[i].ID]; e != nil && !e.Removed {
			result.Hits[i].Highlights = highlightsOf(e, weights)
		}
	}
	return nil
}

// A weightedHighlight is a highlight with the sum of the weights of the different
// terms in it.
type weightedHighlight struct {
	Highlight
	weight float64
}

// highlightsOf returns the parts of a profile that have the terms of the greatest weight.
func highlightsOf(e *relay.Entry, weights map[string]float64) []Highlight {
	var all []weightedHighlight
	add := func(f field, text string) {
		if h, ok := highlightText(text, weights); ok {
			h.Field = fieldNames[f]
			all = append(all, h)
		}
	}
	name := e.DisplayName
	if name == "" {
		name = string(e.Address)
	}
	add(fieldName, name)
	add(fieldDescription, e.Description)
	for _, s := range e.Skills {
		add(fieldSkillName, s.Name)
		add(fieldSkill, s.Description)
		for _, x := range s.Examples {
			add(fieldExample, x)
		}
	}
	for _, x := range e.Examples {
		add(fieldExample, x)
	}
	for _, t := range e.Tags {
		add(fieldTag, t)
	}
	add(fieldDetails, e.Details)
	slices.SortStableFunc(all, func(a, b weightedHighlight) int { return cmp.Compare(b.weight, a.weight) })
	var list []Highlight
	for _, h := range all[:min(len(all), maxHighlights)] {
		list = append(list, h.Highlight)
	}
	return list
}

// highlightText makes a highlight of the excerpt of a text that has the terms of
// the greatest weight. It returns false if the text has no term.
func highlightText(text string, weights map[string]float64) (weightedHighlight, bool) {
	if len(text) > maxScanned {
		text = text[:runeStart(text, maxScanned)]
	}
	var matches []token
	for _, t := range tokenize(text) {
		if weights[t.term] > 0 {
			matches = append(matches, t)
		}
	}
	if len(matches) == 0 {
		return weightedHighlight{}, false
	}
	first, weight := 0, 0.0
	for i := range matches {
		if w := excerptWeight(matches[i:], weights); w > weight {
			first, weight = i, w
		}
	}
	excerpt := excerptAround(text, matches[first].start)
	h := weightedHighlight{Highlight: Highlight{Text: text[excerpt.start:excerpt.end]}, weight: weight}
	for _, t := range matches {
		if t.start >= excerpt.start && t.end <= excerpt.end {
			h.Spans = appendSpan(h.Spans, t.start-excerpt.start, t.end-excerpt.start)
		}
	}
	return h, len(h.Spans) > 0
}

// excerptWeight returns the sum of the weights of the different terms in an excerpt that
// begins with the first match.
func excerptWeight(matches []token, weights map[string]float64) float64 {
	sum := 0.0
	seen := map[string]bool{}
	for _, t := range matches {
		if t.end-matches[0].start > highlightBytes*3/4 {
			break
		}
		if !seen[t.term] {
			seen[t.term] = true
			sum += weights[t.term]
		}
	}
	return sum
}

// excerptAround returns the range of highlightBytes, at most, around a position.
// It begins and ends at spaces if there are any nearby, and never inside a character.
func excerptAround(text string, at int) textRange {
	if len(text) <= highlightBytes {
		return textRange{0, len(text)}
	}
	from := max(at-highlightBytes/8, 0)
	to := min(from+highlightBytes, len(text))
	from = max(to-highlightBytes, 0)
	for i := from; i > 0 && i < at; i++ {
		if text[i-1] == ' ' {
			from = i
			break
		}
	}
	for i := to; i < len(text) && i > to-highlightBytes/8; i-- {
		if text[i] == ' ' {
			to = i
			break
		}
	}
	return textRange{runeStart(text, from), runeStart(text, to)}
}

// runeStart moves a position back to the beginning of a character.
func runeStart(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// appendSpan appends a span and merges it with the spans that it overlaps, as the
// joined word of camelCase overlaps its parts, and bigrams overlap each other.
func appendSpan(spans [][2]int, start, end int) [][2]int {
	for i := len(spans) - 1; i >= 0 && spans[i][1] > start; i-- {
		start, end = min(start, spans[i][0]), max(end, spans[i][1])
		spans = spans[:i]
	}
	return append(spans, [2]int{start, end})
}
