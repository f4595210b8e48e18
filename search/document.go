package search

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"

	"github.com/blevesearch/bleve/v2/document"
	index "github.com/blevesearch/bleve_index_api"
)

// The fields of a document in the index.
const (
	inText    = "t" // stems, each with its frequency by storedWeight: see textKey
	inWords   = "w" // words as written, folded: the vocabulary for corrections and completions
	inNames   = "x" // normalised names and the address
	inTrigram = "g" // trigrams of the names
	inSkills  = "k" // keys of the skills' names: see skillKeys
	inFilter  = "f" // values for filters, facets and visibility, each with a prefix
	inMeta    = "m" // metadata: id, time of the last change, length of the combined text, address
	inRecord  = "r" // the record; stored, not indexed
)

// Prefixes of the terms in inFilter.
const (
	filterCrew     = "c:"
	filterTag      = "t:"
	filterSkill    = "s:"
	filterLanguage = "l:"
	filterType     = "m:"
	filterHidden   = "h"  // not public
	filterInside   = "i:" // visible inside this crew
)

// addressMark distinguishes an address in inNames from a normalised name.
const addressMark = "^"

// documentOf makes the index's document of an entry, and its record.
func documentOf(e *relay.Entry) (*document.Document, *record) {
	c := collect(e)
	d := document.NewDocument(documentID(e.Number))
	d.AddField(newTermField(inText, textOf(c.text), 0))
	d.AddField(newTermField(inWords, c.words, 0))
	d.AddField(newTermField(inNames, namesOf(&c.record), 0))
	d.AddField(newTermField(inTrigram, trigramsOf(c.record.names), 0))
	d.AddField(newTermField(inSkills, c.skills, 0))
	d.AddField(newTermField(inFilter, filtersOf(e), index.DocValues))
	d.AddField(newTermField(inMeta, map[string]bool{metaOf(e, c.record.total): true},
		index.DocValues|index.SkipDVChunking|index.SkipDVCompression))
	d.AddField(document.NewTextFieldCustom(inRecord, nil, c.record.encode(), index.StoreField, nil))
	return d, &c.record
}

// documentID returns the id of a Mecha's document.
func documentID(id relay.MechaNumber) string { return strconv.FormatInt(int64(id), 36) }

// A collector gathers the words of one profile.
type collector struct {
	record record
	text   map[string]int
	words  map[string]bool
	skills map[string]bool
	counts map[fieldTerm]int // at most maxCount
}

type fieldTerm struct {
	field field
	term  string
}

func collect(e *relay.Entry) *collector {
	c := &collector{text: map[string]int{}, words: map[string]bool{}, skills: map[string]bool{},
		counts: map[fieldTerm]int{}}
	c.record.id, c.record.address = e.Number, e.Address
	name, crew, _ := strings.Cut(string(e.Address), "^")
	c.add(fieldName, -1, name)
	c.record.names = append(c.record.names, normaliseName(name))
	if e.DisplayName != "" {
		c.displayName(name, e.DisplayName)
	}
	c.vocabulary(crew)
	for _, t := range e.Tags {
		c.add(fieldTag, -1, t)
	}
	c.add(fieldDescription, -1, e.Description)
	for i, s := range e.Skills {
		c.skill(i, &s)
	}
	for _, x := range e.Examples {
		c.add(fieldExample, -1, x)
	}
	if e.Details != e.Description {
		c.add(fieldDetails, -1, e.Details)
	}
	return c
}

// displayName adds the display name, unless it is the same as the name of the
// address, so that a name given twice does not score more than one given once.
func (c *collector) displayName(name, display string) {
	if n := normaliseName(display); n != c.record.names[0] {
		c.record.names = append(c.record.names, n)
	}
	same := func(a, b token) bool { return a.term == b.term }
	if !slices.EqualFunc(parts(name), parts(display), same) {
		c.add(fieldName, -1, display)
	}
}

// parts returns the words of a name, without the joined words of camelCase.
func parts(name string) []token {
	return slices.DeleteFunc(tokenize(name), func(t token) bool { return t.joined })
}

func (c *collector) skill(i int, s *relay.Skill) {
	id := s.ID
	if id == "" {
		id = s.Name
	}
	c.record.skills = append(c.record.skills, id)
	c.add(fieldSkillName, i, s.Name)
	for _, k := range skillKeys(s.Name) {
		c.skills[k] = true
	}
	c.add(fieldSkill, i, s.Description)
	for _, t := range s.Tags {
		c.add(fieldTag, i, t)
	}
	for _, x := range s.Examples {
		c.add(fieldExample, i, x)
	}
}

// add adds the words of one text. Words of a field after the first maxFieldTokens are not
// indexed, so that no profile makes searches slow.
func (c *collector) add(f field, skill int, text string) {
	p := passage{field: f, skill: skill}
	for _, t := range tokenize(text) {
		if c.record.lengths[f] >= maxFieldTokens {
			break
		}
		if n := (fieldTerm{f, t.term}); c.counts[n] < maxCount {
			c.counts[n]++
			c.text[t.term] += storedWeight[f]
		}
		c.words[t.surface] = true
		if t.joined {
			p.joined = append(p.joined, HashTerm(t.term))
			continue
		}
		p.words = append(p.words, HashTerm(t.term))
		c.record.lengths[f]++
		c.record.total += storedWeight[f]
	}
	if len(p.words) > 0 {
		c.record.passages = append(c.record.passages, p)
	}
}

// vocabulary adds the words of a crew with the least weight, since a crew is meant for
// filters and says nothing about what a Mecha can do.
func (c *collector) vocabulary(text string) {
	for _, t := range tokenize(text) {
		c.words[t.surface] = true
		if c.text[t.term] == 0 {
			c.text[t.term] = 1
			c.record.total++
		}
	}
}

// normaliseName is normalise for names without letters and digits too: it returns
// "" only for a blank name.
func normaliseName(s string) string {
	if n := normalise(s); n != "" {
		return n
	}
	return strings.ToLower(strings.TrimSpace(s))
}

func namesOf(r *record) map[string]bool {
	set := map[string]bool{addressMark + string(r.address): true}
	set[addressMark+strings.ToLower(string(r.address))] = true
	for _, n := range r.names {
		set[truncateKey(n)] = true
	}
	return set
}

// truncateKey shortens a key of the index to 256 bytes at most.
func truncateKey(s string) string {
	const maxBytes = 256
	if len(s) <= maxBytes {
		return s
	}
	return s[:runeStart(s, maxBytes)]
}

func trigramsOf(names []string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		for _, t := range trigrams(n) {
			set[string(t[:])] = true
		}
	}
	return set
}

// trigrams returns the sequences of three characters in a normalised name; the
// beginning and the end of the name count as characters.
func trigrams(s string) (list []trigram) {
	before, last, n := rune(0), '^', 1
	next := func(r rune) {
		if n++; n > 2 {
			list = append(list, trigram{before, last, r})
		}
		before, last = last, r
	}
	for _, r := range truncateKey(s) {
		next(r)
	}
	next('$')
	return list
}

type trigram [3]rune

func filtersOf(e *relay.Entry) map[string]bool {
	set := map[string]bool{filterCrew + crewOf(e.Address): true}
	for _, t := range e.Tags {
		addTag(set, t)
	}
	for _, s := range e.Skills {
		for _, t := range s.Tags {
			addTag(set, t)
		}
		addFilter(set, filterSkill, s.ID)
		addFilter(set, filterSkill, s.Name)
		for _, m := range s.MessageTypes {
			addFilter(set, filterType, m)
		}
	}
	for _, l := range e.Languages {
		addFilter(set, filterLanguage, l)
	}
	for _, m := range e.MessageTypes {
		addFilter(set, filterType, m)
	}
	switch e.Visibility {
	case relay.CrewOnly:
		set[filterHidden], set[filterInside+crewOf(e.Address)] = true, true
	case relay.Unlisted:
		set[filterHidden] = true
	}
	return set
}

// addTag adds a tag and its parents, since a filter for "travel" matches
// "travel/flights" too.
func addTag(set map[string]bool, tag string) {
	for i := 0; i < len(tag); i++ {
		if tag[i] == '/' {
			addFilter(set, filterTag, tag[:i])
		}
	}
	addFilter(set, filterTag, tag)
}

func addFilter(set map[string]bool, prefix, value string) {
	if v := filterValue(value); v != "" {
		set[prefix+v] = true
	}
}

// filterValue normalises the case of a value, and the space and slashes around
// it. The result is valid UTF-8, because the index separates values by the byte
// 0xFF, which UTF-8 does not have.
func filterValue(s string) string {
	return truncateKey(strings.ToLower(strings.Trim(strings.ToValidUTF8(s, "\uFFFD"), " \t\r\n/")))
}

func crewOf(a relay.Address) string {
	_, crew, _ := strings.Cut(string(a), "^")
	return crew
}

// meta is the metadata of a document, by which documents are identified and sorted.
type meta struct {
	id      relay.MechaNumber
	updated int64 // Unix nanoseconds
	length  int   // of the combined text
	address relay.Address
}

func metaOf(e *relay.Entry, length int) string {
	updated := e.UpdatedAt
	if updated.IsZero() {
		updated = e.CreatedAt
	}
	return fmt.Sprintf("%016x%016x%016x%s", uint64(e.Number), uint64(nanoseconds(updated)), length, e.Address)
}

// nanoseconds returns the time in nanoseconds since 1970, or the nearest that
// fits in an int64; 0 for the zero time.
func nanoseconds(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Before(time.Unix(0, math.MinInt64)):
		return math.MinInt64
	case t.After(time.Unix(0, math.MaxInt64)):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func parseMeta(b []byte) (meta, bool) {
	if len(b) < 48 {
		return meta{}, false
	}
	id, okID := hex16(b[:16])
	updated, okTime := hex16(b[16:32])
	length, okLength := hex16(b[32:48])
	return meta{relay.MechaNumber(id), int64(updated), int(length), relay.Address(b[48:])}, okID && okTime && okLength
}

func hex16(b []byte) (v uint64, ok bool) {
	for _, c := range b {
		switch {
		case '0' <= c && c <= '9':
			v = v<<4 | uint64(c-'0')
		case 'a' <= c && c <= 'f':
			v = v<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}
