package http

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"

	"github.com/julienschmidt/httprouter"
)

// A Gateway is a path in addition to the API, for programs that cannot sign. It admits a POST by a Bearer key
// as authenticate does by signed headers, and charges it to the same shares. The handler serves the request by
// requests to the API, each of which is charged again.
type Gateway struct {
	Path string
	// Check refuses a body, by an error of package relay.
	Check func(body []byte) error
	// Answer is how many bytes an answer may have.
	Answer int64
	// Make returns the handler of one request of the Mecha own, which has shown key. The body has been read and
	// checked. api is this server. When ServeHTTP has returned, nothing of the request may still run.
	Make func(api http.Handler, own relay.Address, key string) http.Handler
}

const (
	// gatewayCharge: a body of so many bytes costs about as much as a request, since it is read several times.
	gatewayCharge = 16 << 10
	// gatewayTime is longer than any gateway takes for a request.
	gatewayTime = 60 * time.Second
)

// answerAt answers a POST to a gateway.
func (s *Server) answerAt(d Gateway, w http.ResponseWriter, r *http.Request, p httprouter.Params) {
	c, key, err := s.admitAt(d, w, r, p)
	if err != nil {
		if statusOf(err) == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		s.Refuse(w, r, err)
		return
	}
	defer c.done(s)
	if err := s.reserve(c, d.Answer); err != nil {
		s.Refuse(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), gatewayTime)
	defer cancel()
	inner := r.WithContext(ctx)
	inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
	whole := &wholeAnswer{header: http.Header{}}
	d.Make(s, c.key.Mecha.Address, key).ServeHTTP(whole, inner)
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
	c.release(s)
	n := int64(whole.body.Len())
	_ = s.hold(c, int(n)) // a POST, which may have written something, is not refused
	h := w.Header()
	for _, name := range []string{"Content-Type", "Allow"} {
		if v := whole.header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	h.Set("Content-Length", strconv.FormatInt(n, 10))
	w.WriteHeader(max(whole.status, http.StatusOK))
	w.Write(whole.body.Bytes()) // an error means that the client has gone
}

// admitAt establishes who sent a request to a gateway, and reads its body. If it returns no error, the caller
// must call c.done.
func (s *Server) admitAt(
	d Gateway, w http.ResponseWriter, r *http.Request, p httprouter.Params,
) (c *call, key string, err error) {
	if err := s.refuseDraining(); err != nil {
		return nil, "", err
	}
	if err := s.checkHost(r); err != nil {
		return nil, "", err
	}
	c = &call{Request: r, w: w, conn: connection(r.Context()), params: p, input: input{at: s.config.Now()}}
	key, err = s.verifyBearer(d, c)
	noteKey(w, c.key)
	if err != nil {
		c.done(s)
		return nil, "", s.countFailure(r, err)
	}
	return c, key, nil
}

// verifyBearer is verify for a request whose key is a Bearer token (RFC 6750).
func (s *Server) verifyBearer(d Gateway, c *call) (key string, err error) {
	text, err := header(c.Request, "Authorization")
	if err != nil {
		return "", relay.Errorf(relay.MissingHeader,
			"%s wants the key of a Mecha: Authorization: Bearer KEY, once", d.Path)
	}
	scheme, key, _ := strings.Cut(text, " ")
	if key = strings.Trim(key, " "); !strings.EqualFold(scheme, "Bearer") || key == "" {
		return "", relay.Errorf(relay.MalformedHeader, "Authorization must be: Bearer KEY")
	}
	if c.key, err = s.config.DB.Key(c.Context(), key); err != nil {
		return "", err
	}
	c.conn.vouch(c.key.Mecha.Number)
	if err := s.allow(c); err != nil {
		return "", err
	}
	if err := s.readBody(c); err != nil {
		return "", err
	}
	s.keys.charge(c.key.Number, len(c.body)/gatewayCharge, c.at)
	return key, d.Check(c.body)
}

// checkHost refuses the requests of web pages: one of an origin that is not allowed, and one that a page sends
// to its own name after resolving that name to this machine (DNS rebinding). Such a request arrives at a
// loopback address, but its Host is not a loopback name.
func (s *Server) checkHost(r *http.Request) error {
	for _, origin := range r.Header["Origin"] {
		u, err := url.Parse(origin)
		own := err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
		if !own && !relay.AllowsOrigin(s.config.AllowOrigins, origin) {
			return relay.Errorf(relay.OriginNotAllowed,
				"the origin %s is not allowed; relay serve --allow-origin allows one", relay.Quote(origin))
		}
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if r.TLS != nil || local == nil || !isLoopbackHost(local.String()) || isLoopbackHost(r.Host) || s.trusts(peerOf(r)) {
		return nil
	}
	return relay.Errorf(relay.OriginNotAllowed,
		"the Host of this request does not name this machine; use 127.0.0.1 or localhost")
}

// wholeAnswer buffers an answer, which is then written like an answer of the API.
type wholeAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *wholeAnswer) Header() http.Header { return a.header }

func (a *wholeAnswer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *wholeAnswer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
