package http

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"relay/db/relay"
)

// inbox answers GET /api/v1/mecha/{mechaId}/inbox, with 304 if nothing has changed
// for the client.
func (s *Server) inbox(c *call) (answer, error) {
	if err := c.ownMecha(); err != nil {
		return answer{}, err
	}
	in, err := s.config.DB.Inbox(c.Context(), c.key.Mecha.Number)
	s.chargeRows(c.key, in.Looked, countPerRequest)
	if err != nil {
		return answer{}, err
	}
	b := appendInt(nil, '{', "pending", in.Pending)
	b = appendOptional(b, ',', "oldest_message_id", string(in.Oldest))
	b = appendOptional(b, ',', "newest_message_id", string(in.Newest))
	b = append(appendPriorities(appendName(b, ',', "by_priority"), in.ByPriority), "}\n"...)
	sum := sha256.Sum256(b)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	a := answer{status: http.StatusOK, body: b, header: []string{"Etag", etag}}
	if matchesETag(c.Header.Values("If-None-Match"), etag) {
		a.status, a.body = http.StatusNotModified, nil
	}
	return a, nil
}

// appendPriorities appends an object. Its names are the clients' own words.
func appendPriorities(b []byte, counts map[string]int) []byte {
	b = append(b, '{')
	for i, priority := range slices.Sorted(maps.Keys(counts)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(relay.AppendString(b, priority), ':')
		b = strconv.AppendInt(b, int64(counts[priority]), 10)
	}
	return append(b, '}')
}

// matchesETag reports whether If-None-Match names the tag (RFC 9110 §13.1.2).
func matchesETag(values []string, etag string) bool {
	for _, tag := range strings.Split(strings.Join(values, ","), ",") {
		tag = strings.TrimSpace(tag)
		if tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
			return true
		}
	}
	return false
}
