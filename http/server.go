// Package http is the relay's HTTP interface: the route table, authentication,
// decoding, and the one place where an error becomes a response.
//
// A request passes these stations: Server.ServeHTTP gives it an id; the route
// table finds its endpoint; verify and claim (auth.go) establish which key sent
// it, in the order of PROTOCOL §2; the endpoint decodes, asks the store, and
// answers. An endpoint that fails returns an error, and problem.go writes it.
//
// What pages in browsers may do is in cors.go and ticket.go, what a socket may send in sender.go, by the rules
// of a POST. A ring adds rows to the route table, and gateways (gateway.go), which are not in the table.
//
// An endpoint begins in the route table and in a file of this package. Tests want it in http/documents and on the page
// "protocol".
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
	"relay/db/turn"
)

// Config is what a Server needs. DB, Live and Finder are required. A limit of zero means no limit.
type Config struct {
	DB     *db.DB
	Live   Live
	Finder Finder
	Logger *slog.Logger     // nil: nothing is logged
	Now    func() time.Time // nil: time.Now

	RequireRequestSignature bool // refuse requests without X-Request-Signature

	RequireSignature bool           // refuse requests without X-Signature or X-Request-Signature
	ClockSkew        time.Duration  // how far X-Request-Timestamp may be off, either way
	MaxBody          int64          // bytes of one request body
	RateLimit        float64        // requests per second and key
	RateBurst        int            // requests
	FailureLimit     float64        // failed authentications per second and client IP
	FailureBurst     int            // failed authentications
	MaxBodyMemory    int64          // bytes of all bodies and answers under way together
	TrustedProxies   []netip.Prefix // proxies whose X-Forwarded-For is believed
	AllowOrigins     []string       // origins of pages in browsers that may use the API; "*" allows all
	Version          Version
	Gateways         []Gateway
	Routes           []Route // rows that are added to the route table
}

// Version says what is running, for GET /version.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

// Server answers the API. Make it with New. It is safe for concurrent use.
type Server struct {
	config       Config
	router       *httprouter.Router
	keys         limiters[relay.KeyNumber] // requests
	failures     limiters[netip.Prefix]    // failed authentications, by client
	failuresWarn rate.Sometimes            // limits the warnings about them
	memory       memory
	largeBodies  *turn.Stile[relay.MechaNumber]
	measures     *Measures
	sending      sync.Map // relay.IdempotencyKey → chan struct{}: sends under way
	searches     searches
	tickets      tickets
	idPrefix     string // of request ids; differs from process to process
	idCount      atomic.Uint64
	draining     atomic.Bool
}

// New makes a server. The caller serves it with Listening, or as an http.Handler.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var prefix [6]byte
	rand.Read(prefix[:]) // never fails (crypto/rand)
	s := &Server{
		config:       c,
		keys:         newLimiters[relay.KeyNumber](c.RateLimit, c.RateBurst),
		failures:     newLimiters[netip.Prefix](c.FailureLimit, c.FailureBurst),
		failuresWarn: rate.Sometimes{Interval: 10 * time.Second},
		largeBodies:  newLargeBodies(),
		memory:       memory{limit: c.MaxBodyMemory, share: c.MaxBodyMemory / memoryShare},
		searches:     searches{store: c.DB, log: c.Logger},
		idPrefix:     hex.EncodeToString(prefix[:]) + "-",
	}
	s.measures = newMeasures(s.largeBodies.Waits)
	s.router = s.newRouter()
	c.Live.SetSender(sender{s})
	return s
}

// A Route is one endpoint of the API.
type Route struct {
	Method, Path string // {x} in a path is a parameter, as in OpenAPI
	Who          Who    // the handler enforces it
	Handle       httprouter.Handle
	Doc          string // what the endpoint does, for people
}

// Who says who may call an endpoint.
type Who string

// Those who may.
const (
	Anyone       Who = "anyone" // without a key
	AnyKey       Who = "any key"
	Itself       Who = "the Mecha itself" // the one that the path names
	Parties      Who = "sender, recipient"
	Recipient    Who = "recipient"
	Participants Who = "participants" // the Mechas that have sent or received in the conversation
	Asker        Who = "the Mecha that searched"
)

// Routes returns the rows of the API's route table, for what describes it.
func Routes() []Route { return (*Server)(nil).routes() }

// routes is the API, one row per endpoint: read it and you know the API.
func (s *Server) routes() []Route {
	api, open := s.authenticated, Open
	read := func(h endpoint) httprouter.Handle { return api(s.whenFresh(h)) }
	return []Route{
		{"GET", "/api/v1/whoami", AnyKey, read(s.whoami), "the key's own address, and when the key expires"},

		{"POST", "/api/v1/messages", AnyKey, api(s.sendMessage), "send a message"},
		{"GET", "/api/v1/messages/{messageId}", Parties, read(s.getMessage), "the record of a message, without its payload"},
		{"GET", "/api/v1/messages/{messageId}/payload", Recipient, read(s.getPayload), "the payload's exact bytes"},
		{"GET", "/api/v1/messages/{messageId}/trace", Parties, read(s.trace),
			"what happened to a message, and why there is no answer"},
		{"POST", "/api/v1/messages/{messageId}/ack", Recipient, api(s.acknowledge), "acknowledge a message"},
		{"POST", "/api/v1/messages/{messageId}/deliver", Recipient, api(s.markDelivered), "mark a message as delivered"},

		{"GET", "/api/v1/mecha/{mechaId}/messages", Itself, read(s.history),
			"history, page by page; can wait for new messages"},
		{"GET", "/api/v1/mecha/{mechaId}/inbox", Itself, read(s.inbox), "how many messages are pending; has an ETag"},
		{"POST", "/api/v1/mecha/{mechaId}/claim", Itself, api(s.claimMessages),
			"lease pending messages, as one of several workers"},
		{"GET", "/api/v1/ws/mecha/{mechaId}", Itself, s.connect, "the WebSocket: new messages as they are accepted"},
		{"POST", "/api/v1/mecha/{mechaId}/ticket", Itself, read(s.getTicket), "a ticket for a browser"},
		{"GET", "/api/v1/conversations/{conversationId}/messages", Participants, read(s.conversation),
			"messages of a conversation that the caller sent or received"},

		{"GET", "/api/v1/mecha/{mechaId}/profile", AnyKey, read(s.getProfile),
			"the profile of a Mecha, and whether it is online"},
		{"PUT", "/api/v1/mecha/{mechaId}/profile", Itself, api(s.putProfile), "replace the profile"},
		{"POST", "/api/v1/search", AnyKey, read(s.search), "find Mechas by their profiles"},
		{"GET", "/api/v1/search/{requestId}", Asker, read(s.getSearch), "the result of a search, for an hour"},

		{"GET", "/livez", Anyone, open(s.livez), "the process runs"},
		{"GET", "/readyz", Anyone, open(s.readyz), "whether requests are answered, and messages accepted"},
		{"GET", "/version", Anyone, open(s.version), "which version runs"},
		{"GET", "/", Anyone, open(s.root), "a redirect to the documentation"},
		{"GET", "/docs", Anyone, open(s.docsIndex), "the documentation's pages"},
		{"GET", "/docs/{page}", Anyone, open(s.docsPage), "one page, for a browser or as Markdown, or a picture"},
	}
}

// newRouter registers the rows of routes. A GET is answered to HEAD as well (RFC
// 9110 §9.3.2), but not a handshake, which has to be a GET (RFC 6455 §4.1).
func (s *Server) newRouter() *httprouter.Router {
	r := &httprouter.Router{
		HandleMethodNotAllowed: true,
		NotFound:               http.HandlerFunc(s.notFound),
		MethodNotAllowed:       http.HandlerFunc(s.methodNotAllowed),
		PanicHandler:           s.panicked,
	}
	parameter := strings.NewReplacer("{", ":", "}", "") // as httprouter writes it
	for _, d := range s.config.Gateways {               // no rows of routes: what they speak is not the API
		r.POST(d.Path, func(w http.ResponseWriter, q *http.Request, p httprouter.Params) { s.answerAt(d, w, q, p) })
	}
	for _, row := range slices.Concat(s.routes(), s.config.Routes) {
		path := parameter.Replace(row.Path)
		r.Handle(row.Method, path, row.Handle)
		if row.Method == http.MethodGet && !strings.HasPrefix(path, "/api/v1/ws/") {
			r.Handle(http.MethodHead, path, row.Handle)
		}
	}
	return r
}

// ServeHTTP answers one request. It is safe for concurrent use.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := s.idPrefix + strconv.FormatUint(s.idCount.Add(1), 36)
	h := w.Header()
	h["X-Request-Id"] = []string{id}
	h["Cache-Control"] = noStore
	h["X-Content-Type-Options"] = noSniff
	if endsConnection(r) {
		h["Connection"] = closing
	}
	if s.logsRequests(r) {
		s.serveNoted(w, r)
		return
	}
	s.dispatch(w, r)
}

// dispatch hands a request to its endpoint.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawPath != "" && strings.Contains(strings.ToUpper(r.URL.RawPath), "%2F") {
		s.notFound(w, r) // a proxy's rules for paths would not see a slash there
		return
	}
	if len(r.Header["Origin"]) > 0 && s.answerOrigin(w, r) {
		return
	}
	s.router.ServeHTTP(w, r)
}

var (
	noStore         = []string{"no-store"}
	noSniff         = []string{"nosniff"}
	closing         = []string{"close"}
	jsonContentType = []string{"application/json"}
)

// Drain makes the server refuse new API requests and report itself not ready. Requests in progress
// continue.
func (s *Server) Drain() { s.draining.Store(true) }

// endpoint answers one authenticated request.
type endpoint func(c *call) (answer, error)

// answer is a successful response.
type answer struct {
	status int
	body   []byte
	header []string // names and values in turn
}

// ok answers 200 with an object that has been made for this answer. A newline
// ends the body, so that a terminal shows its prompt on a line of its own.
func ok(object []byte) (answer, error) {
	return answer{status: http.StatusOK, body: append(object, '\n')}, nil
}

// Open makes a plain handler one of the route table, for Anyone.
func Open(h http.HandlerFunc) httprouter.Handle {
	return func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) { h(w, r) }
}

// authenticated makes an endpoint a handler of the route table.
func (s *Server) authenticated(h endpoint) httprouter.Handle {
	return func(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
		c, err := s.authenticate(w, r, p)
		if err != nil {
			s.Refuse(w, r, err)
			return
		}
		defer c.done(s)
		a, err := h(c)
		if err == nil {
			err = s.hold(c, len(a.body))
		}
		if err != nil {
			s.Refuse(w, r, err)
			return
		}
		c.conn.endWork() // from here on the client decides how long it takes
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

// whenFresh makes an endpoint that reads: it refuses while this node of a cluster does not know whether the key
// is still valid. A write needs no such check, since the log decides about it.
func (s *Server) whenFresh(h endpoint) endpoint {
	return func(c *call) (answer, error) {
		if err := s.config.DB.CheckFresh(); err != nil {
			return answer{}, err
		}
		return h(c)
	}
}

func (s *Server) notFound(w http.ResponseWriter, r *http.Request) {
	const detail = "there is no such path; /docs lists the API"
	if strings.HasPrefix(r.URL.Path, "/api/") {
		s.Refuse(w, r, relay.Errorf(relay.NotFound, detail))
		return
	}
	s.noPage(w, r, detail)
}

func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	methods := strings.Split(w.Header().Get("Allow"), ", ")
	allow := strings.Join(slices.DeleteFunc(methods, isOptions), ", ")
	w.Header().Set("Allow", allow)
	s.Refuse(w, r, relay.Errorf(relay.MethodNotAllowed, "this path accepts %s only", allow))
}

// isOptions finds the method that httprouter puts into every Allow; no path here accepts it.
func isOptions(method string) bool { return method == http.MethodOptions }

func (s *Server) panicked(w http.ResponseWriter, r *http.Request, v any) {
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.config.Logger.Error("panic", "client", s.client(r), "value", v, "stack", string(debug.Stack()))
	s.Refuse(w, r, relay.Errorf(relay.Internal, "the relay failed"))
}

// Timeouts bound how long and how much one client can hold on to (PROTOCOL §7).
// They are ReadHeaderTimeout, ReadTimeout, IdleTimeout and MaxHeaderBytes of
// http.Server, whose documentation says what zero means.
type Timeouts struct {
	Header     time.Duration // to the end of the headers
	Body       time.Duration // to the end of the body; zero also lifts the limit for answers
	Idle       time.Duration // between two requests
	MaxHeaders int           // bytes of the request line and the headers, from 4,097
}

// headerBytes is the MaxHeaderBytes of an http.Server that accepts so many bytes:
// net/http adds the size of its read buffer.
func headerBytes(limit int) int {
	if limit <= 0 {
		return 0
	}
	return max(limit-4096, 1)
}

// Listening makes the standard library's server for s.
func (s *Server) Listening(t Timeouts) *http.Server {
	write := t.Body + maxWait + 30*time.Second // the body may come slowly, a long-poll wait, the answer leave slowly
	if t.Body == 0 {
		write = 0
	}
	return &http.Server{
		Handler:           s,
		ReadHeaderTimeout: t.Header,
		ReadTimeout:       t.Body,
		WriteTimeout:      write,
		IdleTimeout:       t.Idle,
		MaxHeaderBytes:    headerBytes(t.MaxHeaders),
		ConnContext:       withConnection,
		ConnState:         noteState,
		ErrorLog:          slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug),

		DisableGeneralOptionsHandler: true, // its answer to OPTIONS * has no X-Request-Id
	}
}
