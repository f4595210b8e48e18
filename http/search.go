package http

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"relay/db"
	"relay/db/relay"
	"relay/db/strict"
)

// Finder is what a Server needs of the search index (package search). It is safe
// for concurrent use. Its errors are of type *relay.Error: Overloaded, InvalidRequest.
type Finder interface {
	Search(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error)
}

const (
	defaultHits = 20
	maxHits     = 100
	maxQuery    = 2000 // characters
)

// search answers POST /api/v1/search. It finds the answer at once, since that
// takes milliseconds, and keeps it. A request with Prefer: wait gets the answer
// directly; any other gets 202 with the URL to fetch it from.
func (s *Server) search(c *call) (answer, error) {
	q, err := s.readSearch(c)
	if err != nil {
		return answer{}, err
	}
	id := relay.NewSearchID()
	found, err := s.find(c, id, q)
	if err != nil {
		return answer{}, err
	}
	err = s.searches.save(&db.SaveSearch{At: c.at, ID: id, Mecha: c.key.Mecha.ID, Answer: found, Nonce: c.claimed})
	if err != nil {
		return answer{}, err
	}
	url := "/api/v1/search/" + string(id)
	if prefersWait(c.Header.Values("Prefer")) {
		return answer{status: http.StatusOK, body: found, header: []string{"Location", url, "Preference-Applied", "wait"}}, nil
	}
	b := appendField(nil, '{', "request_id", string(id))
	b = appendField(b, ',', "status", "completed")
	b = appendTime(b, ',', "created_at", c.at)
	b = appendTime(b, ',', "expires_at", c.at.Add(relay.SearchLife))
	b = appendField(b, ',', "result_url", url)
	return answer{status: http.StatusAccepted, body: append(b, "}\n"...), header: []string{"Location", url}}, nil
}

// getSearch answers GET /api/v1/search/{requestId}.
func (s *Server) getSearch(c *call) (answer, error) {
	found, err := s.searches.get(c.Context(), relay.SearchID(c.params.ByName("requestId")), c.key.Mecha.ID, c.at)
	return answer{status: http.StatusOK, body: found}, err
}

// prefersWait tells whether a Prefer header asks to wait for a second or more (RFC
// 7240 §4.3); an answer never takes that long. If there are several wait
// preferences, the first one counts (§2).
func prefersWait(values []string) bool {
	for _, p := range cutOutsideQuotes(strings.Join(values, ","), ',') {
		name, value, _ := strings.Cut(cutOutsideQuotes(p, ';')[0], "=")
		if strings.EqualFold(strings.TrimSpace(name), "wait") {
			value = strings.Trim(strings.TrimSpace(value), `"`)
			return strings.Trim(value, "0") != "" && strings.Trim(value, "0123456789") == "" // seconds, of any number of digits
		}
	}
	return false
}

// cutOutsideQuotes splits s at each sep that is not in a quoted string (RFC 9110 §5.6.4).
func cutOutsideQuotes(s string, sep byte) (parts []string) {
	quoted, from := false, 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case s[i] == '\\' && quoted:
			i++
		case s[i] == sep && !quoted:
			parts, from = append(parts, s[from:i]), i+1
		}
	}
	return append(parts, s[from:])
}

// searchBody is the request of PROTOCOL §5.
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

// oneOrMore is a list of strings. In JSON, a list of one may be the string itself.
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
	sorts  = map[string]relay.SearchSort{"": relay.ByRelevance, "relevance": relay.ByRelevance, "recent": relay.ByRecent, "name": relay.ByName}
	facets = map[string]bool{"crew": true, "tags": true, "languages": true}
)

func (s *Server) readSearch(c *call) (relay.SearchRequest, error) {
	var v searchBody
	q := relay.SearchRequest{Caller: c.key.Mecha.Address, Online: s.config.Live.Online}
	err := strict.ReadObject(c.body, searchFields, func(name string, value []byte) error {
		if name == "filter" && strict.IsObject(value) {
			return strict.ReadObject(value, nil, func(key string, _ []byte) error {
				if !filterKeys[key] {
					return relay.FieldErrorf(relay.InvalidRequest, "filter."+clip(key), "is not a filter; the filters are crew, tags, skills, languages, message_types, online, updated_since, exclude")
				}
				return nil
			})
		}
		return nil
	})
	if err != nil {
		return q, badJSON(err)
	}
	if err := json.Unmarshal(c.body, &v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			if wrong.Field == "limit" {
				return q, relay.FieldErrorf(relay.InvalidLimit, "limit", "must be a whole number from 1; above %d counts as %d", maxHits, maxHits)
			}
			kind, _, _ := strings.Cut(wrong.Value, " ") // a number comes with all its digits
			return q, relay.FieldErrorf(relay.InvalidRequest, wrong.Field, "cannot be of the JSON type %s", kind)
		}
		return q, relay.Errorf(relay.InvalidRequest, "the body cannot be read as a search")
	}
	q.Query, q.Highlight, q.Explain, q.Facets = strings.TrimSpace(v.Query), v.Highlight, v.Explain, v.Facets
	q.Filter = relay.SearchFilter{Crew: v.Filter.Crew, Tags: v.Filter.Tags, Skills: v.Filter.Skills, Languages: v.Filter.Languages,
		MessageTypes: v.Filter.MessageTypes, Exclude: v.Filter.Exclude, Online: v.Filter.Online}
	return q, v.check(&q)
}

// check refuses values out of range, and sets the fields of q that need more than
// a copy of what was sent.
func (v *searchBody) check(q *relay.SearchRequest) (err error) {
	if v.Filter.UpdatedSince != "" {
		if q.Filter.UpdatedSince, err = relay.ParseTime(v.Filter.UpdatedSince); err != nil {
			return relay.FieldErrorf(relay.InvalidTime, "filter.updated_since", "is not an RFC 3339 time")
		}
	}
	if len([]rune(q.Query)) > maxQuery {
		return relay.FieldErrorf(relay.InvalidRequest, "query", "is longer than %d characters", maxQuery)
	}
	if q.Query == "" && q.Filter.Empty() {
		return relay.FieldErrorf(relay.InvalidRequest, "query", "is required if there is no filter")
	}
	known := false
	if q.Sort, known = sorts[v.Sort]; !known {
		return relay.FieldErrorf(relay.InvalidRequest, "sort", "must be relevance, recent or name")
	}
	slices.Sort(q.Facets)
	q.Facets = slices.Compact(q.Facets) // each is counted once, since counting takes time
	for _, f := range q.Facets {
		if !facets[f] {
			return relay.FieldErrorf(relay.InvalidRequest, "facets", "%q is not a facet; the facets are crew, tags and languages", clip(f))
		}
	}
	q.Limit = defaultHits
	if v.Limit != nil {
		if *v.Limit < 1 {
			return relay.FieldErrorf(relay.InvalidLimit, "limit", "must be at least 1; above %d counts as %d", maxHits, maxHits)
		}
		q.Limit = min(*v.Limit, maxHits)
	}
	if v.Cursor != "" {
		if q.Offset, err = readSearchCursor(v.Cursor, q); err != nil {
			return err
		}
	}
	return nil
}

// clip bounds the part of a request that a refusal repeats.
func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}
