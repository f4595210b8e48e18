package cmd

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	nethttp "net/http"
	"sync"
	"time"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/system"
	"relay/cmd/metrics"
	"relay/db"
	"relay/http"
	"relay/search"
	"relay/ws"
)

// instance is a running relay: the store, the hub and the HTTP server.
type instance struct {
	url     string
	addr    net.Addr
	certs   certificates // nil: plain HTTP
	db      *db.DB
	cluster clusterNode // nil: the file is its own log
	hub     *ws.Hub
	index   *search.Service
	api     *http.Server
	server  *nethttp.Server
	others  []*nethttp.Server // of metrics and profiles
	meters  *metrics.Metrics
	console *consoleOf // nil: none
	failed  chan error // gets the error when the store or the listener fails
}

const shutdownTimeout = 5 * time.Second

// start opens the store and serves it on s.Addr. The end of ctx ends its waiting for other
// nodes of a cluster.
func (a *app) start(ctx context.Context, s *settings, log *slog.Logger) (*instance, error) {
	// Bleve logs to the standard logger; we forward that as warnings.
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(log)
	in := &instance{failed: make(chan error, 2)}
	proxies, err := s.proxies()
	if err != nil {
		return nil, err
	}
	if in.certs, err = s.certificates(log); err != nil {
		return nil, err
	}
	listener, err := cli.Listen("addr", s.Addr) // before the store: if this fails, it leaves no file behind
	if err != nil {
		return nil, err
	}
	var others otherListeners
	if err = s.checkMCP(listener.Addr()); err == nil {
		others, err = s.listenElsewhere()
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	closeAll := func() { closeListeners(append(others.all(), listener)) }
	o := db.Options{
		Path: s.DB, Schema: a.Schema, Create: true, Serve: true, By: a.Actor(),
		MaxPending: s.MaxPending, ConversationLimit: s.ConversationLimit, MaxAttempts: s.MaxAttempts, MaxBroadcast: s.MaxBroadcast, MaxNonces: s.MaxNonces, MinFreeDisk: s.MinFreeDisk, ClockSkew: s.ClockSkew,
		Retention: time.Duration(s.Retention), KeepExpired: time.Duration(s.KeepExpired), LearnHalfLife: s.halfLife(),
		Logger: log, Fatal: in.fail,
	}
	d, err := in.openStore(ctx, a, s, o, log)
	if err != nil {
		closeAll()
		return nil, err
	}
	if in.certs != nil {
		if err := in.certs.begin(d.Path()); err != nil {
			closeAll()
			return nil, errors.Join(err, d.Close(), in.leave())
		}
	}
	in.db, in.addr = d, listener.Addr()
	in.index = search.Serve(d.Path()+".index", d, s.halfLife(), log)
	in.url = "http://" + in.addr.String()
	in.hub = ws.NewHub(ws.Config{
		Store: d, Logger: log, CheckFresh: in.checkFresh(), AllowOrigins: s.AllowOrigins, SyncAckWait: s.SyncAckWait,
		MaxSockets: s.MaxSockets, MaxSocketsPerMecha: s.MaxSocketsPerMecha,
		FrameRate: s.SocketRateLimit, FrameBurst: int(2 * s.SocketRateLimit),
	})
	d.OnCommit(in.hub.Committed)
	d.OnKeys(in.hub.CheckKeys)
	in.api = http.New(http.Config{
		DB: d, Live: in.hub, Finder: in.index, Logger: log,
		RequireSignature: s.RequireSignature, RequireRequestSignature: s.RequireRequestSignature, ClockSkew: s.ClockSkew, MaxBody: s.MaxBody,
		RateLimit: s.RateLimit, RateBurst: s.RateBurst,
		FailureLimit: s.AuthFailureLimit, FailureBurst: int(10 * s.AuthFailureLimit),
		MaxBodyMemory: s.MaxBodyMemory, TrustedProxies: proxies, AllowOrigins: s.AllowOrigins,
		Version: http.Version(cli.BuildVersion()), MCP: s.mcp(),
	})
	in.measure(others, log)
	in.serve(listener, s)
	if others.console != nil {
		if err := in.showConsole(others.console, s, a.Actor(), log); err != nil {
			others.console.Close()
			return nil, errors.Join(err, in.stop())
		}
	}
	return in, nil
}

// openStore opens the store and, before it, the node of a cluster that it follows.
func (in *instance) openStore(ctx context.Context, a *app, s *settings, o db.Options, log *slog.Logger) (*db.DB, error) {
	if s.Cluster != "" {
		var err error
		if in.cluster, err = a.joinCluster(ctx, s, log, in.fail); err != nil {
			return nil, err
		}
		in.cluster.configure(&o)
	}
	d, err := db.Open(o)
	if err != nil {
		return nil, errors.Join(system.Denied(s.DB, true, err), in.leave())
	}
	if in.cluster != nil {
		in.cluster.attach(d)
	}
	return d, nil
}

// fail notes why the process must end. Only the first two reasons are kept.
func (in *instance) fail(err error) {
	select {
	case in.failed <- err:
	default:
	}
}

// leave stops the node of a cluster, after its store.
func (in *instance) leave() error {
	if in.cluster == nil {
		return nil
	}
	return in.cluster.close()
}

// checkFresh is what the hub asks before it serves a socket; nil if the answer is always yes.
func (in *instance) checkFresh() func() error {
	if !in.db.MayBeStale() {
		return nil
	}
	return in.db.CheckFresh
}

// serve answers requests on the listener until stop.
func (in *instance) serve(listener net.Listener, s *settings) {
	in.server = in.api.Listening(http.Timeouts{
		Header: s.HeaderTimeout, Body: s.BodyTimeout, Idle: s.IdleTimeout, MaxHeaders: s.MaxHeaders,
	})
	in.server.Protocols = new(nethttp.Protocols)
	in.server.Protocols.SetHTTP1(true) // not HTTP/2: tlsConfig says why
	listener = in.api.Guard(listener, s.connections())
	if in.certs != nil {
		in.url = "https://" + in.addr.String()
		listener = tls.NewListener(listener, in.certs.config())
	}
	go func() {
		if err := in.server.Serve(listener); !errors.Is(err, nethttp.ErrServerClosed) {
			in.failed <- err
		}
	}()
}

// stop ends the relay in order: it takes no new requests, tells and closes the
// sockets, finishes the requests under way and the writes, and closes the file.
func (in *instance) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	in.api.Drain()
	var sockets sync.WaitGroup
	sockets.Go(func() { in.hub.Close(ctx) }) // at the same time: a socket that does not read must not take the requests' time
	if in.server.Shutdown(ctx) != nil {
		in.server.Close() // a request that is not done by now holds up the stop no longer; that is not a failure
	}
	sockets.Wait()
	if in.certs != nil {
		in.certs.close(ctx)
	}
	for _, other := range in.others {
		other.Close()
	}
	in.meters.Close()
	return errors.Join(in.console.close(), in.index.Close(), in.db.Close(), in.leave())
}
