package relay

import (
	"context"
	"time"
)

// SearchSort is the order of what a search finds.
type SearchSort string

// ByRelevance is the default; ByRecent puts the last changed first; ByName
// orders by address. Equal ones are ordered by address always.
const (
	ByRelevance SearchSort = "relevance"
	ByRecent    SearchSort = "recent"
	ByName      SearchSort = "name"
)

// SearchFilter says which Mechas come into question (PROTOCOL §5): every field
// that is set must agree, and a list agrees if any of its values does. Values
// are compared without regard to case, but for the crew, which is compared exactly.
type SearchFilter struct {
	Crew         []string
	Tags         []string // of the Mecha or a skill; "travel" finds "travel/flights"
	Skills       []string // ids or names of skills
	Languages    []string
	MessageTypes []string
	Online       *bool // needs SearchRequest.Online
	UpdatedSince time.Time
	Exclude      []string // addresses that are not wanted
}

// Empty tells whether the filter lets everything pass.
func (f *SearchFilter) Empty() bool {
	return len(f.Crew)+len(f.Tags)+len(f.Skills)+len(f.Languages)+len(f.MessageTypes)+len(f.Exclude) == 0 &&
		f.Online == nil && f.UpdatedSince.IsZero()
}

// SearchRequest is one search of the directory. Query or Filter must say something.
type SearchRequest struct {
	// Query is plain words, at most 2,000 characters, of which the first 64
	// different words count. It has no syntax.
	Query  string
	Filter SearchFilter
	// Caller decides what is visible, and is left out itself unless its
	// address is the query.
	Caller Address
	Sort   SearchSort
	Limit  int // default 20, at most 100
	Offset int
	// Facets to count over all that match: "crew", "tags", "languages".
	Facets []string
	// Highlight asks for SearchHit.Highlights. It needs Lookup: the index keeps
	// no text, so that no text is stored twice.
	Highlight bool
	Explain   bool

	// Online tells who is present. It may be nil, and must be quick: it is
	// asked for hundreds of Mechas a search, and for all with Filter.Online.
	Online func(MechaNumber) bool
	// Lookup gives the profiles of the hits of a page, in any order; a Mecha
	// that is gone may be missing. It is called at most once a search, after
	// ranking and outside its bounds; a caller that shows profiles can keep
	// what it reads there.
	Lookup func(context.Context, []MechaNumber) ([]Entry, error)
}

// SearchResult is the answer to a SearchRequest.
type SearchResult struct {
	Total          int // all that match and may be seen, not only this page
	Hits           []SearchHit
	Facets         map[string][]FacetCount
	CorrectedQuery string // the query as it was read, if words were taken for misspelled
	TookMS         int64
	AsOf           int64 // the store's revision that the answer is of
	RankingVersion string
	// Partial says that the time budget ended the search early: hits may be
	// missing and counts are too low.
	Partial bool
}

// SearchHit is one Mecha found.
type SearchHit struct {
	ID          MechaNumber
	Address     Address
	Score       float64 // 0–1, to six decimals
	Matched     Matched
	Highlights  []Highlight
	Explanation *Explanation // with SearchRequest.Explain
}

// Matched says why a Mecha was found.
type Matched struct {
	SkillID string   // the skill that fits best (its name if it has no id); "" if none does
	Fields  []string // name, tags, description, skills.name, skills.description, examples, details
	Terms   []string // words of the query, as they were read
}

// Highlight is a piece of a profile's text with the places that match.
type Highlight struct {
	Field string
	Text  string
	Spans [][2]int // byte offsets in Text, in order, not overlapping
}

// FacetCount is how many of all that match have a value. Tags are counted with
// their parents, so that a count is what a filter by that value would find.
type FacetCount struct {
	Value string
	Count int
}

// Explanation shows how a score came about. It is for people; its form may change.
type Explanation struct {
	Raw      float64           `json:"raw"`      // before it is brought to 0–1
	Coarse   float64           `json:"coarse"`   // BM25 of the combined text
	Text     float64           `json:"text"`     // of the whole query and its best sentence, finely
	Name     float64           `json:"name"`     // bonus for the name as a whole
	Exact    string            `json:"exact"`    // "address", "name" or "skill" if the query is just that
	Coverage float64           `json:"coverage"` // share of the query's weight that matched
	Online   bool              `json:"online"`
	Words    []WordExplanation `json:"words"`
}

// WordExplanation is what one word of the query brought.
type WordExplanation struct {
	Word   string  `json:"word"` // as it was read
	Weight float64 `json:"weight"`
	IDF    float64 `json:"idf"`
	Score  float64 `json:"score"`
}
