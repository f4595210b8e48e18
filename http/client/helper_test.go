package client_test

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http"
	"relay/http/apitest"
	"relay/http/client"
	"relay/ws"
)

// patience ends a test that would otherwise never end. It does not measure speed.
const patience = 2 * time.Minute

// testRelay is a running relay on a real file and a real port, wired as package cmd
// does it. It takes only requests whose method and path are signed, too.
type testRelay struct {
	t     testing.TB
	db    *db.DB
	url   string
	trust *tls.Config // of a client that trusts its certificate
	stop  func()
}

func mustServe(t testing.TB, options ...func(*http.Config)) *testRelay {
	t.Helper()
	return serve(t, nil, options...)
}

// mustServeTLS serves with a certificate that this system does not trust.
func mustServeTLS(t testing.TB) *testRelay {
	t.Helper()
	other := httptest.NewTLSServer(nil) // for its certificate
	defer other.Close()
	r := serve(t, &tls.Config{Certificates: other.TLS.Certificates, NextProtos: []string{"http/1.1"}})
	pool := x509.NewCertPool()
	pool.AddCert(other.Certificate())
	r.trust = &tls.Config{RootCAs: pool}
	return r
}

func serve(t testing.TB, certificate *tls.Config, options ...func(*http.Config)) *testRelay {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	record := apitest.NewRecorder(t)
	const skew = 5 * time.Minute
	d, err := db.Open(db.Options{Path: wire.File(t), Schema: string(schema), Create: true, Serve: true, ClockSkew: skew})
	if err != nil {
		t.Fatal(err)
	}
	hub := ws.NewHub(ws.Config{Store: d, SyncAckWait: time.Minute, NoPoller: wire.InBubble(t)})
	d.OnCommit(hub.Committed)
	d.OnKeys(hub.CheckKeys)
	config := http.Config{DB: d, Live: hub, RequireSignature: true, RequireRequestSignature: true, ClockSkew: skew, MaxBody: 2 << 20}
	for _, f := range options {
		f(&config)
	}
	listener := wire.Listen(t)
	r := &testRelay{t: t, db: d, url: "http://" + listener.Addr().String()}
	if certificate != nil {
		r.url = "https://" + listener.Addr().String()
		listener = tls.NewListener(listener, certificate)
	}
	api := http.New(config)
	server := api.Listening(http.Timeouts{Header: patience, Body: patience, Idle: 3 * patience, MaxHeaders: 16 << 10})
	server.Handler = record.Handler(api)
	go server.Serve(listener)
	r.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		api.Drain()
		hub.Close(ctx)
		server.Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// mecha is a Mecha with a key, and its client.
type mecha struct {
	*client.Client
	r    *testRelay
	key  relay.IssuedKey
	name relay.Address
}

func (r *testRelay) mustIssue(a relay.Address, options ...func(*relay.IssueKey)) *mecha {
	r.t.Helper()
	i := &relay.IssueKey{At: time.Now(), Address: a}
	for _, f := range options {
		f(i)
	}
	k, err := r.db.Issue(i)
	if err != nil {
		r.t.Fatal(err)
	}
	m := &mecha{r: r, key: k, name: a}
	m.Client = m.at(r.url)
	return m
}

func (r *testRelay) mustPair() (alice, bob *mecha) {
	r.t.Helper()
	return r.mustIssue("alice^test"), r.mustIssue("bob^test")
}

// at makes another client of the Mecha, for another URL.
func (m *mecha) at(url string) *client.Client {
	m.r.t.Helper()
	c, err := client.New(client.Config{URL: url, Key: m.key.Text, SigningSecret: m.key.Secret, TLS: m.r.trust})
	if err != nil {
		m.r.t.Fatal(err)
	}
	return c
}

type sent struct {
	MessageID string `json:"message_id"`
}

func (m *mecha) mustSend(to *mecha, payload string) sent {
	m.r.t.Helper()
	var s sent
	body := `{"to":"` + string(to.name) + `","payload":` + payload + `}`
	if err := m.Call(m.r.t.Context(), "POST", "/api/v1/messages", []byte(body), &s); err != nil {
		m.r.t.Fatal(err)
	}
	return s
}

// record is what the tests read of a message.
type record struct {
	State  string
	Signed bool
}

func (m *mecha) record(id string) (r record) {
	m.r.t.Helper()
	if err := m.Call(m.r.t.Context(), "GET", "/api/v1/messages/"+id, nil, &r); err != nil {
		m.r.t.Fatal(err)
	}
	return r
}

// received counts the messages in the Mecha's mailbox.
func (m *mecha) received() int {
	m.r.t.Helper()
	var page struct{ Messages []struct{} }
	if err := m.Call(m.r.t.Context(), "GET", "/api/v1/mecha/"+string(m.name)+"/messages?direction=in", nil, &page); err != nil {
		m.r.t.Fatal(err)
	}
	return len(page.Messages)
}

// front is the network before a relay. It can lose answers, and cut what it
// carries.
type front struct {
	url    string
	target string

	mu    sync.Mutex
	lose  int // how many answers get lost from now on
	conns []net.Conn
}

func newFront(t testing.TB, r *testRelay) *front {
	t.Helper()
	l := wire.Listen(t)
	f := &front{url: "http://" + l.Addr().String(), target: strings.TrimPrefix(r.url, "http://")}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.pass(in) })
		}
	})
	t.Cleanup(func() { l.Close(); f.cut(); wg.Wait() })
	return f
}

func (f *front) loseAnswers(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

// cut closes every connection, without a word to either side.
func (f *front) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		c.Close()
	}
	f.conns = nil
}

func (f *front) pass(in net.Conn) {
	defer in.Close()
	out, err := wire.Dial(context.Background(), "tcp", f.target)
	if err != nil {
		return
	}
	defer out.Close()
	f.mu.Lock()
	f.conns = append(f.conns, in, out)
	lose := f.lose > 0
	if lose {
		f.lose--
	}
	f.mu.Unlock()
	var up sync.WaitGroup
	defer up.Wait()
	up.Go(func() { io.Copy(out, in); out.Close() })
	if lose {
		out.Read(make([]byte, 1)) // the relay has answered
	} else {
		io.Copy(in, out)
	}
	in.Close()
}

// mustServeOther runs an HTTP server that is not a relay.
func mustServeOther(t testing.TB, f nethttp.HandlerFunc) (url string) {
	t.Helper()
	s, l := &nethttp.Server{Handler: f}, wire.Listen(t)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String()
}

// accept is the answer to a handshake's key (RFC 6455 §4.2.2).
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
