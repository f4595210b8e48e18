package search

import (
	"strings"
	"unicode/utf8"

	"relay/db/relay"
)

// The types of a request and its result belong to the vocabulary, so that the
// HTTP routes can search without importing this package.
type (
	Request         = relay.SearchRequest
	Filter          = relay.SearchFilter
	Sort            = relay.SearchSort
	Result          = relay.SearchResult
	Hit             = relay.SearchHit
	Matched         = relay.Matched
	Highlight       = relay.Highlight
	FacetCount      = relay.FacetCount
	Explanation     = relay.Explanation
	WordExplanation = relay.WordExplanation
)

// The orders of hits.
const (
	ByRelevance = relay.ByRelevance
	ByRecent    = relay.ByRecent
	ByName      = relay.ByName
)

const (
	defaultLimit    = 20
	maxLimit        = 100
	maxFilterValues = 256
)

// FacetCrew and the others are the names that Request.Facets takes.
const (
	FacetCrew      = "crew"
	FacetTags      = "tags"
	FacetLanguages = "languages"
)

// checkRequest validates the request and fills in defaults. Its errors are *relay.Error.
func checkRequest(r *Request) error {
	if utf8.RuneCountInString(r.Query) > maxQueryChars {
		return relay.FieldErrorf(relay.InvalidRequest, "query", "must not have more than %d characters", maxQueryChars)
	}
	r.Query = strings.TrimSpace(strings.ToValidUTF8(r.Query, "\uFFFD"))
	if r.Query == "" && r.Filter.Empty() {
		return relay.FieldErrorf(relay.InvalidRequest, "query", "must not be empty without a filter")
	}
	switch r.Sort {
	case "":
		r.Sort = ByRelevance
	case ByRelevance, ByRecent, ByName:
	default:
		return relay.FieldErrorf(relay.InvalidRequest, "sort", "must be relevance, recent or name")
	}
	switch {
	case r.Limit == 0:
		r.Limit = defaultLimit
	case r.Limit < 1 || r.Limit > maxLimit:
		return relay.FieldErrorf(relay.InvalidLimit, "limit", "must be a whole number from 1 to %d", maxLimit)
	}
	if r.Offset < 0 {
		return relay.FieldErrorf(relay.InvalidRequest, "cursor", "must not point before the first result")
	}
	for _, f := range r.Facets {
		if facetOf(f) < 0 {
			return relay.FieldErrorf(relay.InvalidRequest, "facets", "must be crew, tags or languages")
		}
	}
	return checkFilter(&r.Filter)
}

func checkFilter(f *Filter) error {
	for name, list := range map[string][]string{"crew": f.Crew, "tags": f.Tags, "skills": f.Skills,
		"languages": f.Languages, "message_types": f.MessageTypes, "exclude": f.Exclude} {
		if len(list) > maxFilterValues {
			return relay.FieldErrorf(relay.InvalidRequest, "filter."+name, "must not have more than %d values", maxFilterValues)
		}
	}
	return nil
}
