package ws_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch/wire"
	relayhttp "relay/http"
	"relay/http/apitest"
	"relay/ws"
)

// patience is how long a test waits for what must happen. It does not measure speed: it only ends a test that would otherwise never end.
const patience = 2 * time.Minute

var ctx = context.Background()

// noPoller is how the relays of the tests read their sockets.
var noPoller = runtime.GOOS != "linux"

// testRelay is a running relay on a real file and a real port, and what the tests say of it.
type testRelay struct {
	*db.DB
	t    testing.TB
	hub  *ws.Hub
	path string // of the file
	addr string
	stop func()
	past *atomic.Int64 // how far its clock has been advanced
	mine string        // the label of its goroutines
	tls  *tls.Config   // of its clients; nil: without TLS

	record *apitest.Recorder // holds every answer against the documents; nil in benchmarks
	echoes bool              // it has the frames of its clients
}

// mustServe starts a relay, wired as the serve command does it.
func mustServe(t testing.TB, options ...func(*ws.Config)) *testRelay {
	t.Helper()
	return serve(t, nil, options...)
}

// mustServeTLS is mustServe for a relay with a certificate (serve --tls-cert).
func mustServeTLS(t testing.TB, options ...func(*ws.Config)) *testRelay {
	t.Helper()
	other := httptest.NewTLSServer(nil) // for its certificate
	other.Close()
	r := serve(t, &tls.Config{Certificates: other.TLS.Certificates, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}, options...)
	pool := x509.NewCertPool()
	pool.AddCert(other.Certificate())
	r.tls = &tls.Config{RootCAs: pool, ServerName: "example.com"} // the name in that certificate
	return r
}

// withAndWithoutTLS runs a test on a relay of either kind.
func withAndWithoutTLS(t *testing.T, test func(t *testing.T, r *testRelay)) {
	t.Run("TCP", func(t *testing.T) { test(t, mustServe(t)) })
	t.Run("TLS", func(t *testing.T) { test(t, mustServeTLS(t)) })
}

func serve(t testing.TB, certificate *tls.Config, options ...func(*ws.Config)) *testRelay {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	r := &testRelay{t: t, past: new(atomic.Int64)}
	if _, bench := t.(*testing.B); !bench {
		r.record = apitest.NewRecorder(t)
	}
	mine := label(t)
	r.path = wire.File(t)
	d, err := db.Open(db.Options{Path: r.path, Schema: string(schema), Create: true, Serve: true, ClockSkew: 5 * time.Minute, Now: r.now})
	if err != nil {
		t.Fatal(err)
	}
	// No pings come between, and no connection is given up because this machine is busy.
	config := ws.Config{Store: d, SyncAckWait: time.Minute, PingEvery: time.Hour, DeadAfter: time.Hour, NoPoller: noPoller || wire.InBubble(t)}
	for _, f := range options {
		f(&config)
	}
	config.Now = r.now
	hub := ws.NewHub(config)
	d.OnCommit(hub.Committed)
	d.OnKeys(hub.CheckKeys)
	listener := wire.Listen(t)
	api := relayhttp.New(relayhttp.Config{DB: d, Live: hub, ClockSkew: 5 * time.Minute, MaxBody: 1 << 20})
	server := api.Listening(relayhttp.Timeouts{Header: patience, Body: 30 * time.Second, Idle: time.Minute, MaxHeaders: 16 << 10})
	if r.record != nil {
		server.Handler = r.record.Handler(api)
	}
	addr := listener.Addr().String()
	if certificate != nil {
		listener = tls.NewListener(api.Guard(listener, 10_000), certificate)
	}
	go server.Serve(listener)
	stop := sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		api.Drain()
		hub.Close(ctx)
		if n := goroutinesLeft(mine); n > 0 {
			t.Errorf("%d goroutines of the hub are left after Close", n)
		}
		server.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	r.DB, r.hub, r.addr, r.stop, r.mine = d, hub, addr, stop, mine
	if wire.InBubble(t) {
		time.Sleep(time.Second) // a relay that runs for no time at all is in bubbles alone
	}
	return r
}

func (r *testRelay) mustIssue(a relay.Address) relay.IssuedKey {
	r.t.Helper()
	k, err := r.Issue(&relay.IssueKey{At: r.now(), Address: a})
	if err != nil {
		r.t.Fatal(err)
	}
	return k
}

// mustPair registers a sender and a recipient.
func (r *testRelay) mustPair() (alice, bob relay.IssuedKey) {
	r.t.Helper()
	return r.mustIssue("alice^test"), r.mustIssue("bob^test")
}

func (r *testRelay) mustSend(from relay.IssuedKey, to relay.Address, payload string, more ...func(*relay.SendMessage)) relay.MessageID {
	r.t.Helper()
	m := &relay.SendMessage{At: r.now(), Key: from.Number, To: to, Payload: []byte(payload), Nonce: 1}
	for _, f := range more {
		f(m)
	}
	if err := m.Validate(); err != nil {
		r.t.Fatal(err)
	}
	sent, err := r.Send(m)
	if err != nil {
		r.t.Fatal(err)
	}
	return sent.ID
}

// mustSendMany sends n messages from many goroutines at once.
func (r *testRelay) mustSendMany(from relay.IssuedKey, to relay.Address, n int) {
	r.t.Helper()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(n, 64) {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && !r.t.Failed(); i = next.Add(1) {
				m := &relay.SendMessage{At: r.now(), Key: from.Number, To: to, Payload: fmt.Appendf(nil, `{"n":%d}`, i), Nonce: 1}
				if err := m.Validate(); err != nil {
					r.t.Error(err)
				} else if _, err := r.Send(m); err != nil {
					r.t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if r.t.Failed() {
		r.t.FailNow()
	}
}

// mustAck acknowledges as the HTTP endpoint does.
func (r *testRelay) mustAck(k relay.IssuedKey, id relay.MessageID, status string) {
	r.t.Helper()
	if err := r.ack(k, id, status); err != nil {
		r.t.Fatal(err)
	}
}

func (r *testRelay) ack(k relay.IssuedKey, id relay.MessageID, status string) error {
	a := &relay.Acknowledge{At: r.now(), Key: k.Number, ID: id, Status: status, ClientTS: clientTS}
	if err := a.Validate(); err != nil {
		return err
	}
	_, err := r.Acknowledge(a)
	return err
}

const clientTS = "2026-01-01T00:00:00Z"

// received lists what came in for a Mecha, in history order.
func (r *testRelay) received(k relay.IssuedKey) (ids []relay.MessageID) {
	r.t.Helper()
	q := relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 1000, Direction: relay.In}
	for {
		p, err := r.History(ctx, q)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, m := range p.Messages {
			ids = append(ids, m.ID)
		}
		if !p.More {
			return ids
		}
		q.After = p.Next
	}
}

var nonces atomic.Int64

// headers returns the headers of an authenticated request.
func headers(k relay.IssuedKey) http.Header {
	return http.Header{
		"X-Mecha-Key":         {k.Text},
		"X-Request-Timestamp": {relay.FormatTime(time.Now())},
		"X-Nonce":             {fmt.Sprintf("nonce-%d", nonces.Add(1))},
	}
}

func socketPath(a relay.Address, query string) string {
	return "/api/v1/ws/mecha/" + url.PathEscape(string(a)) + "?" + query
}

func (r *testRelay) dial(k relay.IssuedKey, query string) (*client, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var conn net.Conn
	transport := &http.Transport{TLSClientConfig: r.tls, DialContext: func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		conn, err = wire.Dial(ctx, network, addr)
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	scheme := "ws"
	if r.tls != nil {
		scheme = "wss"
	}
	c, resp, err := websocket.Dial(ctx, scheme+"://"+r.addr+socketPath(k.Mecha.Address, query),
		&websocket.DialOptions{HTTPHeader: headers(k), HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		return nil, resp, err
	}
	c.SetReadLimit(-1)
	r.t.Cleanup(func() { c.CloseNow() })
	return &client{Conn: c, below: conn, t: r.t, r: r}, resp, nil
}

func (r *testRelay) mustDial(k relay.IssuedKey, query string) *client {
	r.t.Helper()
	c, _, err := r.dial(k, query)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// expectRefused dials and wants the refusal, an ordinary problem document.
func (r *testRelay) expectRefused(k relay.IssuedKey, query string, status int, code relay.Code) {
	r.t.Helper()
	c, resp, err := r.dial(k, query)
	if err == nil {
		c.CloseNow()
		r.t.Fatalf("?%s was let in, want %d %s", query, status, code)
	}
	expectProblem(r.t, resp, status, code)
}

func expectProblem(t testing.TB, resp *http.Response, status int, code relay.Code) {
	t.Helper()
	if resp == nil {
		t.Fatalf("no response, want %d %s", status, code)
	}
	body, _ := io.ReadAll(resp.Body)
	var p struct {
		Code   relay.Code
		Status int
	}
	if err := json.Unmarshal(body, &p); err != nil || resp.StatusCode != status || p.Status != status || p.Code != code ||
		resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("got %d %v %s, want %d %s", resp.StatusCode, resp.Header, body, status, code)
	}
}

// frame is any frame of the relay.
type frame struct {
	Type           string
	From, To       relay.Address
	MessageID      relay.MessageID      `json:"message_id"`
	ConversationID relay.ConversationID `json:"conversation_id"`
	MessageType    string               `json:"message_type"`
	Payload        string               `json:"payload_base64"`
	CreatedAt      string               `json:"created_at"`
	State, Status  string
	Detail, At     string
	Code           relay.Code
	Message        json.RawMessage // a text, but in a frame that sends
	Phase          string
	Sent           int
	Ref            string
	Replayed       bool
}

// sentence returns the sentence of an error.
func (f frame) sentence() (text string) {
	_ = json.Unmarshal(f.Message, &text)
	return text
}

// next reads a frame, whatever it is.
func (c *client) next() (frame, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	kind, text, err := c.Read(ctx)
	var f frame
	if err == nil && kind != websocket.MessageText {
		err = errors.New("not a text frame")
	}
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	return f, err
}

func (c *client) expect(kind string) frame {
	c.t.Helper()
	f, err := c.next()
	if err != nil || f.Type != kind {
		c.t.Fatalf("got %+v, %v, want a frame of type %s", f, err, kind)
	}
	return f
}

func (c *client) expectMessage(ids ...relay.MessageID) {
	c.t.Helper()
	for i, id := range ids {
		if f := c.expect("message"); f.MessageID != id {
			c.t.Fatalf("message %d of %d is %s %s, want %s", i+1, len(ids), f.MessageID, f.payload(c.t), id)
		}
	}
}

func (c *client) expectError(code relay.Code, id relay.MessageID) {
	c.t.Helper()
	if f := c.expect("error"); f.Code != code || f.MessageID != id || f.sentence() == "" {
		c.t.Fatalf("got error %+v, want %s of %q", f, code, id)
	}
}

// expectClose reads the close frame, and nothing before it.
func (c *client) expectClose(code websocket.StatusCode) (reason string) {
	c.t.Helper()
	f, err := c.next()
	var end websocket.CloseError
	if !errors.As(err, &end) || end.Code != code {
		c.t.Fatalf("got %+v, %v, want close %d", f, err, code)
	}
	return end.Reason
}

// expectNothing sees that no frame was on its way: a frame that the relay
// refuses is answered next.
func (c *client) expectNothing() {
	c.t.Helper()
	c.send(`{"type":"nothing"}`)
	c.expectError(relay.InvalidFrame, "")
}

func (c *client) send(text string) {
	c.t.Helper()
	var f frame
	switch _ = json.Unmarshal([]byte(text), &f); f.Type {
	case "ack":
		c.acks.Store(f.MessageID, text)
	case "send":
		c.sends.Store(f.Ref, text)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) ack(id relay.MessageID, status string) {
	c.t.Helper()
	c.send(fmt.Sprintf(`{"type":"ack","message_id":%q,"status":%q,"client_ts":%q}`, id, status, clientTS))
}

func (f frame) payload(t testing.TB) string {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(f.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func expectSame[T cmp.Ordered](t testing.TB, got, want []T) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("%d of %d is %v, want %v (place %d there)", i, len(got), got[i], want[i], slices.Index(want, got[i]))
		}
	}
	t.Fatalf("got %d, want %d", len(got), len(want))
}
