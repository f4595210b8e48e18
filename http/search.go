package http

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/strict"
)

// Finder is what the routes need of the search index (package search). Errors:
// *relay.Error (Overloaded, InvalidRequest).
type Finder interface {
	Search(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error)
}

const (
	defaultHits = 20
	maxHits     = 100
	maxQuery    = 2000  // characters
	maxOffset   = 10000 // results that can be paged to
)

// search answers POST /api/v1/search. The answer is worked out at once, for it
// takes milliseconds; 202 hands out the id to fetch it by, and whoever says
// Prefer: wait gets it right away.
func (s *Server) search(c *call) (answer, error) {
	q, err := s.readSearch(c)
	if err != nil {
		return answer{}, err
	}
	id := relay.NewSearchID()
	body, err := s.find(c, id, q)
	if err != nil {
		return answer{}, err
	}
	if !s.searches.put(id, c.key.Mecha.ID, body, c.at) {
		e := relay.Errorf(relay.Overloaded, "too many answers to searches wait for the disk")
		e.RetryAfter = time.Second
		return answer{}, e
	}
	s.DB.SaveSearch(&db.SaveSearch{At: c.at, ID: id, Mecha: c.key.Mecha.ID, Answer: body, Nonce: c.claimed}, func(err error) {
		if !s.unwritten.Swap(err != nil) && err != nil { // the first of a row tells enough
			s.Logger.Error("answers to searches are not written; this process keeps them", "search", id, "error", err)
		}
		if err != nil {
			s.searches.keep(id, c.at.Add(relay.SearchLife))
			return
		}
		s.searches.drop(id)
	})
	url := "/api/v1/search/" + string(id)
	a := answer{status: http.StatusAccepted, header: []string{"Location", url}}
	if prefersWait(c.Header.Values("Prefer")) {
		a.status, a.body = http.StatusOK, body
		a.header = append(a.header, "Preference-Applied", "wait")
		return a, nil
	}
	b := appendField(nil, '{', "request_id", string(id))
	b = appendField(b, ',', "status", "completed")
	b = appendTime(b, ',', "created_at", c.at)
	b = appendTime(b, ',', "expires_at", c.at.Add(relay.SearchLife))
	b = appendField(b, ',', "result_url", url)
	a.body = append(b, '}')
	return a, nil
}

// getSearch answers GET /api/v1/search/{requestId}, for the Mecha that asked.
func (s *Server) getSearch(c *call) (answer, error) {
	id := relay.SearchID(c.params.ByName("requestId"))
	if owner, body, expired, known := s.searches.get(id, c.at); known { // not committed yet, or never
		switch {
		case owner != c.key.Mecha.ID:
			return answer{}, relay.Errorf(relay.NotYourSearch, "another Mecha asked for this search")
		case !expired.IsZero():
			return answer{}, relay.Errorf(relay.SearchExpired, "the answer was kept until %s; search again", relay.FormatTime(expired))
		}
		return ok(body)
	}
	body, err := s.DB.Search(c.Context(), id, c.key.Mecha.ID)
	return answer{status: http.StatusOK, body: body}, err
}

// prefersWait reads RFC 7240's wait preference; the answer is ready in any time
// that can be asked for. The first one counts (§2).
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

// cutOutsideQuotes splits at sep, but for what stands in quoted strings (RFC 9110 §5.6.4).
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

// oneOrMore takes a string where a list of them is meant.
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
	q := relay.SearchRequest{Caller: c.key.Mecha.Address, Online: s.Live.Online}
	err := strict.ReadObject(c.body, searchFields, func(name string, value []byte) error {
		if name == "filter" && strict.IsObject(value) {
			return strict.ReadObject(value, nil, func(key string, _ []byte) error {
				if !filterKeys[key] {
					return relay.FieldErrorf(relay.InvalidRequest, "filter."+clip(key), "is no filter; there are crew, tags, skills, languages, message_types, online, updated_since, exclude")
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
		return q, relay.Errorf(relay.InvalidRequest, "the search cannot be read")
	}
	q.Query, q.Highlight, q.Explain, q.Facets = strings.TrimSpace(v.Query), v.Highlight, v.Explain, v.Facets
	q.Filter = relay.SearchFilter{Crew: v.Filter.Crew, Tags: v.Filter.Tags, Skills: v.Filter.Skills, Languages: v.Filter.Languages,
		MessageTypes: v.Filter.MessageTypes, Exclude: v.Filter.Exclude, Online: v.Filter.Online}
	return q, v.check(&q)
}

// check reads what needs more than its type, and refuses what is out of range.
func (v *searchBody) check(q *relay.SearchRequest) (err error) {
	if v.Filter.UpdatedSince != "" {
		if q.Filter.UpdatedSince, err = relay.ParseTime(v.Filter.UpdatedSince); err != nil {
			return relay.FieldErrorf(relay.InvalidTime, "filter.updated_since", "is no RFC 3339 time")
		}
	}
	if len([]rune(q.Query)) > maxQuery {
		return relay.FieldErrorf(relay.InvalidRequest, "query", "is longer than %d characters", maxQuery)
	}
	if q.Query == "" && q.Filter.Empty() {
		return relay.FieldErrorf(relay.InvalidRequest, "query", "or a filter is required")
	}
	known := false
	if q.Sort, known = sorts[v.Sort]; !known {
		return relay.FieldErrorf(relay.InvalidRequest, "sort", "must be relevance, recent or name")
	}
	slices.Sort(q.Facets)
	q.Facets = slices.Compact(q.Facets) // counting takes time, so each once
	for _, f := range q.Facets {
		if !facets[f] {
			return relay.FieldErrorf(relay.InvalidRequest, "facets", "%q is no facet; there are crew, tags and languages", clip(f))
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

// clip bounds what a refusal repeats of the request.
func clip(s string) string {
	if r := []rune(s); len(r) > 80 {
		return string(r[:80]) + "…"
	}
	return s
}

// A search cursor is an offset, bound to the search that it continues.
func searchCursor(offset int, q *relay.SearchRequest) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(offset) + "." + fingerprint(q)))
}

func readSearchCursor(text string, q *relay.SearchRequest) (int, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	offset, print, _ := strings.Cut(string(raw), ".")
	n, bad := strconv.Atoi(offset)
	if err != nil || bad != nil || n < 0 || n > maxOffset || print != fingerprint(q) {
		return 0, relay.FieldErrorf(relay.InvalidRequest, "cursor", "is none that this search gave")
	}
	return n, nil
}

func fingerprint(q *relay.SearchRequest) string {
	b, _ := json.Marshal([]any{q.Query, q.Filter, q.Sort}) // strings, times and a bool cannot fail
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(b)), 36)
}
