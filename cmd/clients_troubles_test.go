package cmd_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// troubled is a relay as a client has it on a bad day: between them stands a server that lets
// the first requests of a kind go wrong. Each trouble is for one of them, in their order; all
// that follows passes.
type troubled struct {
	url   string
	relay *server
	kind  func(*http.Request) bool

	mu       sync.Mutex
	troubles []trouble
	faults   []string
	met      int // requests of the kind
}

// trouble answers a request in the relay's stead. It returns what the client did wrong.
type trouble func(f *troubled, w http.ResponseWriter, r *http.Request) (fault string)

func newTroubled(t *testing.T, s *server, kind func(*http.Request) bool, troubles ...trouble) *troubled {
	t.Helper()
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	f := &troubled{relay: s, kind: kind, troubles: troubles}
	pass := httputil.NewSingleHostReverseProxy(to)
	pass.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		trouble := f.next(r)
		if trouble == nil {
			pass.ServeHTTP(w, r)
			return
		}
		if fault := trouble(f, w, r); fault != "" {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.faults = append(f.faults, fault)
		}
	}))
	t.Cleanup(front.Close)
	f.url = front.URL
	return f
}

func (f *troubled) next(r *http.Request) (next trouble) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.kind(r) {
		return nil
	}
	if f.met++; len(f.troubles) > 0 {
		next, f.troubles = f.troubles[0], f.troubles[1:]
	}
	return next
}

// want expects that all troubles were met, that the client did nothing wrong, and that there
// were more requests of the kind.
func (f *troubled) want(t *testing.T, atLeast int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.troubles) > 0 || len(f.faults) > 0 || f.met < atLeast {
		t.Errorf("%d requests of the kind, %d troubles left: %v", f.met, len(f.troubles), f.faults)
	}
}

func isSend(r *http.Request) bool {
	return r.Method == "POST" && strings.HasSuffix(r.URL.Path, "/api/v1/messages")
}
func isSocket(r *http.Request) bool { return strings.Contains(r.URL.Path, "/ws/") }

// retryLater is a refusal that asks to wait for a second. The client must wait for so long.
func retryLater(status int, code string) trouble {
	return func(f *troubled, w http.ResponseWriter, _ *http.Request) string {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"code":%q,"detail":"not now","status":%d}`, code, status)
		now := time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		if rest := f.troubles; len(rest) > 0 {
			f.troubles = append([]trouble{func(g *troubled, w http.ResponseWriter, r *http.Request) string {
				fault := rest[0](g, w, r)
				if time.Since(now) < time.Second {
					fault += fmt.Sprintf("it came back after %v in spite of Retry-After: 1", time.Since(now))
				}
				return fault
			}}, rest[1:]...)
		}
		return ""
	}
}

// lost lets the relay do what it is asked, and gives the client the first n bytes of the answer.
func lost(n int) trouble {
	return func(f *troubled, w http.ResponseWriter, r *http.Request) string {
		in, out, fault := f.connect(w, r)
		if fault != "" {
			return fault
		}
		defer in.Close()
		defer out.Close()
		answer := make([]byte, max(n, 1))
		if _, err := io.ReadFull(out, answer); err != nil { // the relay has answered
			return err.Error()
		}
		in.Write(answer[:n])
		return ""
	}
}

// says answers with some bytes, and closes the connection.
func says(text string) trouble {
	return func(_ *troubled, w http.ResponseWriter, _ *http.Request) string {
		in, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return err.Error()
		}
		defer in.Close()
		io.WriteString(in, text)
		return ""
	}
}

// connect hands a request on to the relay, and gives both connections.
func (f *troubled) connect(w http.ResponseWriter, r *http.Request) (in, out net.Conn, fault string) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		out, err = net.Dial("tcp", strings.TrimPrefix(f.relay.url, "http://"))
	}
	if err != nil {
		return nil, nil, err.Error()
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", r.Method, r.RequestURI, r.Host, len(body))
	r.Header.Del("Content-Length")
	r.Header.Write(&head)
	out.Write(append(append(head.Bytes(), "\r\n"...), body...))
	if in, _, err = w.(http.Hijacker).Hijack(); err != nil {
		out.Close()
		return nil, nil, err.Error()
	}
	return in, out, ""
}

// frames opens a socket by the relay's own handshake, sends these bytes over it, and nothing more. The
// client must end the connection on its own.
func frames(text ...byte) trouble {
	return func(f *troubled, w http.ResponseWriter, r *http.Request) string {
		in, out, fault := f.connect(w, r)
		if fault != "" {
			return fault
		}
		defer in.Close()
		defer out.Close()
		for answer := bufio.NewReader(out); ; {
			line, err := answer.ReadString('\n')
			if err != nil {
				return err.Error()
			}
			if io.WriteString(in, line); line == "\r\n" {
				break
			}
		}
		in.Write(text)
		in.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, in); err != nil && !strings.Contains(err.Error(), "reset") {
			return "it did not end the connection: " + err.Error()
		}
		return ""
	}
}

// textFrame is a text frame of the server.
func textFrame(s string) []byte { return append([]byte{0x81, byte(len(s))}, s...) }

// brokenSockets is what a server may send that is none, or one that is broken.
func brokenSockets() map[string]trouble {
	return map[string]trouble{
		"a frame that is too long":           frames(0x81, 127, 0x40, 0, 0, 0, 0, 0, 0, 0),
		"a frame of almost all there is":     frames(0x81, 127, 0x80, 0, 0, 0, 0, 0, 0, 1),
		"text that is not UTF-8":             frames(0x81, 2, 0xff, 0xfe),
		"half a character":                   frames(0x81, 1, 0xc3),
		"a frame with a mask":                frames(append([]byte{0x81, 0x82, 1, 2, 3, 4}, "{}"...)...),
		"reserved bits":                      frames(0xc1, 2, '{', '}'),
		"a reserved opcode":                  frames(0x83, 2, '{', '}'),
		"a reserved control frame":           frames(0x8b, 0),
		"a ping that is too long":            frames(0x89, 126, 0, 200),
		"a ping in fragments":                frames(0x09, 0),
		"a continuation of nothing":          frames(0x80, 2, '{', '}'),
		"a message within a message":         frames(0x01, 1, '{', 0x81, 2, '{', '}'),
		"text that is not JSON":              frames(textFrame("hello")...),
		"JSON that is no object":             frames(textFrame("[1]")...),
		"deep JSON":                          frames(append([]byte{0x81, 126, 0xff, 0xff}, bytes.Repeat([]byte("["), 65535)...)...),
		"a message without its fields":       frames(textFrame(`{"type":"message"}`)...),
		"a message with fields of no use":    frames(textFrame(`{"type":"message","message_id":[],"from":1,"to":2,"attempt":{}}`)...),
		"a close without a code":             frames(0x88, 0),
		"a close with half a code":           frames(0x88, 1, 3),
		"a close that asks to come back":     frames(0x88, 2, 0x03, 0xf5), // 1013
		"a close with a code that is no one": frames(0x88, 4, 0, 1, 0xff, 0xff),
		"a socket cut in its handshake":      lost(60),
		"a socket cut in the head of frames": lost(170),
		"a socket cut in a frame":            lost(260),
		"an answer of somebody else":         says("220 mail.example.com ESMTP\r\n"),
		"an answer without an end":           says("HTTP/1.1 503 No\r\nX: "),
		"headers that are too long":          says("HTTP/1.1 101 Yes\r\nX: " + strings.Repeat("x", 1<<17) + "\r\n\r\n"),
		"another handshake":                  says("HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"),
		"nothing at all":                     says(""),
		"a refusal for now":                  retryLater(503, "too_many_sockets"),
	}
}

// always is a trouble for more requests than a client makes.
func always(t trouble) (all []trouble) {
	for range 1000 {
		all = append(all, t)
	}
	return all
}
