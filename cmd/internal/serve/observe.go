package serve

import (
	"errors"
	"log/slog"
	"net"
	nethttp "net/http"
	"net/http/pprof"
	"time"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/http"
)

// profiles is a Part. Profiles reveal how the program works and cost time, so only this machine may read them.
type profiles struct {
	addr     string
	listener net.Listener
}

func newProfiles() *Part {
	p := &profiles{}
	return &Part{Flags: p.flags, Check: p.check, Listen: p.listen, Unlisten: p.unlisten, Start: p.start}
}

func (p *profiles) flags(f *pflag.FlagSet) {
	f.StringVar(&p.addr, "pprof", "", "loopback `host:port` that serves profiles of the program, at /debug/pprof/")
}

func (p *profiles) check(*pflag.FlagSet) error {
	if p.addr == "" {
		return nil
	}
	if err := cli.CheckHostPort("pprof", p.addr); err != nil {
		return err
	}
	if host, _, _ := net.SplitHostPort(p.addr); !net.ParseIP(host).IsLoopback() {
		return cli.Usagef("--pprof must be a loopback address, such as 127.0.0.1:6060; %s is not", p.addr)
	}
	return nil
}

func (p *profiles) listen(net.Addr, bool) (err error) {
	if p.addr != "" {
		p.listener, err = cli.Listen("pprof", p.addr)
	}
	return err
}

func (p *profiles) unlisten() {
	if p.listener != nil {
		p.listener.Close()
	}
}

func (p *profiles) start(r *Running) error {
	if p.listener != nil {
		r.ServeBeside(p.listener, showProfiles())
		r.Log.Info("serving profiles", "addr", p.listener.Addr())
	}
	return nil
}

// Beside has the limits for a request on an address other than the relay's own.
var Beside = http.Timeouts{
	Header: 5 * time.Second, Body: 5 * time.Second,
	Idle:       2 * time.Minute, // Prometheus asks more often
	MaxHeaders: 16 << 10,
}

const (
	// AnswerTimeout is for an answer there: taking a profile may last that long.
	AnswerTimeout = 2 * time.Minute
	// otherConnections is how many may be open on each; a new one displaces the oldest.
	otherConnections = 64
)

func (in *Instance) serveBeside(l net.Listener, h nethttp.Handler, log *slog.Logger) {
	server := in.api.Listening(Beside)
	server.Handler, server.WriteTimeout = h, AnswerTimeout
	in.others = append(in.others, server)
	go func() {
		if err := server.Serve(in.api.Guard(l, otherConnections)); !errors.Is(err, nethttp.ErrServerClosed) {
			log.Error("an additional address is no longer served", "addr", l.Addr(), "error", err)
		}
	}()
}

// showProfiles serves the profiles of net/http/pprof to programs on this machine.
func showProfiles() nethttp.Handler {
	mux := nethttp.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if !http.FromThisMachine(r) {
			nethttp.NotFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}
