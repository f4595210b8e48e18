package http

import (
	"context"
	"net/http"

	"relay/db/relay"
)

// Finder is what a Server needs of the search index (package search). It is safe
// for concurrent use. Its errors are of type *relay.Error: Overloaded, InvalidRequest.
type Finder interface {
	Search(ctx context.Context, q relay.SearchRequest) (*relay.SearchResult, error)
	// Ready reports whether searches find all Mechas. Before that, the index catches up.
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
	if err := s.reserve(c, int64(q.Limit)*resultRoom); err != nil {
		return answer{}, err
	}
	id := relay.NewSearchID()
	saved := &relay.SaveSearch{At: c.at, ID: id, Mecha: c.key.Mecha.Number, Nonce: c.claimed}
	if err = s.find(c, saved, q); err != nil {
		return answer{}, err
	}
	found := saved.Answer
	if err = s.searches.save(saved); err != nil {
		return answer{}, err
	}
	url := "/api/v1/search/" + string(id)
	if wait, preferred := preferredWait(c.Header); preferred && wait > 0 {
		return answer{status: http.StatusOK, body: found, header: []string{"Location", url, "Preference-Applied", "wait"}},
			nil
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
	if err := s.reserve(c, resultRoom); err != nil { // as a rule
		return answer{}, err
	}
	found, err := s.searches.get(c.Context(), relay.SearchID(c.params.ByName("requestId")), c.key.Mecha.Number, c.at)
	return answer{status: http.StatusOK, body: found}, err
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
