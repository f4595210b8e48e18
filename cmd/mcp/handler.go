package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"maps"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/db/relay"
	"relay/http/client"
)

// MaxAnswer is more than an answer has as a rule, in bytes: a payload of 100,000 characters, or 50 beginnings of
// 4,000 each.
const MaxAnswer = 1 << 20

// Handler makes what answers requests of the streamable HTTP transport. It gives a handler
// for one request, of the Mecha own, which has shown key. api is the relay's own HTTP API:
// each request of a tool goes through it with that key, unsigned, and so it counts as one
// of that Mecha. Nothing is kept between two requests, and nothing is streamed. When
// ServeHTTP returns, all calls have ended.
func Handler(version string) func(api http.Handler, own relay.Address, key string) http.Handler {
	sdk := newServer(version)
	transport := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return sdk },
		&mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: true, PropagateRequestCancellation: true,
			MaxRequestBodyBytes: -1, DisableLocalhostProtection: true, // the relay has seen to both
		})
	return func(api http.Handler, own relay.Address, key string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			life, end := context.WithCancel(r.Context())
			d := &server{api: &inside{api: api, outer: r, key: key}, life: life, own: own}
			defer d.close()
			defer end()
			transport.ServeHTTP(w, r.WithContext(through(r.Context(), d)))
		})
	}
}

// inside is the API of the relay in whose process it is.
type inside struct {
	api   http.Handler
	outer *http.Request
	key   string
}

// Do implements API.
func (in *inside) Do(
	ctx context.Context, method, path string, body []byte, header http.Header,
) (*client.Response, error) {
	// The values of the outer request say by which connection it came.
	both, cancel := context.WithCancel(in.outer.Context())
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	r, err := http.NewRequestWithContext(both, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.RequestURI, r.Host, r.RemoteAddr, r.TLS = path, in.outer.Host, in.outer.RemoteAddr, in.outer.TLS
	r.Header = http.Header{
		"X-Mecha-Key": {in.key}, "X-Nonce": {rand.Text()}, "X-Request-Timestamp": {relay.FormatTime(time.Now())},
	}
	if hops := in.outer.Header["X-Forwarded-For"]; len(hops) > 0 {
		r.Header["X-Forwarded-For"] = hops
	}
	maps.Copy(r.Header, header)
	answer := &answer{header: http.Header{}}
	if gone := in.serve(answer, r); gone {
		return nil, context.Cause(both)
	}
	return &client.Response{Proto: "HTTP/1.1", Status: answer.status, Header: answer.header,
		Body: answer.body.Bytes()}, nil
}

// serve is true if the request was aborted, because its client has gone.
func (in *inside) serve(w http.ResponseWriter, r *http.Request) (gone bool) {
	defer func() {
		if v := recover(); v == http.ErrAbortHandler {
			gone = true
		} else if v != nil {
			panic(v)
		}
	}()
	in.api.ServeHTTP(w, r)
	return false
}

// answer keeps an answer of the API.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
