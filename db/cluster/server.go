//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	maxPayload   = 8 << 20 // more than the largest envelope with its headers
	startTimeout = 10 * time.Second
	// With these, a connection without an answer is given up after at most 6 s.
	routePing      = 2 * time.Second
	routePingsLost = 2
)

// natsServer is the embedded server, with a connection of our own for the log and one for the
// administration of NATS.
type natsServer struct {
	*server.Server
	log   *natsLog
	conn  *nats.Conn
	admin *nats.Conn
}

// startServer starts NATS. withLog is false for a server that only talks to the others, and
// does not vote.
func (n *Node) startServer(withLog bool) (*natsServer, error) {
	password := make([]byte, 32)
	rand.Read(password) // never fails (crypto/rand)
	secret := hex.EncodeToString(password)
	o, err := n.serverOptions(withLog)
	if err != nil {
		return nil, err
	}
	s := &natsServer{log: newNATSLog(n.log)}
	o.CustomClientAuthentication = &localAuth{secret, s}
	if s.Server, err = server.NewServer(o); err != nil {
		return nil, err
	}
	s.SetLoggerV2(s.log, false, false, false)
	s.Start()
	if err = s.ready(n); err == nil {
		s.conn, err = s.connect(logUser, secret)
	}
	if err == nil {
		s.admin, err = s.connect(adminUser, secret)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// The users of a server. Only this process knows their password.
const (
	logUser   = "relay"
	adminUser = "admin"
)

// localAuth admits clients by the secret of this process. The users of NATS would not do: with
// them, NATS also accepts clients without a name.
type localAuth struct {
	secret string
	server *natsServer
}

func (d *localAuth) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if subtle.ConstantTimeCompare([]byte(o.Password), []byte(d.secret)) != 1 {
		return false
	}
	switch o.Username {
	case logUser:
		c.RegisterUser(&server.User{Username: logUser, Account: d.server.GlobalAccount()})
	case adminUser:
		c.RegisterUser(&server.User{Username: adminUser, Account: d.server.SystemAccount()})
	default:
		return false
	}
	return true
}

func (n *Node) serverOptions(withLog bool) (*server.Options, error) {
	host, port, err := net.SplitHostPort(n.c.Listen)
	if err != nil {
		return nil, fmt.Errorf("%q is not an address to listen at: %w", n.c.Listen, err)
	}
	number, err := strconv.Atoi(port)
	if err != nil || number < 1 || number > 65535 {
		return nil, fmt.Errorf("%q is not an address to listen at", n.c.Listen)
	}
	tls, err := n.file.Load().tlsConfig(n.c.Node, n.isPeer)
	if err != nil {
		return nil, err
	}
	o := &server.Options{
		ServerName: n.c.Node, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, MaxPayload: maxPayload,
		JetStream: withLog, StoreDir: n.c.Dir, SyncAlways: true, DisableJetStreamBanner: true,
		JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 2*n.file.Load().LogBytes + 1<<30,
		ConnectErrorReports: reportRoute, ReconnectErrorReports: reportRoute,
	}
	o.Cluster = server.ClusterOpts{
		Name: n.file.Load().ID, Host: host, Port: number, Advertise: n.file.Load().Address(n.c.Node), NoAdvertise: true,
		TLSConfig: tls, TLSTimeout: 5, PingInterval: routePing, MaxPingsOut: routePingsLost, ConnectBackoff: true,
		Compression: server.CompressionOpts{Mode: server.CompressionOff},
	}
	for _, m := range n.file.Load().Members {
		if m.Name != n.c.Node {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: m.Addr})
		}
	}
	return o, nil
}

// reportRoute is after how many failed attempts in a row, after the first one, NATS logs
// again that it cannot reach another node.
const reportRoute = 3600

// ready waits until the server listens at both ports, or has said why it cannot.
func (s *natsServer) ready(n *Node) error {
	for until := time.Now().Add(startTimeout); !s.ReadyForConnections(50 * time.Millisecond); {
		if err := s.log.fatal.Load(); err != nil {
			return *err
		}
		if time.Now().After(until) {
			return fmt.Errorf("the cluster port %s was not open after %v", n.c.Listen, startTimeout)
		}
	}
	if err := s.log.fatal.Load(); err != nil {
		return *err
	}
	return nil
}

func (s *natsServer) connect(user, secret string) (*nats.Conn, error) {
	// a slow subscription loses messages, and reads them from the log
	return nats.Connect("", nats.InProcessServer(s.Server), nats.UserInfo(user, secret), nats.Timeout(startTimeout),
		nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
}

// handOverWait is how long a node that closes waits for another one to lead the log.
const handOverWait = time.Second

// handOver has another node lead the log, if this one does, so that the others need not notice that
// it is gone and elect a leader.
func (n *Node) handOver() {
	s := n.nats
	if !n.Fresh() || !s.JetStreamIsStreamLeader(server.DEFAULT_GLOBAL_ACCOUNT, streamName) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverWait)
	defer cancel()
	if err := s.JetStreamStepdownStream(server.DEFAULT_GLOBAL_ACCOUNT, streamName); err != nil {
		return
	}
	for pause(ctx, soon) {
		if info, err := n.streamInfo(ctx); err == nil && info.Cluster != nil && info.Cluster.Leader != "" &&
			info.Cluster.Leader != n.c.Node {
			return
		}
	}
}

// close ends the connections and the server, and waits for its goroutines.
func (s *natsServer) close() {
	for _, c := range []*nats.Conn{s.conn, s.admin} {
		if c != nil {
			c.Close()
		}
	}
	s.Shutdown()
	s.WaitForShutdown()
}
