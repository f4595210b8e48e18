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

// in returns the relay to a subtest.
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
	for name, begun := range map[string]string{
		"idle":               "",
		"within-a-frame":     masked(fin|opText, ackOf("x"))[:9],
		"within-a-header":    "\x81",
		"between-frames":     masked(opText, "{"),
		"within-a-big-frame": string(frameHeader(fin|opText, 0x80, 60000)) + "\x00\x00\x00\x00" + strings.Repeat(" ", 30000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTime(t, lives, func(t *testing.T, dead time.Duration) (error, bool) { return cutLink(t, dead, begun) })
		})
	}
}

// cutLink cuts the link of a client that has begun a frame. It returns how the relay has not found
// that, and whether the client was silent for so long before that this may have been right.
func cutLink(t *testing.T, dead time.Duration, begun string) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) {
		c.PingEvery, c.DeadAfter = dead/10, dead
		c.SetDrain(dead / 100) // in it a client is not given more time to say something
	})
	alice, bob := r.mustPair()
	l := r.mustLink()
	connected := time.Now()
	c := r.over(l).mustUpgrade(bob, "sync_limit=0")
	op, _, err := c.frame()
	spoke := time.Now()
	if err == nil && op == opPing {
		_, err = io.WriteString(c, masked(fin|opPong, "")+masked(fin|opPing, "heard?"))
	}
	for err == nil && op == opPing { // until the pong, which says that the relay has heard
		op, _, err = c.frame()
	}
	if err == nil {
		_, err = io.WriteString(c, begun)
	}
	online := r.hub.Online(bob.Mecha.Number)
	l.Cut()
	late = time.Since(connected) > dead/2
	if err != nil || op != opPong || !online {
		return fmt.Errorf("got frame %x, %v, want a ping and then the pong; online before the link is cut: %v", op, err, online), late
	}
	eventually(t, "the relay gives it up", func() bool { return !r.hub.Online(bob.Mecha.Number) })
	if d := time.Since(spoke); d < dead {
		return fmt.Errorf("after %v: it was not given the time to answer", d), false
	}
	id := r.mustSend(alice, bob.Mecha.Address, `{}`)
	connected = time.Now()
	f, err := r.mustDial(bob, "").next()
	if err != nil || f.MessageID != id {
		return fmt.Errorf("got %+v, %v, want message %s", f, err, id), time.Since(connected) > dead/2
	}
	return nil, false
}

// The peer of a cut link is given up though messages are on their way to it,
// and they come again over another link.
func TestALinkThatIsCutInTheMiddleOfTheStream(t *testing.T) {
	t.Parallel()
	inTime(t, lives, cutInTheMiddle)
}

// cutInTheMiddle returns what was lost, and whether one of the clients was silent for so long that
// this may have been right.
func cutInTheMiddle(t *testing.T, dead time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) {
		c.PingEvery, c.DeadAfter, c.WriteTimeout, c.MaxSocketsPerMecha = dead/10, dead, dead, 1
	})
	alice, bob := r.mustPair()
	l := r.mustLink()
	spoke := time.Now()
	next := func(c *client) (relay.MessageID, error) {
		f, err := c.next() // the library answers pings meanwhile
		late = late || time.Since(spoke) > dead/2
		spoke = time.Now()
		if err == nil && f.Type != "message" {
			err = fmt.Errorf("got %+v, want a message", f)
		}
		return f.MessageID, err
	}
	far := r.over(l).mustDial(bob, "sync_limit=0")
	const n, seen = 200, 50
	var sending sync.WaitGroup
	sending.Go(func() { r.mustSendMany(alice, "bob^test", n) })
	for i := range seen {
		if _, err := next(far); err != nil {
			l.Cut()
			sending.Wait()
			return fmt.Errorf("after %d messages: %w", i, err), late
		}
	}
	l.Cut()
	sending.Wait()
	var again *client
	eventually(t, "the place of the cut one is free", func() (in bool) {
		var err error
		spoke = time.Now()
		again, _, err = r.dial(bob, "")
		return err == nil
	})
	for i, id := range r.received(bob) {
		got, err := next(again)
		if err == nil && got != id {
			return fmt.Errorf("message %d is %s, want %s", i, got, id), false
		}
		if err == nil {
			err = again.Write(ctx, websocket.MessageText, []byte(ackOf(string(id))))
		}
		if err != nil {
			return fmt.Errorf("after %d messages: %w", i, err), late
		}
	}
	return nil, false
}

// A peer that answers its pings stays, however long it has nothing to say; so
// does one that says something and answers none. If this machine is so busy that
// the peers themselves are late, the test begins again and gives them more time.
func TestALivingPeerIsNotGivenUp(t *testing.T) {
	t.Parallel()
	inTime(t, lives, livingPeers)
}

// livingPeers returns why a peer was given up, and whether one of the peers had
// been silent for so long that this may have been right.
func livingPeers(t *testing.T, dead time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = dead/10, dead })
	alice, bob := r.mustPair()
	l := r.mustLink()
	spoke := time.Now()                              // if it was long ago that talking spoke, then quiet may be late, too
	quiet := r.over(l).mustDial(bob, "sync_limit=0") // the library answers while it is read
	got := make(chan error, 1)
	go func() { _, err := quiet.next(); got <- err }()
	talking := r.over(l).mustUpgrade(alice, "sync_limit=0")
	for began, pings := time.Now(), 0; pings < 10 || time.Since(began) < 2*dead; {
		op, _, err := talking.frame()
		if err == nil && op == opPing {
			_, err = io.WriteString(talking, masked(opText, "")+masked(fin|opContinuation, "{}"))
		}
		late = late || time.Since(spoke) > dead/2
		if err != nil || op != opPing && op != opText { // the text answers a frame that is no pong
			return fmt.Errorf("frame %x, %v", op, err), late
		}
		if op == opPing {
			pings++
			spoke = time.Now()
		}
	}
	r.mustSend(alice, "bob^test", `{}`)
	err = <-got
	late = late || time.Since(spoke) > dead/2
	quiet.CloseNow()
	return err, late
}
