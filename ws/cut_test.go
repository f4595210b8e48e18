package ws_test

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/scratch/wire"
	"relay/ws"
)

func TestTheDefaultsFindADeadPeerWithinAMinute(t *testing.T) {
	t.Parallel()
	c := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = 0, 0 }).hub.Config()
	if c.PingEvery != 25*time.Second || c.DeadAfter != time.Minute {
		t.Errorf("a ping every %v, dead after %v", c.PingEvery, c.DeadAfter)
	}
}

// pingsAtTheirTimes has a relay ping as it does by default.
func pingsAtTheirTimes(c *ws.Config) { c.PingEvery, c.DeadAfter = 25*time.Second, time.Minute }

// cut cuts a connection in memory like a cable: neither end is told.
func cut(c net.Conn) { c.(*wire.Conn).Cut() }

// A connection whose link is cut gets no end from the network: silence alone
// tells. Others, which answer the pings, live on, and nothing is lost.
func TestACutLinkIsFound(t *testing.T) {
	for name, begun := range map[string]string{
		"idle":               "",
		"within-a-frame":     masked(fin|opText, ackOf("x"))[:9],
		"within-a-header":    "\x81",
		"between-frames":     masked(opText, "{"),
		"within-a-big-frame": string(frameHeader(fin|opText, 0x80, 60000)) + "\x00\x00\x00\x00" + strings.Repeat(" ", 30000),
	} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := mustServe(t, pingsAtTheirTimes, func(c *ws.Config) { c.MessageTimeout = time.Hour })
				alice, bob := r.mustPair()
				living := r.mustDial(alice, "sync_limit=0")
				read := make(chan error, 1)
				go func() { _, err := living.next(); read <- err }() // the library answers pings meanwhile
				c := r.mustUpgrade(bob, "sync_limit=0")
				c.expectFrame(opPing)
				c.mustWrite(masked(fin|opPong, "") + masked(fin|opPing, "heard?"))
				c.expectFrame(opPong)
				c.mustWrite(begun)
				cut(c.Conn)
				began := time.Now()
				eventually(t, "the relay gives it up", func() bool { return !r.hub.Online(bob.Mecha.Number) })
				if d := time.Since(began); d < time.Minute || d > 63*time.Second { // a round of the ticker, and the drain
					t.Errorf("it was given up after %v", d)
				}
				id := r.mustSend(alice, bob.Mecha.Address, `{}`)
				r.mustDial(bob, "").expectMessage(id)
				r.mustSend(bob, "alice^test", `{}`)
				if err := <-read; err != nil {
					t.Errorf("who answers pings: %v", err)
				}
			})
		})
	}
}

// The peer of a cut link is given up though messages are on their way to it,
// and they are redelivered over another link.
func TestALinkThatIsCutInTheMiddleOfTheStream(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, pingsAtTheirTimes, func(c *ws.Config) { c.MaxSocketsPerMecha = 1 })
		alice, bob := r.mustPair()
		far := r.mustDial(bob, "sync_limit=0")
		const n, seen = 200, 50
		var sending sync.WaitGroup
		sending.Go(func() { r.mustSendMany(alice, "bob^test", n) })
		for range seen {
			far.expect("message")
		}
		cut(far.below)
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
	})
}

// A peer that answers its pings stays, however long it has nothing to say; so
// does one that says something and answers none.
func TestALivingPeerIsNotGivenUp(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, pingsAtTheirTimes)
		alice, bob := r.mustPair()
		quiet := r.mustDial(bob, "sync_limit=0") // the library answers while it is read
		got := make(chan error, 1)
		go func() { _, _, err := quiet.Read(ctx); got <- err }()
		talking := r.mustUpgrade(alice, "sync_limit=0")
		talking.SetDeadline(time.Time{})
		for began := time.Now(); time.Since(began) < 10*time.Minute; {
			talking.expectFrame(opPing)
			talking.mustWrite(masked(opText, ""), masked(fin|opContinuation, "{}"))
			talking.expectFrame(opText) // it answers a frame that is not a pong
		}
		r.mustSend(alice, "bob^test", `{}`)
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
