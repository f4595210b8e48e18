package http

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"
)

// find runs a search, and fills in what is to be saved: its answer (PROTOCOL §5) as JSON, the
// words of the query, and whom the answer lists.
func (s *Server) find(c *call, saved *relay.SaveSearch, q relay.SearchRequest) error {
	began := time.Now()
	var entries map[relay.MechaNumber]*relay.Entry
	q.Lookup = func(ctx context.Context, ids []relay.MechaNumber) ([]relay.Entry, error) {
		all, err := s.config.DB.Entries(ctx, c.key.Mecha.Number, ids)
		entries = make(map[relay.MechaNumber]*relay.Entry, len(all))
		for i := range all {
			entries[all[i].Number] = &all[i]
		}
		return all, err
	}
	r, err := s.config.Finder.Search(c.Context(), q)
	s.measures.searched(r, err, time.Since(began))
	if err != nil {
		return err
	}
	if entries == nil { // the index has not called Lookup: it does so for highlights only
		ids := make([]relay.MechaNumber, len(r.Hits))
		for i, h := range r.Hits {
			ids[i] = h.ID
		}
		if _, err := q.Lookup(c.Context(), ids); err != nil {
			return err
		}
	}
	results, err := s.results(c, &q, r, entries)
	if err != nil {
		return err
	}
	saved.Words = r.Words
	for i := range results {
		saved.Listed = append(saved.Listed, results[i].number)
	}
	total := r.Total - (len(r.Hits) - len(results))
	var next *string
	if end := q.Offset + len(r.Hits); end < r.Total && end <= maxOffset && len(r.Hits) > 0 {
		text := searchCursor(end, &q)
		next = &text
	}
	saved.Answer, err = encode(searchAnswer{
		RequestID: saved.ID, Status: "completed", Query: q.Query, Corrected: orNil(r.CorrectedQuery), Total: total,
		TookMS: float64(time.Since(began).Microseconds()) / 1000, Ranking: r.RankingVersion,
		AsOf:    relay.FormatTime(relay.Position(r.AsOf).Time()),
		Results: results, Facets: facetAnswer(r.Facets), Next: next, Partial: r.Partial,
		CreatedAt: relay.FormatTime(c.at), ExpiresAt: relay.FormatTime(c.at.Add(relay.SearchLife)),
	})
	return err
}

func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// searchAnswer is the result of PROTOCOL §5.
type searchAnswer struct {
	RequestID relay.SearchID           `json:"request_id"`
	Status    string                   `json:"status"`
	Query     string                   `json:"query"`
	Corrected *string                  `json:"corrected_query"`
	Total     int                      `json:"total"`
	TookMS    float64                  `json:"took_ms"`
	Ranking   string                   `json:"ranking_version"`
	AsOf      string                   `json:"as_of"`
	Results   []searchHit              `json:"results"`
	Facets    map[string][]facetResult `json:"facets"`
	Next      *string                  `json:"next_cursor"`
	CreatedAt string                   `json:"created_at"`
	ExpiresAt string                   `json:"expires_at"`
	Partial   bool                     `json:"partial,omitempty"` // the search ran out of its time
}

type searchHit struct {
	Rank        int                `json:"rank"`
	MechaID     relay.Address      `json:"mecha_id"`
	Name        string             `json:"name"`
	Crew        string             `json:"crew"`
	DisplayName string             `json:"display_name"`
	Description string             `json:"description"`
	Tags        []string           `json:"tags"`
	Score       float64            `json:"score"`
	Matched     matched            `json:"matched"`
	Highlights  []highlight        `json:"highlights"`
	Online      bool               `json:"online"`
	LastSeen    *string            `json:"last_seen"`
	Explain     *relay.Explanation `json:"explain,omitempty"`

	number relay.MechaNumber
}

type matched struct {
	SkillID *string  `json:"skill_id"`
	Fields  []string `json:"fields"`
	Terms   []string `json:"terms"`
}

type highlight struct {
	Field string   `json:"field"`
	Text  string   `json:"text"`
	Spans [][2]int `json:"spans"`
}

type facetResult struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// results returns the hits with what the directory says of them now. The index
// follows the directory a moment later, so a Mecha that has been removed
// meanwhile, or that the caller may no longer see, is left out.
func (s *Server) results(
	c *call, q *relay.SearchRequest, r *relay.SearchResult, entries map[relay.MechaNumber]*relay.Entry,
) ([]searchHit, error) {
	out := []searchHit{}
	for i := range r.Hits {
		h := &r.Hits[i]
		e := entries[h.ID]
		if e == nil || !mayFind(q, e) {
			continue
		}
		if h.Explanation != nil && h.Explanation.Words == nil {
			h.Explanation.Words = []relay.WordExplanation{}
		}
		seen, err := s.config.DB.LastSeen(c.Context(), c.key.Mecha.Number, h.ID)
		if err != nil {
			return nil, err
		}
		hit := searchHit{
			Rank: q.Offset + i + 1, MechaID: e.Address, Name: e.Address.Name(), Crew: e.Address.Crew(),
			DisplayName: e.DisplayName, Description: e.Description, Tags: list(e.Tags), Score: h.Score,
			Matched:    matched{orNil(h.Matched.SkillID), list(h.Matched.Fields), list(h.Matched.Terms)},
			Highlights: []highlight{}, Online: s.config.Live.Online(h.ID), LastSeen: timeOrNull(seen),
			Explain: h.Explanation, number: h.ID,
		}
		for _, x := range h.Highlights {
			hit.Highlights = append(hit.Highlights, highlight{x.Field, x.Text, x.Spans})
		}
		out = append(out, hit)
	}
	return out, nil
}

// mayFind reports whether a search may show an entry. Only its exact address finds
// an unlisted one.
func mayFind(q *relay.SearchRequest, e *relay.Entry) bool {
	return e.VisibleTo(q.Caller) && (e.Visibility != relay.Unlisted || q.Query == string(e.Address))
}

// list returns an empty list for nil, which would be null in JSON.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func facetAnswer(all map[string][]relay.FacetCount) map[string][]facetResult {
	out := map[string][]facetResult{}
	for name, counts := range all {
		out[name] = []facetResult{}
		for _, c := range counts {
			out[name] = append(out[name], facetResult{c.Value, c.Count})
		}
	}
	return out
}

const maxOffset = 10_000 // results that can be paged to

// searchCursor makes the cursor of the page at an offset. It is bound to the
// search that it continues.
func searchCursor(offset int, q *relay.SearchRequest) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(offset) + "." + fingerprint(q)))
}

func readSearchCursor(text string, q *relay.SearchRequest) (int, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	offset, print, _ := strings.Cut(string(raw), ".")
	n, bad := strconv.Atoi(offset)
	if err != nil || bad != nil || n < 0 || n > maxOffset || print != fingerprint(q) {
		return 0, relay.FieldErrorf(relay.InvalidRequest, "cursor", "was not given by this search")
	}
	return n, nil
}

func fingerprint(q *relay.SearchRequest) string {
	b, _ := json.Marshal([]any{q.Query, q.Filter, q.Sort}) // strings, times and a bool cannot fail
	return strconv.FormatUint(uint64(crc32.ChecksumIEEE(b)), 36)
}
