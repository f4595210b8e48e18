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

	"relay/db"
	"relay/http"
	"relay/search"
	"relay/ws"
)

// instance is a running relay: the store, the hub and the HTTP server.
type instance struct {
	url    string
	addr   net.Addr
	certs  certificates // nil: plain HTTP
	db     *db.DB
	hub    *ws.Hub
	index  *search.Service
	api    *http.Server
	server *nethttp.Server
	failed chan error // the store, or the listener, has failed
}

const shutdownTimeout = 5 * time.Second

// start opens the store and serves it on s.Addr.
func (a *app) start(s *settings, log *slog.Logger) (*instance, error) {
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
	listener, err := net.Listen("tcp", s.Addr) // first: in vain, it leaves nothing behind
	if err != nil {
		return nil, err
	}
	d, err := db.Open(db.Options{
		Path: s.DB, Schema: a.schema, Create: true, Serve: true, Discard: s.Store == storeNone,
		MaxPending: s.MaxPending, MaxNonces: s.MaxNonces, MinFreeDisk: s.MinFreeDisk, ClockSkew: s.ClockSkew,
		Logger: log, Fatal: func(err error) { in.failed <- err },
	})
	if err != nil {
		listener.Close()
		return nil, err
	}
	if in.certs != nil {
		if err := in.certs.begin(d.Path()); err != nil {
			listener.Close()
			return nil, errors.Join(err, d.Close())
		}
	}
	in.db, in.addr = d, listener.Addr()
	in.index = search.Serve(d.Path()+".index", d, log)
	in.url = "http://" + in.addr.String()
	in.hub = ws.NewHub(ws.Config{
		Inbox: d, Logger: log, AllowOrigins: s.AllowOrigins, SyncAckWait: s.SyncAckWait,
		MaxSockets: s.MaxSockets, MaxSocketsPerMecha: s.MaxSocketsPerMecha,
		FrameRate: s.SocketRateLimit, FrameBurst: int(2 * s.SocketRateLimit),
	})
	d.OnCommit(in.hub.Ring)
	d.OnKeys(in.hub.CheckKeys)
	in.api = http.New(http.Config{
		DB: d, Live: in.hub, Finder: in.index, Logger: log,
		RequireSignature: s.RequireSignature, ClockSkew: s.ClockSkew, MaxBody: s.MaxBody,
		RateLimit: s.RateLimit, RateBurst: s.RateBurst,
		FailureLimit: s.AuthFailureLimit, FailureBurst: int(10 * s.AuthFailureLimit),
		MaxBodyMemory: s.MaxBodyMemory, TrustedProxies: proxies,
		Version: buildVersion(),
	})
	in.server = in.api.Listening(http.Timeouts{
		Header: s.HeaderTimeout, Body: s.BodyTimeout, Idle: s.IdleTimeout, MaxHeaders: s.MaxHeaders,
	})
	in.server.Protocols = new(nethttp.Protocols)
	in.server.Protocols.SetHTTP1(true) // alone: tlsConfig says why
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
	return in, nil
}

// stop ends it in order: no new requests, sockets told and closed, requests
// under way finished, writes finished, file closed.
func (in *instance) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	in.api.Drain()
	var sockets sync.WaitGroup
	sockets.Go(func() { in.hub.Close(ctx) }) // beside the requests: a socket that does not read must not take their time
	if in.server.Shutdown(ctx) != nil {
		in.server.Close() // whoever is not done by now holds up nobody: that is no failure
	}
	sockets.Wait()
	if in.certs != nil {
		in.certs.close(ctx)
	}
	return errors.Join(in.index.Close(), in.db.Close())
}
