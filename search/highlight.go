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
	maxHighlights  = 3   // a hit
	highlightBytes = 240 // of text each
	maxMarkedText  = 16 << 10
)

// highlight fills in the hits' highlights from the profiles that Lookup gives.
func highlight(ctx context.Context, req *Request, result *Result, marks map[string]float64) error {
	if len(result.Hits) == 0 || len(marks) == 0 {
		return nil
	}
	ids := make([]relay.MechaNumber, len(result.Hits))
	for i := range result.Hits {
		ids[i] = result.Hits[i].ID
	}
	entries, err := req.Lookup(ctx, ids)
	if err != nil {
		return fmt.Errorf("search: profiles for highlights: %w", err)
	}
	byID := make(map[relay.MechaNumber]*relay.Entry, len(entries))
	for i := range entries {
		byID[entries[i].Number] = &entries[i]
	}
	for i := range result.Hits {
		// Between the search and now a profile may have gone, or become one
		// that the caller may not see; the caller of Search looks after that.
		if e := byID[result.Hits[i].ID]; e != nil && !e.Removed {
			result.Hits[i].Highlights = highlightsOf(e, marks)
		}
	}
	return nil
}

// A marked is a highlight with what it is worth: the weights of the different
// words in it.
type marked struct {
	Highlight
	worth float64
}

// highlightsOf gives the pieces of a profile that say most of what was asked.
func highlightsOf(e *relay.Entry, marks map[string]float64) []Highlight {
	var all []marked
	add := func(f field, text string) {
		if m, ok := mark(text, marks); ok {
			m.Field = fieldNames[f]
			all = append(all, m)
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
	slices.SortStableFunc(all, func(a, b marked) int { return cmp.Compare(b.worth, a.worth) })
	var list []Highlight
	for _, m := range all[:min(len(all), maxHighlights)] {
		list = append(list, m.Highlight)
	}
	return list
}

// mark finds the words in a text and cuts it to the stretch that has most.
func mark(text string, marks map[string]float64) (marked, bool) {
	if len(text) > maxMarkedText {
		text = text[:runeStart(text, maxMarkedText)]
	}
	var hits []token
	for _, t := range tokenize(text) {
		if marks[t.term] > 0 {
			hits = append(hits, t)
		}
	}
	if len(hits) == 0 {
		return marked{}, false
	}
	first, worth := 0, 0.0
	for i := range hits {
		if w := worthFrom(hits[i:], marks); w > worth {
			first, worth = i, w
		}
	}
	from, to := cut(text, hits[first].start)
	m := marked{Highlight: Highlight{Text: text[from:to]}, worth: worth}
	for _, t := range hits {
		if t.start >= from && t.end <= to {
			m.Spans = appendSpan(m.Spans, t.start-from, t.end-from)
		}
	}
	return m, len(m.Spans) > 0
}

// worthFrom is the weight of the different words in the stretch that begins
// with the first hit.
func worthFrom(hits []token, marks map[string]float64) float64 {
	worth := 0.0
	seen := map[string]bool{}
	for _, t := range hits {
		if t.end-hits[0].start > highlightBytes*3/4 {
			break
		}
		if !seen[t.term] {
			seen[t.term] = true
			worth += marks[t.term]
		}
	}
	return worth
}

// cut gives the bounds of the stretch of text around a place, at spaces where
// there are any, never inside a character.
func cut(text string, at int) (from, to int) {
	if len(text) <= highlightBytes {
		return 0, len(text)
	}
	from = max(at-highlightBytes/8, 0)
	to = min(from+highlightBytes, len(text))
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
	return runeStart(text, from), runeStart(text, to)
}

// runeStart moves a place back to the beginning of a character.
func runeStart(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}

// appendSpan adds a span, which may touch the last: the whole of a camelCase
// word and its parts, overlapping pairs of characters.
func appendSpan(spans [][2]int, start, end int) [][2]int {
	for i := len(spans) - 1; i >= 0 && spans[i][1] > start; i-- {
		start, end = min(start, spans[i][0]), max(end, spans[i][1])
		spans = spans[:i]
	}
	return append(spans, [2]int{start, end})
}
