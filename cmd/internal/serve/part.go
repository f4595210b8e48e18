package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	nethttp "net/http"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/db"
	"relay/db/relay"
	"relay/http"
	"relay/search"
	"relay/ws"
)

// A Part is what a ring adds to relay serve. Its functions are called in the order of the
// fields; each may be nil.
type Part struct {
	// Flags adds flags to relay serve. Two parts with one flag panic.
	Flags func(*pflag.FlagSet)
	// Check refuses invalid flags and invalid combinations. It gets all flags.
	Check func(*pflag.FlagSet) error
	// Certificates returns a source of certificates for the relay, or nil. Without --tls-cert, the relay uses
	// the source of the first part that has one.
	Certificates func(*slog.Logger) Certificates
	// Join returns the node of a cluster whose log the store follows, or nil. It is called before the store is
	// opened. When ctx ends, it stops waiting for other nodes.
	Join func(context.Context, Joining) (Node, error)
	// Listen takes further addresses before the store is opened, when the relay has taken its own. After an
	// error it holds none.
	Listen func(own net.Addr, encrypted bool) error
	// Unlisten releases them if the relay does not start.
	Unlisten func()
	// Store changes the options of the store.
	Store func(*db.Options)
	// Boost returns what adds to the scores of searches, or nil. The relay uses the boost of the first part
	// that has one.
	Boost func(*db.DB, *slog.Logger) search.Boost
	// Extend adds gateways and routes to the API. Its additions may later read the configuration, which then
	// has the additions of all parts.
	Extend func(*http.Config)
	// Start is called before the relay answers its first request.
	Start func(*Running) error
	// Serving is called by relay serve once the relay answers. After an error the relay stops.
	Serving func(*cobra.Command, *Running) error
	// Close is called if Start has succeeded: the relay answers no more, and the store is
	// still open.
	Close func() error
	// Shown returns a URL for a person who tries the relay out, with a name for programs and a description for
	// people; "" without a URL.
	Shown func() (name, words, url string)
}

// Running is a relay that is about to answer, as its parts see it. By its fields a part reaches the rest.
type Running struct {
	URL   string
	DB    *db.DB
	Hub   *ws.Hub
	API   *http.Server
	Index *search.Service
	By    relay.Actor    // who runs the relay
	Flags *pflag.FlagSet // of relay serve
	TLS   *tls.Config    // nil: the relay speaks plain HTTP
	Log   *slog.Logger
	// ServeBeside answers on a further listener until the relay stops.
	ServeBeside func(net.Listener, nethttp.Handler)
	// Shown calls f with each URL that a part shows.
	Shown func(f func(name, words, url string))
}

var makers []func() *Part

// Register adds a part to relay serve. made is called for each run of the program.
func Register(made func() *Part) { makers = append(makers, made) }

// Routes returns the rows that parts add to the route table of the API, for its descriptions.
func Routes() []http.Route {
	var c http.Config
	newParts().extend(&c)
	return c.Routes
}

// parts are the parts of one run: the core's, then the rings' in the order in which they were registered.
type parts []*Part

func newParts() parts {
	all := parts{newProfiles()}
	for _, made := range makers {
		all = append(all, made())
	}
	return all
}

func (all parts) flags(f *pflag.FlagSet) {
	for _, p := range all {
		if p.Flags != nil {
			p.Flags(f)
		}
	}
}

func (all parts) check(f *pflag.FlagSet) error {
	for _, p := range all {
		if p.Check == nil {
			continue
		}
		if err := p.Check(f); err != nil {
			return err
		}
	}
	return nil
}

func (all parts) certificates(log *slog.Logger) Certificates {
	for _, p := range all {
		if p.Certificates == nil {
			continue
		}
		if c := p.Certificates(log); c != nil {
			return c
		}
	}
	return nil
}

// listen has all parts listen, or none.
func (all parts) listen(own net.Addr, encrypted bool) error {
	for i, p := range all {
		if p.Listen == nil {
			continue
		}
		if err := p.Listen(own, encrypted); err != nil {
			all[:i].unlisten()
			return err
		}
	}
	return nil
}

func (all parts) unlisten() {
	for _, p := range all {
		if p.Unlisten != nil {
			p.Unlisten()
		}
	}
}

func (all parts) store(o *db.Options) {
	for _, p := range all {
		if p.Store != nil {
			p.Store(o)
		}
	}
}

func (all parts) boost(d *db.DB, log *slog.Logger) search.Boost {
	for _, p := range all {
		if p.Boost == nil {
			continue
		}
		if b := p.Boost(d, log); b != nil {
			return b
		}
	}
	return nil
}

func (all parts) extend(c *http.Config) {
	for _, p := range all {
		if p.Extend != nil {
			p.Extend(c)
		}
	}
}

// start starts the parts and returns the ones that have started. After an error the others hold no address.
func (all parts) start(r *Running) (started parts, err error) {
	for i, p := range all {
		if p.Start == nil {
			continue
		}
		if err := p.Start(r); err != nil {
			all[i:].unlisten()
			return all[:i], err
		}
	}
	return all, nil
}

func (all parts) serving(cmd *cobra.Command, r *Running) error {
	for _, p := range all {
		if p.Serving == nil {
			continue
		}
		if err := p.Serving(cmd, r); err != nil {
			return err
		}
	}
	return nil
}

func (all parts) close() error {
	var failed []error
	for _, p := range all {
		if p.Close != nil {
			failed = append(failed, p.Close())
		}
	}
	return errors.Join(failed...)
}

func (all parts) shown(f func(name, words, url string)) {
	for _, p := range all {
		if p.Shown != nil {
			f(p.Shown())
		}
	}
}
