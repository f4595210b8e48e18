package conformance_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"crypto/rand"

	"github.com/gobwas/ws"

	"relay/cmd/conformance"
	"relay/db/relay"
)

// A spoil makes of a relay a server that breaks one rule. Each function may be nil.
type spoil struct {
	ask    func(*asked)               // changes a request, a handshake too
	answer func(*asked, *answered)    // changes an answer
	down   func(text string) []string // makes frames of one from the relay; nil ends the socket
	up     func(text string) bool     // false: the socket ends at this frame of the client
}

// An asked is a request on its way to the relay.
type asked struct {
	*wrongServer
	method, path string
	query        url.Values
	header       http.Header
	body         string
	refuse       int // the status with which the wrong server answers itself
}

type answered struct {
	status int
	header http.Header
	body   string
}

// wrongServer is in front of a relay, and has the keys of its Mechas.
type wrongServer struct {
	spoil
	host          string // of the relay
	first, second conformance.Credentials
}

// sign makes the request one of this Mecha, as if it had been right.
func (a *asked) sign(as conformance.Credentials) {
	nonce, timestamp := rand.Text(), time.Now().UTC().Format(time.RFC3339)
	a.header.Set("X-Mecha-Key", as.Key)
	a.header.Set("X-Nonce", nonce)
	a.header.Set("X-Request-Timestamp", timestamp)
	a.header.Set("X-Signature", base64.StdEncoding.EncodeToString(relay.Sign(as.Key, []byte(a.body), nonce, timestamp)))
	a.header.Del("X-Request-Signature")
}

// resign signs the request again, as the Mecha that has sent it.
func (a *asked) resign() {
	if a.header.Get("X-Mecha-Key") == a.second.Key {
		a.sign(a.second)
		return
	}
	a.sign(a.first)
}

func (a *asked) is(method, suffix string) bool {
	return a.method == method && strings.HasSuffix(a.path, suffix)
}

func (a *asked) isSocket() bool { return a.header.Get("Upgrade") != "" }

func mustServeWrong(t *testing.T, s spoil, host string, first, second conformance.Credentials) string {
	t.Helper()
	w := &wrongServer{s, host, first, second}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	return server.URL
}

func (s *wrongServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	path, query, _ := strings.Cut(r.RequestURI, "?")
	a := &asked{wrongServer: s, method: r.Method, path: path, header: r.Header.Clone(), body: string(body)}
	if a.query, err = url.ParseQuery(query); err != nil {
		return
	}
	if s.ask != nil {
		s.ask(a)
		if encoded := a.query.Encode(); a.query != nil && encoded != "" {
			query = encoded
		} else {
			query = ""
		}
	}
	if a.refuse != 0 {
		w.WriteHeader(a.refuse)
		return
	}
	if a.isSocket() {
		s.serveSocket(w, r, a, query)
		return
	}
	out := &http.Request{Method: a.method, URL: &url.URL{Scheme: "http", Host: s.host, Opaque: a.path, RawQuery: query}, Header: a.header,
		Body: io.NopCloser(strings.NewReader(a.body)), ContentLength: int64(len(a.body))}
	resp, err := http.DefaultTransport.RoundTrip(out.WithContext(r.Context()))
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	give := &answered{resp.StatusCode, resp.Header, string(text)}
	if s.answer != nil {
		s.answer(a, give)
	}
	for name, values := range give.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(give.body)))
	w.WriteHeader(give.status)
	io.WriteString(w, give.body)
}

func (s *wrongServer) serveSocket(w http.ResponseWriter, r *http.Request, a *asked, query string) {
	up, err := net.Dial("tcp", s.host)
	if err != nil {
		return
	}
	defer up.Close()
	var head bytes.Buffer
	fmt.Fprintf(&head, "GET %s?%s HTTP/1.1\r\nHost: %s\r\n", a.path, query, s.host)
	a.header.Write(&head)
	fmt.Fprintf(up, "%s\r\n", head.String())
	from := bufio.NewReader(up)
	resp, err := http.ReadResponse(from, r)
	if err != nil {
		return
	}
	client, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	if resp.Write(client) != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		return
	}
	go func() {
		defer up.Close()
		for {
			f, err := nextFrame(in)
			if err != nil {
				return
			}
			f = ws.UnmaskFrame(f)
			if s.up != nil && f.Header.OpCode == ws.OpText && !s.up(string(f.Payload)) {
				return
			}
			if ws.WriteFrame(up, ws.MaskFrame(f)) != nil {
				return
			}
		}
	}()
	for {
		f, err := nextFrame(from)
		if err != nil {
			return
		}
		texts := []string{string(f.Payload)}
		if s.down != nil && f.Header.OpCode == ws.OpText {
			if texts = s.down(texts[0]); texts == nil {
				return
			}
		}
		for _, text := range texts {
			if ws.WriteFrame(client, ws.NewFrame(f.Header.OpCode, true, []byte(text))) != nil {
				return
			}
		}
	}
}

func nextFrame(in io.Reader) (f ws.Frame, err error) {
	if f.Header, err = ws.ReadHeader(in); err == nil {
		f.Payload = make([]byte, f.Header.Length) // of the kit or the relay, which are ours
		_, err = io.ReadFull(in, f.Payload)
	}
	return f, err
}
