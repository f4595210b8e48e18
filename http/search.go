package http

import (
	"context"
	"net/http"
	"strings"

	"relay/db"
	"relay/db/relay"
)

// Finder is what a Server needs of the search index (package search). It is safe
// for concurrent use. Its errors are of type *relay.Error: Overloaded, InvalidRequest.
type Finder interface {
	Search(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error)
	// Ready tells whether searches find all Mechas. Before that, the index catches up.
	Ready() bool
}

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
	err = s.searches.save(&db.SaveSearch{At: c.at, ID: id, Mecha: c.key.Mecha.Number, Answer: found, Nonce: c.claimed})
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
	found, err := s.searches.get(c.Context(), relay.SearchID(c.params.ByName("requestId")), c.key.Mecha.Number, c.at)
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

// readSearch reads a search from the body of a request.
func (s *Server) readSearch(c *call) (relay.SearchRequest, error) {
	q := relay.SearchRequest{Caller: c.key.Mecha.Address, Online: s.config.Live.Online}
	cursor, err := q.Read(c.body)
	if err == nil && cursor != "" {
		q.Offset, err = readSearchCursor(cursor, &q)
	}
	return q, err
}
