// Package http is the relay's HTTP interface: the route table, authentication,
// decoding, and the one place where an error becomes a response.
//
// The way of a request: Server.ServeHTTP gives it an id; the route table finds
// its endpoint; verify and claim (auth.go) establish which key sent it, in the
// order of PROTOCOL §2; the endpoint decodes, asks the store, and answers. An
// endpoint returns an error, and problem.go writes it.
package http

import (
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/julienschmidt/httprouter"
	"golang.org/x/time/rate"

	"relay/db"
	"relay/db/relay"
)

// Config is what a Server needs. DB and Live are required; the zero value of a
// limit means that there is none.
type Config struct {
	DB     *db.DB
	Live   Live
	Finder Finder       // required too
	Logger *slog.Logger // default: discard
	Now    func() time.Time

	RequireSignature bool
	ClockSkew        time.Duration
	MaxBody          int64
	RateLimit        float64 // requests per second and key
	RateBurst        int
	FailureLimit     float64 // failed authentications per second and client IP
	FailureBurst     int
	MaxBodyMemory    int64          // bytes of bodies and answers under way, in all
	TrustedProxies   []netip.Prefix // those whose X-Forwarded-For is believed
	Version          Version
}

// Version says what is running, for GET /version.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// Server answers the API. Make it with New.
type Server struct {
	Config
	router    *httprouter.Router
	keys      limiters[int64]
	failures  limiters[netip.Prefix]
	tooMany   rate.Sometimes // says so
	memory    memory
	sending   sync.Map // relay.IdempotencyKey → chan struct{}: sends under way
	idPrefix  string
	idCount   atomic.Uint64
	draining  atomic.Bool
	searches  searches
	unwritten atomic.Bool // the last answer to a search could not be written
}

// New makes a server.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var prefix [6]byte
	rand.Read(prefix[:]) // never fails (crypto/rand)
	s := &Server{Config: c, idPrefix: hex.EncodeToString(prefix[:]) + "-"}
	s.keys = limiters[int64]{rate: c.RateLimit, burst: c.RateBurst}
	s.failures = limiters[netip.Prefix]{rate: c.FailureLimit, burst: c.FailureBurst}
	s.tooMany.Interval = 10 * time.Second
	s.memory = memory{most: c.MaxBodyMemory, share: c.MaxBodyMemory / keyShare}
	s.router = s.routes()
	return s
}

// routes is the API: read it and you know it.
func (s *Server) routes() *httprouter.Router {
	r := &httprouter.Router{
		HandleMethodNotAllowed: true,
		NotFound:               http.HandlerFunc(s.notFound),
		MethodNotAllowed:       http.HandlerFunc(s.methodNotAllowed),
		PanicHandler:           s.panicked,
	}
	api := func(method, path string, h endpoint) {
		r.Handle(method, path, s.authenticated(h))
		if method == http.MethodGet {
			r.Handle(http.MethodHead, path, s.authenticated(h))
		}
	}
	api("GET", "/api/v1/whoami", s.whoami)
	api("POST", "/api/v1/messages", s.sendMessage)
	api("GET", "/api/v1/messages/:messageId", s.getMessage)
	api("GET", "/api/v1/messages/:messageId/payload", s.getPayload)
	api("POST", "/api/v1/messages/:messageId/ack", s.acknowledge)
	api("POST", "/api/v1/messages/:messageId/deliver", s.markDelivered)
	api("GET", "/api/v1/mecha/:mechaId/messages", s.history)
	api("GET", "/api/v1/mecha/:mechaId/inbox", s.inbox)
	api("GET", "/api/v1/mecha/:mechaId/profile", s.getProfile)
	api("PUT", "/api/v1/mecha/:mechaId/profile", s.putProfile)
	api("GET", "/api/v1/conversations/:conversationId/messages", s.conversation)
	api("POST", "/api/v1/search", s.search)
	api("GET", "/api/v1/search/:requestId", s.getSearch)
	r.GET("/api/v1/ws/mecha/:mechaId", s.connect)

	open := func(path string, h http.HandlerFunc) {
		r.HandlerFunc("GET", path, h)
		r.HandlerFunc("HEAD", path, h)
	}
	open("/livez", s.livez)
	open("/readyz", s.readyz)
	open("/version", s.version)
	open("/docs", s.docs)
	open("/docs/promises", s.promises)
	return r
}

// ServeHTTP answers one request. It is safe for concurrent use.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := s.idPrefix + strconv.FormatUint(s.idCount.Add(1), 36)
	h := w.Header()
	h["X-Request-Id"] = []string{id}
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	s.router.ServeHTTP(w, r)
}

var (
	noStore         = []string{"no-store"}
	noSniff         = []string{"nosniff"}
	jsonContentType = []string{"application/json"}
)

// Drain makes the server refuse new API requests and report itself not ready.
func (s *Server) Drain() { s.draining.Store(true) }

// endpoint answers one authenticated request.
type endpoint func(c *call) (answer, error)

// answer is a successful response. header is a flat list of names and values.
type answer struct {
	status int
	body   []byte
	header []string
}

func ok(body []byte) (answer, error) { return answer{status: http.StatusOK, body: body}, nil }

// authenticated makes an endpoint a route.
func (s *Server) authenticated(h endpoint) httprouter.Handle {
	return func(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
		c, err := s.authenticate(w, r, p)
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		defer c.done(s)
		a, err := h(c)
		if err == nil {
			err = s.hold(c, len(a.body))
		}
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		header := w.Header()
		header["Content-Type"] = jsonContentType
		for i := 0; i+1 < len(a.header); i += 2 {
			header.Set(a.header[i], a.header[i+1])
		}
		if a.status == http.StatusNotModified {
			header.Del("Content-Type")
			w.WriteHeader(a.status)
			return
		}
		header["Content-Length"] = []string{strconv.Itoa(len(a.body))}
		w.WriteHeader(a.status)
		w.Write(a.body) // an error means that the client has gone
	}
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	s.refuse(w, r, relay.Errorf(relay.NotFound, "there is nothing at this path; /docs lists what there is"))
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	methods := strings.Split(w.Header().Get("Allow"), ", ")
	allow := strings.Join(slices.DeleteFunc(methods, isOptions), ", ")
	w.Header().Set("Allow", allow)
	s.refuse(w, r, relay.Errorf(relay.MethodNotAllowed, "this path takes %s", allow))
}

// isOptions: httprouter puts OPTIONS into every Allow, but no path here takes it.
func isOptions(method string) bool { return method == http.MethodOptions }

func (s *Server) panicked(w http.ResponseWriter, r *http.Request, v any) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.Logger.Error("panic", "client", s.client(r), "value", v, "stack", string(debug.Stack()))
	s.refuse(w, r, relay.Errorf(relay.Internal, "the relay failed"))
}

// Timeouts bound what one client can hold on to (PROTOCOL §7).
type Timeouts struct {
	Header     time.Duration // from connection, or the last answer, to the end of the headers
	Body       time.Duration // to the end of the body
	Idle       time.Duration // between requests
	MaxHeaders int           // bytes
}

// Listening makes the standard library's server for s.
func (s *Server) Listening(t Timeouts) *http.Server {
	write := t.Body + maxWait + 30*time.Second // a request may arrive slowly, wait, and answer slowly
	if t.Body == 0 {
		write = 0
	}
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: t.Header,
		ReadTimeout:       t.Body,
		WriteTimeout:      write,
		IdleTimeout:       t.Idle,
		MaxHeaderBytes:    t.MaxHeaders,
		ConnContext:       withConnection,
		ConnState:         noteState,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // its answer to OPTIONS * has no X-Request-Id
	}
}
