package apitest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A Recorder holds the exchanges of one server against the documents. When its test
// ends, it reports what is not as described. It is safe for concurrent use.
type Recorder struct {
	mu     sync.Mutex
	faults []string
}

// NewRecorder makes the recorder of a test. The server must be stopped by a function
// that is given to t.Cleanup later.
func NewRecorder(t testing.TB) *Recorder {
	r := &Recorder{}
	described() // now, and not while a test looks at its memory
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, f := range r.faults {
			t.Error(f)
		}
	})
	return r
}

const maxFaults = 10 // that one recorder reports

func (r *Recorder) fail(what string, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range faults {
		if text := what + ": the documents say otherwise: " + f; len(r.faults) < maxFaults &&
			!slices.Contains(r.faults, text) {
			r.faults = append(r.faults, text)
		}
	}
}

// Handler returns a handler that looks at what h does.
func (r *Recorder) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		request, to := q.Header.Clone(), *q.URL // before a handshake changes them
		var body bytes.Buffer
		if q.Body != nil && q.Body != http.NoBody && q.ContentLength != 0 {
			q = q.WithContext(q.Context()) // net/http must still see its own body, by which it ends a connection gently
			q.Body = &tee{q.Body, &body}
		}
		answer := &writer{ResponseWriter: w}
		h.ServeHTTP(answer, q)
		if answer.hijacked {
			answer.status = http.StatusSwitchingProtocols
		} else {
			answer.WriteHeader(http.StatusOK) // unless it was called
		}
		r.exchange(&Exchange{Method: q.Method, URL: &to, Request: request, Sent: body.Bytes(),
			Status: answer.status, Header: answer.sent, Body: answer.body.Bytes()})
	})
}

// An Exchange is a request and its answer. Header is nil if it is not known.
type Exchange struct {
	Method  string
	URL     *url.URL
	Request http.Header
	Sent    []byte
	Status  int
	Header  http.Header
	Body    []byte
}

// exchange checks an exchange and counts it.
func (r *Recorder) exchange(e *Exchange) {
	r.fail(fmt.Sprintf("%s %s: %d %.300s", e.Method, e.URL.RequestURI(), e.Status, e.Body), Check(e))
}

// Check returns the parts of an exchange that the document does not describe, and counts the exchange.
func Check(e *Exchange) []string {
	a := described()
	if a == nil {
		return nil
	}
	o, path, known := a.find(e.Method, e.URL)
	var name string
	var d response
	switch {
	case o != nil:
		var ok bool
		if name = o.name; e.Method == http.MethodHead {
			name = "HEAD" + strings.TrimPrefix(name, http.MethodGet)
		}
		if d, ok = o.responses[e.Status]; !ok {
			return []string{fmt.Sprintf("the status %d is not described", e.Status)}
		}
	case known && isPreflight(e) && e.Status == http.StatusOK:
		name, d = "a preflight", a.others["Preflight"]
	case known && isPreflight(e) && e.Status == http.StatusForbidden:
		name, d = "a preflight", a.others["PreflightRefused"]
	case known || e.URL.Path == "*":
		name, d = "another method", a.others["MethodNotAllowed"]
	default:
		name, d = "no path of the API", a.others["NotFound"]
	}
	counted.exchange(name, e.Status, CodeOf(e.Body))
	var faults []string
	if o == nil && e.Status != http.StatusNotFound && e.Status != http.StatusMethodNotAllowed && name != "a preflight" {
		faults = append(faults, fmt.Sprintf("the status %d, where there is no operation", e.Status))
	}
	if e.Header != nil {
		faults = append(faults, d.check(e.Header, e.Body)...)
	}
	if o != nil && e.Status < 400 {
		query, _ := url.ParseQuery(e.URL.RawQuery) // what is malformed is refused where it matters
		faults = append(faults, o.checkRequest(e.Request, query, path, e.Sent)...)
	}
	return faults
}

// isPreflight reports whether a browser asks what a page may do (CORS).
func isPreflight(e *Exchange) bool {
	return e.Method == http.MethodOptions && e.Request.Get("Origin") != "" &&
		e.Request.Get("Access-Control-Request-Method") != ""
}

// CodeOf returns the code of a problem document; "" if a body is none.
func CodeOf(body []byte) string {
	if !bytes.HasPrefix(body, []byte(`{"type":"/docs#`)) {
		return ""
	}
	var p struct{ Code string }
	_ = json.Unmarshal(body, &p) // the schema tells if it is malformed
	return p.Code
}

// tee notes what is read of a request's body.
type tee struct {
	io.ReadCloser
	read *bytes.Buffer
}

func (t *tee) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	t.read.Write(b[:n])
	return n, err
}

// writer notes an answer.
type writer struct {
	http.ResponseWriter
	status   int
	sent     http.Header
	body     bytes.Buffer
	hijacked bool
}

func (w *writer) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.Header().Clone()
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *writer) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.body.Write(b)
	return w.ResponseWriter.Write(b)
}

// Hijack implements http.Hijacker: the answer of a handshake is not seen here.
func (w *writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.hijacked = true
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }
