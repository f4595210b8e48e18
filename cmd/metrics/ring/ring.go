// Package ring adds metrics to relay serve: at /metrics, for programs on its own machine,
// or at --metrics-addr.
package ring

import (
	"net"
	nethttp "net/http"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/cmd/metrics"
	"relay/db/relay"
	"relay/http"
)

func init() { serve.Register(newPart) }

// part is a serve.Part.
type part struct {
	addr     string
	listener net.Listener
	api      *http.Server
	metrics  *metrics.Metrics
}

func newPart() *serve.Part {
	p := &part{}
	return &serve.Part{Flags: p.flags, Check: p.check, Listen: p.listen, Unlisten: p.unlisten,
		Extend: p.extend, Start: p.start, Close: p.close}
}

func (p *part) flags(f *pflag.FlagSet) {
	f.StringVar(&p.addr, "metrics-addr", "", "`host:port` to serve metrics on, at /metrics, to everyone who can "+
		"reach it; without it, programs on this machine find them at --addr")
}

func (p *part) check(*pflag.FlagSet) error {
	if p.addr == "" {
		return nil
	}
	return cli.CheckHostPort("metrics-addr", p.addr)
}

func (p *part) listen(net.Addr, bool) (err error) {
	if p.addr != "" {
		p.listener, err = cli.Listen("metrics-addr", p.addr)
	}
	return err
}

func (p *part) unlisten() {
	if p.listener != nil {
		p.listener.Close()
	}
}

// extend adds GET /metrics (PROTOCOL §9).
func (p *part) extend(c *http.Config) {
	c.Routes = append(c.Routes, http.Route{Method: "GET", Path: "/metrics", Who: http.Anyone, Handle: http.Open(p.show),
		Doc: "measurements for Prometheus, for programs on this machine"})
}

// show answers programs on this machine. To all others there is no such path, nor to anybody
// with --metrics-addr.
func (p *part) show(w nethttp.ResponseWriter, q *nethttp.Request) {
	if p.listener != nil || !p.api.IsLocal(q) {
		p.api.Refuse(w, q, relay.Errorf(relay.NotFound, "there is no such path here; "+
			"metrics are for programs on the relay's own machine, or at --metrics-addr"))
		return
	}
	p.metrics.Handler().ServeHTTP(w, q)
}

func (p *part) start(r *serve.Running) error {
	p.api = r.API
	p.metrics = metrics.New(metrics.Sources{DB: r.DB, Hub: r.Hub, API: r.API, Index: r.Index,
		Version: http.Version(cli.BuildVersion())})
	if p.listener == nil {
		return nil
	}
	mux := nethttp.NewServeMux()
	mux.Handle("GET /metrics", p.metrics.Handler())
	r.ServeBeside(p.listener, mux)
	r.Log.Info("serving metrics", "addr", p.listener.Addr())
	return nil
}

func (p *part) close() error {
	p.metrics.Close()
	return nil
}
