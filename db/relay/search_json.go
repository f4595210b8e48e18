package relay

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"relay/db/strict"
)

const (
	defaultHits = 20
	maxHits     = 100
	maxQuery    = 2000 // characters
)

// searchBody is the body of a search (PROTOCOL §5, Search).
type searchBody struct {
	Query  string `json:"query"`
	Filter struct {
		Crew         oneOrMore `json:"crew"`
		Tags         oneOrMore `json:"tags"`
		Skills       oneOrMore `json:"skills"`
		Languages    oneOrMore `json:"languages"`
		MessageTypes oneOrMore `json:"message_types"`
		Exclude      oneOrMore `json:"exclude"`
		Online       *bool     `json:"online"`
		UpdatedSince string    `json:"updated_since"`
	} `json:"filter"`
	Sort      string   `json:"sort"`
	Limit     *int     `json:"limit"`
	Cursor    string   `json:"cursor"`
	Facets    []string `json:"facets"`
	Highlight bool     `json:"highlight"`
	Explain   bool     `json:"explain"`
}

// oneOrMore is a list of strings. In JSON, a single string stands for a list of one.
type oneOrMore []string

func (o *oneOrMore) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		if !strict.IsNull(b) {
			*o = oneOrMore{one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(o))
}

var (
	searchFields = []string{"query", "filter", "sort", "limit", "cursor", "facets", "highlight", "explain"}
	filterKeys   = map[string]bool{"crew": true, "tags": true, "skills": true, "languages": true, "message_types": true,
		"online": true, "updated_since": true, "exclude": true}
	sorts  = map[string]SearchSort{"": ByRelevance, "relevance": ByRelevance, "recent": ByRecent, "name": ByName}
	facets = map[string]bool{"crew": true, "tags": true, "languages": true}
)

// Read reads the JSON body of a search (PROTOCOL §5, Search) into q and checks it.
// It leaves Caller, Offset, Online and Lookup unchanged. cursor is the cursor of the
// body, which the caller turns into Offset. Errors: InvalidJSON, InvalidRequest,
// InvalidTime, InvalidLimit.
func (q *SearchRequest) Read(body []byte) (cursor string, err error) {
	var v searchBody
	err = ReadObject(body, searchFields, func(name string, value []byte) error {
		if name == "filter" && strict.IsObject(value) {
			return ReadObject(value, nil, func(key string, _ []byte) error {
				if !filterKeys[key] {
					return FieldErrorf(InvalidRequest, "filter."+clip(key),
						"is not a filter; the filters are crew, tags, skills, languages, message_types, online, updated_since, exclude")
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			if wrong.Field == "limit" {
				return "", FieldErrorf(InvalidLimit, "limit", "must be a whole number from 1; above %d counts as %d",
					maxHits, maxHits)
			}
			kind, _, _ := strings.Cut(wrong.Value, " ") // without the digits that follow "number"
			return "", FieldErrorf(InvalidRequest, wrong.Field, "cannot be of the JSON type %s", kind)
		}
		return "", Errorf(InvalidRequest, "the body cannot be read as a search")
	}
	q.Query, q.Highlight, q.Explain, q.Facets = strings.TrimSpace(v.Query), v.Highlight, v.Explain, v.Facets
	q.Filter = SearchFilter{Crew: v.Filter.Crew, Tags: v.Filter.Tags, Skills: v.Filter.Skills,
		Languages: v.Filter.Languages, MessageTypes: v.Filter.MessageTypes, Exclude: v.Filter.Exclude,
		Online: v.Filter.Online}
	return v.Cursor, v.check(q)
}

// check refuses values out of range, and sets the fields of q that are not plain
// copies of the body.
func (v *searchBody) check(q *SearchRequest) (err error) {
	if v.Filter.UpdatedSince != "" {
		if q.Filter.UpdatedSince, err = ParseTime(v.Filter.UpdatedSince); err != nil {
			return FieldErrorf(InvalidTime, "filter.updated_since", "is not an RFC 3339 time")
		}
	}
	if len([]rune(q.Query)) > maxQuery {
		return FieldErrorf(InvalidRequest, "query", "is longer than %d characters", maxQuery)
	}
	if q.Query == "" && q.Filter.Empty() {
		return FieldErrorf(InvalidRequest, "query", "is required if there is no filter")
	}
	known := false
	if q.Sort, known = sorts[v.Sort]; !known {
		return FieldErrorf(InvalidRequest, "sort", "must be relevance, recent or name")
	}
	slices.Sort(q.Facets)
	q.Facets = slices.Compact(q.Facets) // a facet that comes twice is counted once, since counting takes time
	for _, f := range q.Facets {
		if !facets[f] {
			return FieldErrorf(InvalidRequest, "facets", "%q is not a facet; the facets are crew, tags and languages", clip(f))
		}
	}
	q.Limit = defaultHits
	if v.Limit != nil {
		if *v.Limit < 1 {
			return FieldErrorf(InvalidLimit, "limit", "must be at least 1; above %d counts as %d", maxHits, maxHits)
		}
		q.Limit = min(*v.Limit, maxHits)
	}
	return nil
}

// clip shortens a client's text to 80 characters, for an error sentence.
func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
