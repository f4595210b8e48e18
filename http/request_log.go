package http

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"time"

	"relay/db/relay"
)

// noted is a ResponseWriter that notes what a request got, for the line that the log has
// of each request at the level debug. The goroutine of the request uses it.
type noted struct {
	http.ResponseWriter
	status int
	bytes  int64       // of the body
	key    relay.KeyID // "" if no valid key was shown
}

// serveNoted answers a request as ServeHTTP does, and logs it: who asked for what, and
// what came of it. The line never has a secret, a header's value, the query or a body.
func (s *Server) serveNoted(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	n := &noted{ResponseWriter: w}
	method, path := shown(r.Method), shown(r.URL.Path) // before a handler changes them

	defer func() { // also when the request is aborted
		s.config.Logger.Debug("request", "request_id", n.Header()["X-Request-Id"][0], "method", method, "path", path,
			"status", n.status, "bytes", n.bytes, "took_ms", float64(time.Since(began).Microseconds())/1000,
			"client", s.client(r), "key_id", n.key)
	}()
	s.dispatch(n, r)
}

func (s *Server) logsRequests(r *http.Request) bool {
	return s.config.Logger.Enabled(r.Context(), slog.LevelDebug)
}

func (n *noted) WriteHeader(status int) {
	if n.status == 0 {
		n.status = status
	}
	n.ResponseWriter.WriteHeader(status)
}

func (n *noted) Write(p []byte) (int, error) {
	if n.status == 0 {
		n.status = http.StatusOK
	}
	written, err := n.ResponseWriter.Write(p)
	n.bytes += int64(written)
	return written, err
}

// Hijack is for WebSockets, whose 101 is not written here.
func (n *noted) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(n.ResponseWriter).Hijack()
	if err == nil {
		n.status = http.StatusSwitchingProtocols
	}
	return c, rw, err
}

// Unwrap is for http.ResponseController.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

// noteKey notes whose request it is.
func noteKey(w http.ResponseWriter, key *relay.Key) {
	if n, ok := w.(*noted); ok && key != nil {
		n.key = key.ID
	}
}

const longestShown = 200 // bytes of a path or a method that the log shows

var pastedSecret = regexp.MustCompile(`(m[ks]|tk)_[0-9A-Za-z]+`)

// shown is a path or a method as the log shows it: not endless, and without what may be a
// secret, which somebody has pasted there by mistake.
func shown(text string) string {
	text = pastedSecret.ReplaceAllString(text, "${1}_…")
	if len(text) > longestShown {
		text = text[:longestShown] + "…"
	}
	return text
}
