package conformance

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A proxy stands between a client and the relay. It notes what the client asks, and does
// to it what the case wants.
type proxy struct {
	faults    // set before the first request
	url       string
	accepted  *counter // counts the messages that the relay accepted
	asker     string   // the key whose messages accepted counts
	server    *http.Server
	transport *http.Transport
	ended     sync.WaitGroup // the server, and each request and socket

	struck atomic.Int64 // how often a fault has hit

	mu        sync.Mutex
	closed    bool
	relay     string // host:port; "": the relay is down
	exchanges []*exchange
	subjects  map[string]int
	sockets   map[string]int      // of each key, how many it has opened
	pushed    map[string][][]byte // to each key, the frames with messages
	stale     map[string][]byte   // for each key, the page of history that it gets once more
	pages     map[string]int      // of each key, how many pages it got twice
	conns     map[net.Conn]bool   // the open sockets
}

// faults are what a proxy does. Any of them may be nil. They are called concurrently.
type faults struct {
	request func(*exchange) fate            // a request has come
	push    func(*socket, *frame) frameFate // the relay has sent a frame
	frame   func(*socket, *frame) frameFate // the client has sent a frame
	again   bool                            // a new socket gets first what was pushed before; a poll once more what it got
	slow    bool                            // all that goes to the client comes in small pieces
}

// A fate is what becomes of a request; of the zero fate, nothing special.
type fate struct {
	delay      time.Duration   // it waits for so long
	hold       <-chan struct{} // it waits until this is closed; then its connection ends
	status     int             // it is refused with this status in front of the relay
	retryAfter time.Duration   // what the refusal asks for
	before     bool            // its connection ends before the relay has it
	after      bool            // its connection ends once the relay has done it
	begun      bool            // with after: the first bytes of the answer are passed on
	half       bool            // its connection ends in the middle of the answer, if that has messages
}

func newProxy(f faults) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{faults: f, url: "http://" + l.Addr().String(), subjects: map[string]int{}, sockets: map[string]int{},
		pushed: map[string][][]byte{}, stale: map[string][]byte{}, pages: map[string]int{}, conns: map[net.Conn]bool{},
		// a kept connection would hide restarts
		transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}
	p.server = &http.Server{Handler: p, ErrorLog: log.New(io.Discard, "", 0)}
	p.ended.Go(func() { p.server.Serve(l) }) // its error is Close's
	return p, nil
}

// set sets the faults of the proxy, before its first request.
func (p *proxy) set(f faults) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = f
}

// close ends all connections, and waits for the goroutines of the proxy.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.lead("")
	p.server.Close()
	p.ended.Wait()
}

// enter begins a request, which ends with ended.Done. It returns false once the proxy is
// closed.
func (p *proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ended.Add(1)
	}
	return !p.closed
}

// lead says where the relay is from now on. With "" it is nowhere, and the sockets end.
func (p *proxy) lead(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relay = host
	if host == "" {
		for c := range maps.Keys(p.conns) {
			c.Close()
		}
	}
}

func (p *proxy) upstream() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.relay
}

// seen returns the requests so far, in the order in which they came.
func (p *proxy) seen() []*exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*exchange, len(p.exchanges))
	for i, e := range p.exchanges {
		copied := *e
		all[i] = &copied
	}
	return all
}

func (p *proxy) note(e *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()
	subject := e.key + e.subject()
	e.before = p.subjects[subject]
	p.subjects[subject]++
	p.exchanges = append(p.exchanges, e)
}

// answers notes that the client gets an answer.
func (p *proxy) answers(e *exchange, status int, retryAfter string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seconds, _ := strconv.Atoi(retryAfter) // none if it is not a number
	e.status, e.retryAfter, e.answered = status, time.Duration(seconds)*time.Second, time.Now()
}

// What goes to a client slowly comes in pieces of so many bytes, and so often.
const (
	pieceBytes = 16
	pieceEvery = 5 * time.Millisecond
)

// hangUp ends the connection of a request.
func hangUp() { panic(http.ErrAbortHandler) }

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !p.enter() {
		hangUp()
	}
	defer p.ended.Done()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	e := newExchange(r, body)
	p.note(e)
	var f fate
	if p.request != nil {
		f = p.request(e)
	}
	if f != (fate{}) {
		p.struck.Add(1)
	}
	if f.delay > 0 {
		pause(r, f.delay)
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-r.Context().Done():
		}
		hangUp()
	}
	if f.before {
		hangUp()
	}
	if f.status != 0 {
		p.refuse(w, e, f)
		return
	}
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		p.serveSocket(w, r, e)
		return
	}
	p.forward(w, r, e, f)
}

func pause(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// refuse answers as a relay does that is overloaded, or whose limit is reached.
func (p *proxy) refuse(w http.ResponseWriter, e *exchange, f fate) {
	code := map[int]string{http.StatusTooManyRequests: "rate_limited",
		http.StatusServiceUnavailable: "overloaded"}[f.status]
	text := fmt.Sprintf(`{"type":"about:blank","title":%q,"status":%d,"code":%[3]q,"error":%[3]q,"detail":"refused by `+
		`relay conformance","message":"refused by relay conformance"}`,
		http.StatusText(f.status), f.status, code)
	after := strconv.Itoa(int(f.retryAfter.Seconds()))
	w.Header().Set("Retry-After", after)
	w.Header().Set("Content-Type", "application/problem+json")
	p.answers(e, f.status, after)
	w.WriteHeader(f.status)
	io.WriteString(w, text)
}

// forward lets the relay answer, and passes the answer on.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request, e *exchange, f fate) {
	if page := p.staleFor(e); page != nil {
		p.struck.Add(1)
		w.Header().Set("Content-Type", "application/json")
		p.answers(e, http.StatusOK, "")
		w.Write(page)
		return
	}
	host := p.upstream()
	if host == "" {
		hangUp()
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	out := &http.Request{Method: r.Method, URL: &url.URL{Scheme: "http", Host: host, Opaque: path, RawQuery: query},
		Host: r.Host, Header: r.Header.Clone(), Body: io.NopCloser(bytes.NewReader(e.body)),
		ContentLength: int64(len(e.body))}
	if len(e.body) == 0 {
		out.Body = http.NoBody
	}
	resp, err := p.transport.RoundTrip(out.WithContext(r.Context()))
	if err != nil {
		hangUp()
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		hangUp()
	}
	if e.isSend() && resp.StatusCode == http.StatusCreated {
		p.count(e.key)
	}
	switch {
	case f.after && f.begun:
		begin(w)
		return
	case f.after:
		hangUp()
	}
	p.keepPage(e, body)
	p.pass(w, e, resp, body, f)
}

// begin passes on the first bytes of an answer, and ends the connection. No HTTP library repeats a
// request whose answer has begun, so the client itself must.
func begin(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 2") // the client may have gone
}

// count counts a message that the relay accepted.
func (p *proxy) count(key string) {
	if p.accepted != nil && key == p.asker {
		p.accepted.add()
	}
}

func (p *proxy) pass(w http.ResponseWriter, e *exchange, resp *http.Response, body []byte, f fate) {
	h := w.Header()
	for name, values := range resp.Header {
		if name != "Connection" && name != "Transfer-Encoding" {
			h[name] = slices.Clone(values)
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	half := f.half && bytes.Contains(body, []byte(`"message_id"`))
	if !half {
		p.answers(e, resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	w.WriteHeader(resp.StatusCode)
	switch {
	case half:
		w.Write(body[:len(body)/2])
		http.NewResponseController(w).Flush()
		hangUp()
	case p.slow:
		p.struck.Add(1)
		flush := http.NewResponseController(w)
		for piece := range slices.Chunk(body, pieceBytes) {
			w.Write(piece)
			flush.Flush()
			time.Sleep(pieceEvery)
		}
	default:
		w.Write(body)
	}
}

const stalePages = 3 // of each key

// keepPage keeps a page of history with messages, to give it out once more.
func (p *proxy) keepPage(e *exchange, body []byte) {
	if p.again && e.isHistory() && bytes.Contains(body, []byte(`"message_id"`)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.pages[e.key]++; p.pages[e.key] <= stalePages {
			p.stale[e.key] = body
		}
	}
}

// staleFor returns the page that this request gets once more, or nil.
func (p *proxy) staleFor(e *exchange) []byte {
	if !e.isHistory() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	page := p.stale[e.key]
	delete(p.stale, e.key)
	return page
}
