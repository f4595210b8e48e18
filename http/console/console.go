// Package console shows a relay to its operator: what waits and why, the flow of events, the life of each
// message, the health of the store. It reads through Store, inside a server or without one. The pages are made
// on the server (pages/, html/template) and then kept up to date by static/console.js, which fetches them again
// when a socket says that something has happened. Nothing is fetched from elsewhere, and no page has an inline
// script or style. With an Operator, the person at the console can also act (act.go).
//
// This file has the route table. A view is a function, a file in pages/ and parts with data-live,
// which are fetched again; flow.go follows the file for all of them. To see all views, run
// go test ./http/console -run TestEverybody -shots DIR.
package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"relay/db/relay"
)

// Config says what a console shows, and to whom. Store and Logger are required.
type Config struct {
	Store Store
	Live  Live // what only the server knows; nil: the console is a process of its own
	// Upgrade makes a WebSocket of a request (ws.Feed); nil: pages ask every 5 seconds.
	Upgrade func(w http.ResponseWriter, r *http.Request,
		run func(ctx context.Context, send func(text []byte) error) error) error
	// Search asks the index of the directory; nil: only a server has it, and the profiles of the
	// file are listed instead.
	Search   func(context.Context, relay.SearchRequest) (*relay.SearchResult, error)
	Operator Operator // who acts; nil: the console only shows
	Logger   *slog.Logger
	// Password replaces the token of this start; "": the token is asked for.
	Password string
	// TLS says that the console speaks HTTPS. Then it may be reached by any name: a page of
	// another site that leads its own name here (DNS rebinding) has no certificate for it.
	TLS     bool
	Version string
	// Name is the name under localhost by which the console is reached: 16 letters and digits that
	// nobody can guess. "": a random one. It is not used with TLS.
	Name string
	Now  func() time.Time // nil: time.Now
}

// Console is the handler of all pages. Make it with New; Close ends its background work. It is safe for
// concurrent use.
type Console struct {
	config    Config
	token     string
	host      string            // a name of this machine that browsers know; "": none
	secret    [sha256.Size]byte // of the token or the password
	known     [32]byte          // the key of the seals of browsers that were let in
	sessions  sessions
	failures  failures
	handler   http.Handler
	flow      *flow
	overviews overviews
	ctx       context.Context // ends at Close
	stop      context.CancelFunc
	closing   sync.Mutex // between the end of ctx and the last work that begins
	work      sync.WaitGroup
}

// route is a row of the route table. A view has its page in pages/, and shows what show
// returns; the other rows have a handler.
type route struct {
	pattern string
	page    string // the name of the file in pages/, without .html
	show    func(*Console, *http.Request) (any, error)
	handle  func(*Console, http.ResponseWriter, *http.Request)
	open    bool // also without a session
	acts    bool // only with an Operator
}

// routes is the route table. All but the open rows want a session.
var routes = []route{
	{pattern: "GET /{$}", page: "now", show: (*Console).showNow},
	{pattern: "GET /message/{id}", page: "message", show: (*Console).showMessage},
	{pattern: "GET /message/{id}/payload", handle: (*Console).payload},
	{pattern: "GET /message/{id}/curl", handle: (*Console).curl},
	{pattern: "GET /mecha", page: "mechas", show: (*Console).showMechas},
	{pattern: "GET /mecha/{address}", page: "mecha", show: (*Console).showMecha},
	// with ?id=, for the labels that no path can have
	{pattern: "GET /conversation", page: "conversation", show: (*Console).showConversation},
	{pattern: "GET /conversation/{id}", page: "conversation", show: (*Console).showConversation},
	{pattern: "GET /directory", page: "directory", show: (*Console).showDirectory},
	{pattern: "GET /keys", page: "keys", show: (*Console).showKeys},
	{pattern: "GET /health", page: "health", show: (*Console).showHealth},

	{pattern: "GET /send", page: "send", show: (*Console).showSend, acts: true},
	{pattern: "POST /send", handle: (*Console).send, acts: true},
	{pattern: "GET /message/{id}/again", page: "act", show: (*Console).showAgain, acts: true},
	{pattern: "POST /message/{id}/again", handle: (*Console).again, acts: true},
	{pattern: "GET /message/{id}/expire", page: "act", show: (*Console).showExpire, acts: true},
	{pattern: "POST /message/{id}/expire", handle: (*Console).expire, acts: true},
	{pattern: "GET /key/{id}/revoke", page: "act", show: (*Console).showRevoke, acts: true},
	{pattern: "POST /key/{id}/revoke", handle: (*Console).revoke, acts: true},

	{pattern: "GET /live", handle: (*Console).live},
	{pattern: "GET /events", handle: (*Console).poll},
	{pattern: "GET /session", handle: (*Console).session},
	{pattern: "POST /session", handle: (*Console).enter, open: true},
	{pattern: "POST /leave", handle: (*Console).leave},
	{pattern: "GET /static/{file}", handle: (*Console).static, open: true},
}

// tabs are the links at the top of each page.
var tabs = []struct{ Path, Name string }{
	{"/", "Now"},
	{"/mecha", "Mechas"},
	{"/directory", "Directory"},
	{"/keys", "Keys"},
	{"/health", "Health"},
}

// New makes a console, with a random token of its own.
func New(config Config) *Console {
	if config.Now == nil {
		config.Now = time.Now
	}
	c := &Console{config: config, token: random()}
	if !config.TLS {
		c.host = cmp.Or(config.Name, randomName()) + ".localhost"
	}
	c.secret = sha256.Sum256([]byte(cmp.Or(config.Password, c.token)))
	_, _ = rand.Read(c.known[:]) // never fails
	c.ctx, c.stop = context.WithCancel(context.Background())
	c.flow = newFlow(c)
	c.handler = c.guarded(c.mux())
	c.work.Go(c.flow.run)
	return c
}

// Close ends the sockets, and waits for the background work. The Store must still be open.
func (c *Console) Close() {
	c.closing.Lock()
	c.stop()
	c.closing.Unlock()
	c.work.Wait()
}

// begin counts work for which Close waits, until c.work.Done. It is false after Close.
func (c *Console) begin() bool {
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.ctx.Err() != nil {
		return false
	}
	c.work.Add(1)
	return true
}

// Fragment is the part of a console's URL that lets a browser in, after the path: "#t=" and
// the token of this start; "" if a password is asked for. Only the operator may see it.
func (c *Console) Fragment() string {
	if c.config.Password != "" {
		return ""
	}
	return "#t=" + c.token
}

// Host is the name by which a browser should open the console: one under localhost, which
// browsers lead to this machine (RFC 6761 §6.3). They send the session's cookie to programs on other
// ports, too, but only to those that are opened by the same name, which nobody else can guess. ""
// with TLS. Only the operator may see it.
func (c *Console) Host() string { return c.host }

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

// mux makes the handler of the route table.
func (c *Console) mux() http.Handler {
	mux := http.NewServeMux()
	for _, row := range routes {
		h := func(w http.ResponseWriter, r *http.Request) { row.handle(c, w, r) }
		if row.page != "" {
			h = func(w http.ResponseWriter, r *http.Request) { c.view(w, r, row) }
		}
		if row.acts {
			h = c.withOperator(h)
		}
		if !row.open {
			h = c.withSession(h)
		}
		mux.HandleFunc(row.pattern, h)
	}
	mux.HandleFunc("GET /", c.withSession(func(w http.ResponseWriter, r *http.Request) { c.refuse(w, r, errNoPage) }))
	return mux
}
