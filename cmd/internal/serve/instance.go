package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	nethttp "net/http"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/relay"
	"relay/http"
	"relay/search"
	"relay/ws"
)

// An Instance is a running relay: the store, the hub and the HTTP server.
type Instance struct {
	url    string
	addr   net.Addr
	certs  Certificates // nil: plain HTTP
	db     *db.DB
	node   Node // nil: the file is its own log
	hub    *ws.Hub
	index  *search.Service
	api    *http.Server
	server *nethttp.Server
	others []*nethttp.Server // on the addresses of parts
	parts  parts             // that have started
	failed chan error        // gets the error when the store or the listener fails
	endLog func()            // nil: the log continues

	running *Running // as its parts see it
}

// URL is where the relay answers.
func (in *Instance) URL() string { return in.url }

// DB is the store of the relay.
func (in *Instance) DB() *db.DB { return in.db }

const shutdownTimeout = 5 * time.Second

// Start serves as relay serve does with these flags, but handles no signals and lets no part print
// (Part.Serving). It ignores the environment. If log is nil, it logs as relay serve does, to a.Stderr.
func Start(ctx context.Context, a *cli.App, log *slog.Logger, flags ...string) (*Instance, error) {
	s, f := newSettings(), pflag.NewFlagSet("serve", pflag.ContinueOnError)
	s.flags(f)
	if err := cmp.Or(f.Parse(flags), s.check()); err != nil {
		return nil, err
	}
	end := func() {}
	if log == nil {
		log, end = a.Logger(s.LogFormat, s.LogLevel)
	}
	in, err := (&app{a}).begin(ctx, s, log)
	if err != nil {
		end()
		return nil, err
	}
	in.endLog = end
	return in, nil
}

// start opens the store and serves it on s.Addr. When ctx ends, it stops waiting for other nodes of a cluster.
func (a *app) start(ctx context.Context, s *settings, log *slog.Logger) (*Instance, error) {
	// Bleve logs to the standard logger; we forward that as warnings.
	slog.SetLogLoggerLevel(slog.LevelWarn)
	slog.SetDefault(log)
	in := &Instance{failed: make(chan error, 2)}
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
	if err := s.parts.listen(listener.Addr(), in.certs != nil); err != nil {
		listener.Close()
		return nil, err
	}
	closeAll := func() {
		listener.Close()
		s.parts.unlisten()
	}
	o := db.Options{
		Path: s.DB, Schema: a.Schema, Create: true, Serve: true, By: a.Actor(),
		MaxPending: s.MaxPending, ConversationLimit: s.ConversationLimit, MaxAttempts: s.MaxAttempts,
		MaxBroadcast: s.MaxBroadcast, MaxNonces: s.MaxNonces, MinFreeDisk: s.MinFreeDisk, ClockSkew: s.ClockSkew,
		Retention: time.Duration(s.Retention), KeepExpired: time.Duration(s.KeepExpired),
		Logger: log, Fatal: in.fail,
	}
	s.parts.store(&o)
	d, err := in.openStore(ctx, a, s, o, log)
	if err != nil {
		closeAll()
		return nil, err
	}
	if in.certs != nil {
		if err := in.certs.Begin(d.Path()); err != nil {
			closeAll()
			return nil, errors.Join(err, d.Close(), in.leave())
		}
	}
	in.db, in.addr = d, listener.Addr()
	in.index = search.Serve(d.Path()+".index", d, s.parts.boost(d, log), log)
	in.url = "http://" + in.addr.String()
	if in.certs != nil {
		in.url = "https://" + in.addr.String()
	}
	in.hub = ws.NewHub(ws.Config{
		Store: d, Logger: log, CheckFresh: in.checkFresh(), AllowOrigins: s.AllowOrigins, SyncAckWait: s.SyncAckWait,
		MaxSockets: s.MaxSockets, MaxSocketsPerMecha: s.MaxSocketsPerMecha,
		FrameRate: s.SocketRateLimit, FrameBurst: int(2 * s.SocketRateLimit),
	})
	d.OnCommit(in.hub.Committed)
	d.OnKeys(in.hub.CheckKeys)
	api := http.Config{
		DB: d, Live: in.hub, Finder: in.index, Logger: log,
		RequireSignature: s.RequireSignature, RequireRequestSignature: s.RequireRequestSignature, ClockSkew: s.ClockSkew,
		MaxBody:   s.MaxBody,
		RateLimit: s.RateLimit, RateBurst: s.RateBurst,
		FailureLimit: s.AuthFailureLimit, FailureBurst: int(10 * s.AuthFailureLimit),
		MaxBodyMemory: s.MaxBodyMemory, TrustedProxies: proxies, AllowOrigins: s.AllowOrigins,
		Version: http.Version(cli.BuildVersion()),
	}
	s.parts.extend(&api)
	in.api = http.New(api)
	in.server = in.api.Listening(http.Timeouts{Header: s.HeaderTimeout, Body: s.BodyTimeout, Idle: s.IdleTimeout,
		MaxHeaders: s.MaxHeaders})
	if err := in.startParts(s, a.Actor(), log); err != nil {
		listener.Close()
		return nil, errors.Join(err, in.Stop())
	}
	in.serve(listener, s)
	return in, nil
}

// startParts starts the rings' parts. by is the user of this machine who runs the relay.
func (in *Instance) startParts(s *settings, by relay.Actor, log *slog.Logger) (err error) {
	in.running = &Running{
		URL: in.url, DB: in.db, Hub: in.hub, API: in.api, Index: in.index, By: by, Flags: s.all, Log: log,
		Shown:       s.parts.shown,
		ServeBeside: func(l net.Listener, h nethttp.Handler) { in.serveBeside(l, h, log) },
	}
	if in.certs != nil {
		in.running.TLS = in.certs.Config()
	}
	in.parts, err = s.parts.start(in.running)
	return err
}

// openStore opens the store. Before, it opens the node of a cluster that the store follows.
func (in *Instance) openStore(
	ctx context.Context, a *app, s *settings, o db.Options, log *slog.Logger,
) (*db.DB, error) {
	var err error
	in.node, err = s.parts.join(ctx, Joining{DB: s.DB, Schema: a.Schema, Log: log, Fatal: in.fail})
	if err != nil {
		return nil, err
	}
	if in.node != nil {
		in.node.Configure(&o)
	}
	d, err := db.Open(o)
	if err != nil {
		return nil, errors.Join(system.Denied(s.DB, true, err), in.leave())
	}
	if in.node != nil {
		in.node.Attach(d)
	}
	return d, nil
}

// fail records why the process must end. Only the first two reasons are kept.
func (in *Instance) fail(err error) {
	select {
	case in.failed <- err:
	default:
	}
}

// leave stops the node of a cluster, after its store.
func (in *Instance) leave() error {
	if in.node == nil {
		return nil
	}
	return in.node.Close()
}

// checkFresh returns the function that the hub asks before it serves a socket; nil if the answer is always yes.
func (in *Instance) checkFresh() func() error {
	if !in.db.MayBeStale() {
		return nil
	}
	return in.db.CheckFresh
}

// serve answers requests on the listener until Stop.
func (in *Instance) serve(listener net.Listener, s *settings) {
	in.server.Protocols = new(nethttp.Protocols)
	in.server.Protocols.SetHTTP1(true) // not HTTP/2: TLSConfig says why
	listener = in.api.Guard(listener, s.connections())
	if in.certs != nil {
		listener = tls.NewListener(listener, in.certs.Config())
	}
	go func() {
		if err := in.server.Serve(listener); !errors.Is(err, nethttp.ErrServerClosed) {
			in.failed <- err
		}
	}()
}

// Stop ends the relay in order: it takes no new requests, says goodbye to the sockets and closes them, finishes
// the current requests and the writes, and closes the file.
func (in *Instance) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	in.api.Drain()
	var sockets sync.WaitGroup
	// at the same time: a socket that does not read must not take the requests' time
	sockets.Go(func() { in.hub.Close(ctx) })
	if in.server.Shutdown(ctx) != nil {
		in.server.Close() // a request that is still running no longer delays the stop; that is not a failure
	}
	sockets.Wait()
	if in.certs != nil {
		in.certs.Close(ctx)
	}
	for _, other := range in.others {
		other.Close()
	}
	err := errors.Join(in.parts.close(), in.index.Close(), in.db.Close(), in.leave())
	if in.endLog != nil {
		in.endLog()
	}
	return err
}
