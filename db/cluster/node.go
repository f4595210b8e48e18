//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"relay/db/file"
	"sync"
	"sync/atomic"
	"time"
)

// Config says which node of which cluster a process is. File, Node and Dir are required.
type Config struct {
	File *File
	Node string // the member of File that this process is
	// Dir is the folder of the node's part of the log. It is made if it is missing. A node with an
	// empty folder is new, so a node that has lost its folder needs a new name (File.Add).
	Dir string
	// Listen is where the cluster port listens; "" means at the member's address.
	Listen  string
	Version string       // of the program, for Status
	Logger  *slog.Logger // nil: no log
	// Snapshot makes a copy of the store's file at a path, for a new node; nil if this node
	// makes none. It is called only after Attach, once at a time.
	Snapshot func(ctx context.Context, to string) error
	// Fatal is called once, from any goroutine, if the process must end: the node is not
	// admitted, or its store differs from the majority's. If nil, this is only logged.
	Fatal func(error)

	skew         time.Duration // in tests: how far this node's clock is ahead
	admitTimeout time.Duration // in tests; 0 means the usual timeout
}

// A Store is what follows the log: a *db.DB.
type Store interface {
	Place() file.Place
}

// Node is one node of a cluster. It is the log of its store (replication.Log). All methods are
// safe for concurrent use, and after Close.
type Node struct {
	c    Config
	file atomic.Pointer[File]
	log  *slog.Logger
	id   *identity
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	all  sync.WaitGroup

	nats     *natsServer   // set before admitted is closed
	admitted chan struct{} // closed when the node is admitted
	decided  chan struct{} // closed when it is decided whether the node is admitted
	refusal  error         // set before decided is closed: why it is not admitted, or nil
	waits    atomic.Bool   // it is logged that the node waits for a majority

	closing, failing sync.Once

	store    Store         // set before attached is closed
	attached chan struct{} // closed by Attach
	sure     chan struct{} // closed when unfit is known
	unfit    error         // why the store must not use the stream, or nil
	doubt    time.Duration // how long the log must seem to have lost entries before that counts

	known atomic.Uint64 // the number of the last entry that the log is known to have
	grown chan struct{} // has a token when known has grown

	began      time.Time    // durations below count from here
	until      atomic.Int64 // the lease: this node is Fresh until then
	keeps      atomic.Bool
	heartbeats *heartbeats
	giving     snapshots
}

// doubtFor is the usual value of Node.doubt: longer than an election takes.
const doubtFor = 15 * time.Second

// Start starts a node: its heartbeats and, once the others have admitted it, its part of the
// log. At a node's first start, Start waits until then, or until ctx ends; later it does not
// wait, and Config.Fatal is called if the node is not admitted. Errors: the file does not fit
// the node, the port is taken, the folder cannot be used, or it was another node's.
func Start(ctx context.Context, c Config) (*Node, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	addr := c.File.Address(c.Node)
	if addr == "" {
		return nil, fmt.Errorf("the cluster file has no member %s", c.Node)
	}
	if c.Listen == "" {
		c.Listen = addr
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	n := &Node{c: c, log: c.Logger, admitted: make(chan struct{}), decided: make(chan struct{}),
		attached: make(chan struct{}), sure: make(chan struct{}), doubt: doubtFor, grown: make(chan struct{}, 1),
		began: time.Now()}
	n.file.Store(c.File)
	n.heartbeats = newHeartbeats(c.File.Members, c.Node)
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := n.start(ctx); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	var s *natsServer
	var err error
	if n.id, err = readIdentity(n.c.Dir, n.c.Node, n.file.Load().ID); err == nil {
		s, err = n.startServer(false)
	}
	if err != nil {
		n.refusal = err
		close(n.decided)
		return err
	}
	if n.id.isNew() {
		n.log.Info("this node is new: it asks the others whether they have known another one of its name", "node", n.c.Node)
		n.enter(ctx, s)
		return n.refusal
	}
	n.all.Go(func() {
		n.enter(n.ctx, s)
		if n.refusal != nil && n.ctx.Err() == nil {
			n.fail(n.refusal)
		}
	})
	return nil
}

// Attach sets the node's store, once, after the store was opened with the node as its log.
// Until then Append and Follow wait.
func (n *Node) Attach(s Store) {
	n.store = s
	close(n.attached)
	n.all.Go(n.makeSure)
}

// Close stops the node, without waiting for the other nodes. Close the store first. Close may
// be called again.
func (n *Node) Close() error {
	n.closing.Do(func() {
		if n.isAdmitted() {
			n.handOver()
		}
		n.stop()
		<-n.decided
		if n.isAdmitted() {
			n.nats.close()
		}
		n.all.Wait()
		n.giving.close()
	})
	return nil
}

// isAdmitted reports whether the node is admitted. Until then it does not vote.
func (n *Node) isAdmitted() bool { return isClosed(n.admitted) }

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// fail says that the process must end. Only the first reason is reported.
func (n *Node) fail(why error) {
	n.failing.Do(func() {
		if n.c.Fatal == nil {
			n.log.Error("this node must stop", "error", why)
			return
		}
		n.all.Go(func() { n.c.Fatal(why) })
	})
}

// isAttached reports whether the node has a store.
func (n *Node) isAttached() bool { return isClosed(n.attached) }

// isSure reports whether the store of the node follows the log of the cluster.
func (n *Node) isSure() bool { return isClosed(n.sure) && n.unfit == nil }

// isPeer reports whether name is the name of another member.
func (n *Node) isPeer(name string) bool {
	return name != n.c.Node && n.file.Load().index(name) >= 0
}

// elapsed returns the time since Start. It does not jump with the clock.
func (n *Node) elapsed() time.Duration { return time.Since(n.began) }
