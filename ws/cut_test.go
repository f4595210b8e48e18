package ws_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/ws"
)

// A link carries bytes between clients and the relay until it is cut: then it
// carries nothing more and closes nothing, like a cable that was pulled.
type link struct {
	net.Listener
	cut  chan struct{}
	once sync.Once
	wg   sync.WaitGroup

	mu    sync.Mutex
	ended bool
	conns []net.Conn
}

func (r *testRelay) mustLink() *link {
	r.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	l := &link{Listener: listener, cut: make(chan struct{})}
	l.wg.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", r.addr)
			if err != nil {
				near.Close()
				continue
			}
			l.keep(near, far)
			l.wg.Go(func() { l.carry(near, far) })
			l.wg.Go(func() { l.carry(far, near) })
		}
	})
	r.t.Cleanup(func() {
		listener.Close()
		l.Cut()
		l.end()
		l.wg.Wait()
	})
	return l
}

// keep notes connections, which end with the link.
func (l *link) keep(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, conns...)
	if l.ended {
		closeAll(conns)
	}
}

// end closes all connections.
func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	closeAll(l.conns)
}

func closeAll(conns []net.Conn) {
	for _, c := range conns {
		c.Close()
	}
}

// Cut cuts the link, for all that have come over it.
func (l *link) Cut() { l.once.Do(func() { close(l.cut) }) }

func (l *link) carry(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-l.cut: // the sockets stay open: nobody at either end is told
			from.SetReadDeadline(time.Now().Add(patience))
			_, _ = io.Copy(io.Discard, from) // the network takes what it is given, and loses it
			from.Close()
			return
		default:
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			from.Close()
			to.Close()
			return
		}
	}
}

// over is the relay as it is reached over the link.
func (r *testRelay) over(l *link) *testRelay {
	far := r.in(r.t)
	far.addr = l.Addr().String()
	return far
}

// in gives the relay to a subtest.
func (r *testRelay) in(t testing.TB) *testRelay {
	c := *r
	c.t = t
	return &c
}

func TestTheDefaultsFindADeadPeerWithinAMinute(t *testing.T) {
	t.Parallel()
	c := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = 0, 0 }).hub.Config()
	if c.PingEvery != 25*time.Second || c.DeadAfter != time.Minute {
		t.Errorf("a ping every %v, dead after %v", c.PingEvery, c.DeadAfter)
	}
}

// A connection whose link is cut gets no end from the network: silence alone
// tells. Others, which answer the pings, live on, and nothing is lost.
func TestACutLinkIsFound(t *testing.T) {
	t.Parallel()
	const dead = 2 * time.Second
	r := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = 200*time.Millisecond, dead })
	alice := r.mustIssue("alice^test")
	for name, before := range map[string]func(c *raw){
		"idle":            func(*raw) {},
		"within-a-frame":  func(c *raw) { c.mustWrite(masked(fin|opText, ackOf("x"))[:9]) },
		"within-a-header": func(c *raw) { c.mustWrite("\x81") },
		"between-frames":  func(c *raw) { c.mustWrite(masked(opText, "{")) },
		"within-a-big-frame": func(c *raw) {
			c.mustWrite(string(frameHeader(fin|opText, 0x80, 60000)) + "\x00\x00\x00\x00" + strings.Repeat(" ", 30000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := r.in(t)
			bob := r.mustIssue(relay.Address(name + "^test"))
			l := r.mustLink()
			c := r.over(l).mustUpgrade(bob, "sync_limit=0")
			c.expectFrame(opPing)
			began := time.Now()
			c.mustWrite(masked(fin|opPong, "") + masked(fin|opPing, "heard?"))
			for heard := false; !heard; { // by the relay
				op, _, err := c.frame()
				if err != nil || op != opPing && op != opPong {
					t.Fatalf("got frame %x, %v, want a ping or the pong", op, err)
				}
				heard = op == opPong
			}
			before(c)
			if !r.hub.Online(bob.Mecha.Number) {
				t.Fatal("it is gone before the link is cut")
			}
			l.Cut()
			eventually(t, "the relay gives it up", func() bool { return !r.hub.Online(bob.Mecha.Number) })
			if d := time.Since(began); d < dead {
				t.Errorf("after %v: it was not given the time to answer", d)
			}
			id := r.mustSend(alice, bob.Mecha.Address, `{}`)
			r.mustDial(bob, "").expectMessage(id)
		})
	}
}

// The peer of a cut link is given up though messages are on their way to it,
// and they come again over another link.
func TestALinkThatIsCutInTheMiddleOfTheStream(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) {
		c.PingEvery, c.DeadAfter, c.WriteTimeout, c.MaxSocketsPerMecha = 200*time.Millisecond, 2*time.Second, 2*time.Second, 1
	})
	alice, bob := r.mustPair()
	l := r.mustLink()
	far := r.over(l).mustDial(bob, "sync_limit=0")
	far.expectNothing()
	const n, seen = 200, 50
	var sending sync.WaitGroup
	sending.Go(func() { r.mustSendMany(alice, "bob^test", n) })
	for range seen {
		far.expect("message")
	}
	l.Cut()
	sending.Wait()
	var again *client
	eventually(t, "the place of the cut one is free", func() (in bool) {
		var err error
		again, _, err = r.dial(bob, "")
		return err == nil
	})
	for _, id := range r.received(bob) {
		again.expectMessage(id)
		again.ack(id, "completed")
	}
}

// A peer that answers its pings stays, however long it has nothing to say; so
// does one that says something and answers none. If this machine is so busy that
// the peers themselves are late, the test begins again and gives them more time.
func TestALivingPeerIsNotGivenUp(t *testing.T) {
	t.Parallel()
	for _, dead := range []time.Duration{2 * time.Second, 8 * time.Second, 30 * time.Second} {
		err, late := livingPeers(t, dead)
		if err == nil {
			return
		}
		if !late {
			t.Fatal(err)
		}
		t.Log("again, since the peers were late: ", err)
	}
	t.Fatal("the peers were late each time")
}

// livingPeers returns why a peer was given up, and whether one of the peers had
// been silent for so long that this may have been right.
func livingPeers(t *testing.T, dead time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = dead/10, dead })
	alice, bob := r.mustPair()
	l := r.mustLink()
	quiet := r.over(l).mustDial(bob, "sync_limit=0") // the library answers while it is read
	got := make(chan error, 1)
	go func() { _, err := quiet.next(); got <- err }()
	talking := r.over(l).mustUpgrade(alice, "sync_limit=0")
	spoke := time.Now()
	for began, pings := spoke, 0; pings < 10 || time.Since(began) < 2*dead; {
		op, _, err := talking.frame()
		if err != nil || op != opPing && op != opText { // the text answers a frame that is no pong
			return fmt.Errorf("frame %x, %v", op, err), late
		}
		if op == opPing {
			talking.mustWrite(masked(opText, ""), masked(fin|opContinuation, "{}"))
			pings++
			late = late || time.Since(spoke) > dead/2
			spoke = time.Now()
		}
	}
	select {
	case err := <-got:
		return err, late
	default:
	}
	r.mustSend(alice, "bob^test", `{}`)
	if err := <-got; err != nil {
		return err, late
	}
	quiet.Close(websocket.StatusNormalClosure, "")
	return nil, late
}
