package http_test

import (
	"context"
	"errors"
	nethttp "net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http"
	"relay/http/apitest"
	"relay/ws"
)

// testRelay is a running server on a real file and a real listener, wired as
// package cmd does. Its clock stands still until a test moves it.
type testRelay struct {
	t        testing.TB
	settings settings
	clock    *clock
	url      string
	db       *db.DB
	hub      *ws.Hub
	index    *index
	api      *http.Server
	server   *nethttp.Server
	client   *nethttp.Client
	watching chan struct{}     // one for every long-poll that has begun to wait
	record   *apitest.Recorder // holds every exchange against the documents; nil in benchmarks
	stop     func()
}

type settings struct {
	db       db.Options
	hub      ws.Config
	api      http.Config
	timeouts http.Timeouts
	found    func() // called between what the index finds and what the directory then says of it
}

// addRoutes adds those of a ring to a relay.
var addRoutes = func(*http.Config) {}

// added are the rows of the route table that a ring would add: one for programs on this machine,
// as for metrics, and those of addRoutes.
func (r *testRelay) added() []http.Route {
	metrics := func(w nethttp.ResponseWriter, q *nethttp.Request) { // what they are is not the API's business
		if !r.api.IsLocal(q) {
			r.api.Refuse(w, q, relay.Errorf(relay.NotFound, "not here"))
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		w.Write([]byte("# metrics\n"))
	}
	c := http.Config{Routes: []http.Route{{Method: "GET", Path: "/metrics", Who: http.Anyone, Handle: http.Open(metrics),
		Doc: "measurements for Prometheus, for programs on this machine"}}}
	addRoutes(&c)
	return c.Routes
}

type clock struct{ ns atomic.Int64 }

func (c *clock) Now() time.Time           { return time.Unix(0, c.ns.Load()).UTC() }
func (c *clock) advance(by time.Duration) { c.ns.Add(int64(by)) }

func mustServe(t testing.TB, options ...func(*settings)) *testRelay {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	r := &testRelay{t: t, clock: &clock{}}
	if _, bench := t.(*testing.B); !bench {
		r.record = apitest.NewRecorder(t)
	}
	r.clock.ns.Store(time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC).UnixNano())
	r.settings = settings{
		db: db.Options{
			Path: wire.File(t), Schema: string(schema), Create: true, Serve: true,
			ClockSkew: 5 * time.Minute, Now: r.clock.Now,
		},
		hub:      ws.Config{Now: r.clock.Now, NoPoller: wire.InBubble(t), MessageTimeout: patience, DeadAfter: patience}, // a busy machine must not decide
		api:      http.Config{ClockSkew: 5 * time.Minute, MaxBody: 1 << 20, Now: r.clock.Now},
		timeouts: http.Timeouts{Header: patience, Body: patience, Idle: 3 * patience, MaxHeaders: 16 << 10},
	}
	for _, f := range options {
		f(&r.settings)
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// live is the hub; it also tells the test when a long-poll waits.
type live struct {
	*ws.Hub
	watching chan struct{}
}

func (l live) Watch(key *relay.Key) (<-chan struct{}, <-chan error, func(), error) {
	wake, ended, stop, err := l.Hub.Watch(key)
	if err == nil {
		l.watching <- struct{}{}
	}
	return wake, ended, stop, err
}

func (l live) WatchReply(key *relay.Key, question *relay.Message) (<-chan *relay.Message, <-chan error, func(), error) {
	reply, ended, stop, err := l.Hub.WatchReply(key, question)
	if err == nil {
		l.watching <- struct{}{}
	}
	return reply, ended, stop, err
}

func (r *testRelay) start() {
	r.t.Helper()
	s := r.settings
	d, err := db.Open(s.db)
	if err != nil {
		r.t.Fatal(err)
	}
	s.hub.Store = d
	r.db, r.hub, r.watching = d, ws.NewHub(s.hub), make(chan struct{}, 64)
	d.OnCommit(r.hub.Committed)
	d.OnKeys(r.hub.CheckKeys)
	index := &index{path: s.db.Path + ".index", db: d, found: s.found}
	d.OnEntries(index.Wake)
	s.api.DB, s.api.Live, s.api.Finder, r.index = d, live{r.hub, r.watching}, index, index
	s.api.Routes = r.added()
	r.api = http.New(s.api)
	r.server = r.api.Listening(s.timeouts)
	if r.record != nil {
		r.server.Handler = r.record.Handler(r.api)
	}
	listener := wire.Listen(r.t)
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(listener) }()
	r.url = "http://" + listener.Addr().String()
	transport := &nethttp.Transport{MaxIdleConnsPerHost: 64, DialContext: wire.Dial}
	r.client = &nethttp.Client{Transport: transport, Timeout: patience}
	r.stop = sync.OnceFunc(func() {
		r.api.Drain()
		r.hub.Close(context.Background())
		transport.CloseIdleConnections()
		r.server.Close()
		<-served
		if err := errors.Join(index.close(), d.Close()); err != nil {
			r.t.Error(err)
		}
	})
}

// mustRestart stops the server and starts another on the same file.
func (r *testRelay) mustRestart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// mustCrash continues from the files as they stand, as after kill -9: nothing was closed or flushed.
func (r *testRelay) mustCrash() {
	r.t.Helper()
	left := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", "-nonces"} {
		b, err := os.ReadFile(r.settings.db.Path + suffix)
		if err != nil {
			r.t.Fatal(err)
		}
		left[suffix] = b
	}
	r.stop()
	for suffix, b := range left { // into the same files, where there still are some
		if err := os.WriteFile(r.settings.db.Path+suffix, b, 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.start()
}

// countMessages counts what is in the file, as another process sees it.
func (r *testRelay) countMessages() (n int) {
	r.t.Helper()
	d := r.db
	if !wire.InBubble(r.t) { // there the server takes no commands
		o := r.settings.db
		o.Create, o.Serve = false, false
		var err error
		if d, err = db.Open(o); err != nil {
			r.t.Fatal(err)
		}
		defer d.Close()
	}
	keys, err := d.Keys(context.Background(), "")
	if err != nil {
		r.t.Fatal(err)
	}
	counted := map[relay.MechaNumber]bool{}
	for _, k := range keys {
		if counted[k.Mecha.Number] {
			continue
		}
		counted[k.Mecha.Number] = true
		p, err := d.History(context.Background(), relay.HistoryQuery{Mecha: k.Mecha.Number, Direction: relay.Out, Limit: 100_000})
		if err != nil || p.More {
			r.t.Fatal(p.More, err)
		}
		n += len(p.Messages)
	}
	return n
}

func (r *testRelay) wantMessages(n int) {
	r.t.Helper()
	if got := r.countMessages(); got != n {
		r.t.Fatalf("the file has %d messages, want %d", got, n)
	}
}

// mustFill sends n messages past HTTP, many at a time.
func (r *testRelay) mustFill(from, to mecha, n int) {
	r.t.Helper()
	var wg sync.WaitGroup
	const senders = 250
	for s := range senders {
		wg.Go(func() {
			for range n/senders + max(0, min(1, n%senders-s)) {
				m := &relay.SendMessage{At: r.clock.Now(), Key: from.Number, To: to.Mecha.Address, Payload: []byte(`{}`), Nonce: 1}
				if err := m.Validate(); err != nil {
					r.t.Error(err)
				}
				if _, err := r.db.Send(m); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// keepReadersBusy reads on all of the store's connections until stop is called:
// who wants to read has to wait.
func (r *testRelay) keepReadersBusy(m mecha) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					r.db.History(context.Background(), relay.HistoryQuery{Mecha: m.Mecha.Number, Limit: 1, Priority: "message"})
				}
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}
