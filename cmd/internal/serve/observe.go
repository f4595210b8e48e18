package serve

import (
	"errors"
	"log/slog"
	"net"
	nethttp "net/http"
	"net/http/pprof"
	"time"

	"relay/cmd/internal/cli"
	"relay/cmd/metrics"
	"relay/http"
)

// checkOthers checks the log, and the addresses beside --addr. Profiles show how the
// program works and cost time, so they are for this machine alone.
func (s *settings) checkOthers() error {
	if err := cli.CheckLog(s.LogFormat, s.LogLevel); err != nil {
		return err
	}
	if s.MetricsAddr != "" {
		if err := cli.CheckHostPort("metrics-addr", s.MetricsAddr); err != nil {
			return err
		}
	}
	if s.Pprof == "" {
		return nil
	}
	if err := cli.CheckHostPort("pprof", s.Pprof); err != nil {
		return err
	}
	if host, _, _ := net.SplitHostPort(s.Pprof); !net.ParseIP(host).IsLoopback() {
		return cli.Usagef("--pprof takes a loopback address only, such as 127.0.0.1:6060; %s is none", s.Pprof)
	}
	return nil
}

// otherListeners are those beside --addr; each may be nil.
type otherListeners struct{ metrics, pprof, console net.Listener }

func (o otherListeners) all() []net.Listener { return []net.Listener{o.metrics, o.pprof, o.console} }

func closeListeners(all []net.Listener) {
	for _, l := range all {
		if l != nil {
			l.Close()
		}
	}
}

// listenElsewhere takes the addresses beside --addr. After an error it has taken none.
func (s *settings) listenElsewhere() (o otherListeners, err error) {
	if s.MetricsAddr != "" {
		if o.metrics, err = cli.Listen("metrics-addr", s.MetricsAddr); err != nil {
			return o, err
		}
	}
	if s.Pprof != "" {
		if o.pprof, err = cli.Listen("pprof", s.Pprof); err != nil {
			closeListeners(o.all())
			return otherListeners{}, err
		}
	}
	if o.console, err = s.listenConsole(); err != nil {
		closeListeners(o.all())
		return otherListeners{}, err
	}
	return o, nil
}

// measure begins to show metrics and, if there is a listener for them, profiles.
func (in *Instance) measure(o otherListeners, log *slog.Logger) {
	in.meters = metrics.New(metrics.Sources{DB: in.db, Hub: in.hub, API: in.api, Index: in.index, Version: http.Version(cli.BuildVersion())})
	if o.metrics == nil {
		in.api.ServeMetrics(in.meters.Handler())
	} else {
		mux := nethttp.NewServeMux()
		mux.Handle("GET /metrics", in.meters.Handler())
		in.serveBeside(o.metrics, mux, log)
		log.Info("serving metrics", "addr", o.metrics.Addr())
	}
	if o.pprof != nil {
		in.serveBeside(o.pprof, profiles(), log)
		log.Info("serving profiles", "addr", o.pprof.Addr())
	}
}

const (
	otherConnections = 64              // on each of the other listeners; the oldest makes room for a new one
	otherTimeout     = 5 * time.Second // for a request to arrive
	otherIdle        = 2 * time.Minute // Prometheus asks more often
	answerTimeout    = 2 * time.Minute // a profile may be taken for so long
	otherHeaders     = 16 << 10        // bytes
)

func (in *Instance) serveBeside(l net.Listener, h nethttp.Handler, log *slog.Logger) {
	server := in.api.Listening(http.Timeouts{Header: otherTimeout, Body: otherTimeout, Idle: otherIdle, MaxHeaders: otherHeaders})
	server.Handler, server.WriteTimeout = h, answerTimeout
	in.others = append(in.others, server)
	go func() {
		if err := server.Serve(in.api.Guard(l, otherConnections)); !errors.Is(err, nethttp.ErrServerClosed) {
			log.Error("an address beside --addr is no longer served", "addr", l.Addr(), "error", err)
		}
	}()
}

// profiles shows those of net/http/pprof to programs on this machine.
func profiles() nethttp.Handler {
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
