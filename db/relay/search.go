package relay

import (
	"context"
	"strings"
	"time"
)

// SearchSort is the order of the hits of a search.
type SearchSort string

// The orders. Hits that are equal in an order are sorted by address.
const (
	ByRelevance SearchSort = "relevance" // the default
	ByRecent    SearchSort = "recent"    // the last changed first
	ByName      SearchSort = "name"      // by address
)

// SearchFilter says which Mechas a search may find (PROTOCOL §5, Search). Every
// field that is set must match. A list matches if one of its values does. The crew
// is compared exactly, all other texts without regard to letter case.
type SearchFilter struct {
	Crew         []string
	Tags         []string // of the Mecha or a skill; "travel" finds "travel/flights"
	Skills       []string // ids or names of skills
	Languages    []string
	MessageTypes []string
	Online       *bool // needs SearchRequest.Online
	UpdatedSince time.Time
	Exclude      []string // addresses to leave out
}

// Empty reports whether no field of the filter is set.
func (f *SearchFilter) Empty() bool {
	return len(f.Crew)+len(f.Tags)+len(f.Skills)+len(f.Languages)+len(f.MessageTypes)+len(f.Exclude) == 0 &&
		f.Online == nil && f.UpdatedSince.IsZero()
}

// SearchRequest is one search of the directory (PROTOCOL §5, Search). Query or
// Filter must be set.
type SearchRequest struct {
	// Query is plain words without a syntax, at most 2,000 characters. The first 64
	// different words count.
	Query  string
	Filter SearchFilter
	// Caller is the Mecha that searches. Only Mechas that are visible to it are
	// found, and it is not found itself unless its address is the query.
	Caller Address
	Sort   SearchSort
	Limit  int // default 20, at most 100
	Offset int
	// Facets are counted over all matches: "crew", "tags", "languages".
	Facets []string
	// Highlight asks for SearchHit.Highlights. It needs Lookup, because the index
	// keeps no text.
	Highlight bool
	Explain   bool // asks for SearchHit.Explanation

	// Online reports whether a Mecha is connected. It may be nil. It must be quick: a
	// search calls it for hundreds of Mechas, and for all with Filter.Online.
	Online func(MechaNumber) bool
	// Lookup returns the profiles of the hits of a page, in any order. A Mecha that is
	// gone may be missing. A search calls it at most once, after ranking and outside
	// its time limit. The caller may keep the profiles that Lookup reads.
	Lookup func(context.Context, []MechaNumber) ([]Entry, error)
}

// SearchResult is the answer to a SearchRequest.
type SearchResult struct {
	Total          int // all visible matches, not only this page
	Hits           []SearchHit
	Facets         map[string][]FacetCount
	CorrectedQuery string // the query with misspelled words corrected, or ""
	TookMS         int64
	AsOf           int64 // the revision up to which the index had the store's changes
	RankingVersion string
	// Words are the different words of the query, corrected, as the analysis returns them:
	// at most MaxSearchWords. Discovery learns by these words (PROTOCOL §5, Learning).
	Words []string
	// Partial says that the time limit ended the search early. Hits may be missing,
	// and counts are too low.
	Partial bool
}

// SearchHit is one Mecha found.
type SearchHit struct {
	ID          MechaNumber
	Address     Address
	Score       float64 // 0–1, to six decimals
	Matched     Matched
	Highlights  []Highlight
	Explanation *Explanation // nil without SearchRequest.Explain
}

// Matched says why a Mecha was found.
type Matched struct {
	SkillID string   // the id of the best matching skill, or its name if it has no id; "" if none matches
	Fields  []string // name, tags, description, skills.name, skills.description, examples, details
	Terms   []string // words of the query, after correction
}

// Highlight is a piece of a profile's text with the places that match.
type Highlight struct {
	Field string
	Text  string
	Spans [][2]int // start and end as byte offsets in Text, in order, without overlaps
}

// FacetCount says how many matches have a value. A tag counts for its parents, too,
// so that the count is the number of hits of a filter by the value.
type FacetCount struct {
	Value string
	Count int
}

// Explanation shows the parts of a score. It is for people, and its form may change.
type Explanation struct {
	Raw      float64 `json:"raw"`      // the score before it is scaled to 0–1
	Coarse   float64 `json:"coarse"`   // BM25 of the combined text
	Text     float64 `json:"text"`     // the fine score of the whole query and of its best sentence
	Name     float64 `json:"name"`     // the bonus for a match of the whole name
	Exact    string  `json:"exact"`    // "address", "name" or "skill" if the query is exactly that
	Coverage float64 `json:"coverage"` // the share of the query's weight that matched
	Online   bool    `json:"online"`
	// Learned is the part of Raw that completed exchanges have added, and Exchanges is how
	// many of the Mecha's exchanges have not faded (PROTOCOL §5, Learning). Exchanges is 0
	// if they add nothing.
	Learned   float64           `json:"learned"`
	Exchanges float64           `json:"exchanges"`
	Words     []WordExplanation `json:"words"`
}

// WordExplanation is the part of one word of the query in a score.
type WordExplanation struct {
	Word   string  `json:"word"` // after correction
	Weight float64 `json:"weight"`
	IDF    float64 `json:"idf"`
	Score  float64 `json:"score"`
}

// SaveSearch is what a store keeps of a search. Answers are local to a process, because each
// process has its own index.
type SaveSearch struct {
	At     time.Time
	ID     SearchID
	Mecha  MechaNumber
	Answer []byte        // JSON
	Words  []string      // of the query (SearchResult.Words)
	Listed []MechaNumber // whom the answer lists
	Nonce  NonceHash
}

// JoinWords returns the words of a search as the file stores them, or "".
func JoinWords(words []string) string { return strings.Join(words, "\n") }
