package http

import (
	"net/http"
	"strings"

	"relay/db/relay"
)

// This file lets the pages of the origins in Config.AllowOrigins use the API from a
// browser (CORS, https://fetch.spec.whatwg.org/#http-cors-protocol). No request depends on
// a cookie, so none is sent with credentials.

// preflightLife is how long a browser may keep the answer to a preflight, in seconds.
const preflightLife = "600"

// exposedHeaders are the headers of answers that a page may read, in addition to the ones that it always may.
const exposedHeaders = "ETag, Idempotent-Replayed, Location, Preference-Applied, Retry-After, X-Request-Id"

// acceptedHeaders are the headers of requests that a page may set: all that the API reads of a
// request, and Content-Type, which many programs set.
const acceptedHeaders = "Content-Type, Idempotency-Key, If-None-Match, Prefer, X-Mecha-Key, X-Nonce, " +
	"X-Request-Signature, X-Request-Timestamp, X-Signature, traceparent, tracestate"

// answerOrigin adds what a browser wants to know to the answer to a request of a page.
// done: the request was a preflight, and has been answered.
func (s *Server) answerOrigin(w http.ResponseWriter, r *http.Request) (done bool) {
	if !strings.HasPrefix(r.URL.Path, "/api/") {
		return false
	}
	origin := r.Header["Origin"]
	allowed := len(origin) == 1 && relay.AllowsOrigin(s.config.AllowOrigins, origin[0])
	if allowed {
		h := w.Header()
		h["Access-Control-Allow-Origin"] = origin[:1:1]
		h["Access-Control-Expose-Headers"] = []string{exposedHeaders}
		h["Vary"] = []string{"Origin"}
	}
	if r.Method != http.MethodOptions || len(r.Header["Access-Control-Request-Method"]) == 0 {
		return false
	}
	if !allowed {
		s.Refuse(w, r, relay.Errorf(relay.OriginNotAllowed,
			"the origin %s is not allowed; relay serve --allow-origin allows one", relay.Quote(origin[0])))
		return true
	}
	return s.answerPreflight(w, r)
}

// answerPreflight answers a preflight of a path that there is.
func (s *Server) answerPreflight(w http.ResponseWriter, r *http.Request) (done bool) {
	var methods []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		if handle, _, _ := s.router.Lookup(m, r.URL.Path); handle != nil {
			methods = append(methods, m)
		}
	}
	if methods == nil {
		return false // it is not found
	}
	h := w.Header()
	h["Access-Control-Allow-Methods"] = []string{strings.Join(methods, ", ")}
	h["Access-Control-Allow-Headers"] = []string{acceptedHeaders}
	h["Access-Control-Max-Age"] = []string{preflightLife}
	h["Content-Type"] = jsonContentType
	w.Write([]byte("{}\n"))
	return true
}
