package ws_test

import (
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
	"relay/ws"
)

func TestSocketsPerMecha(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.MaxSocketsPerMecha = 3 })
	alice, bob := r.mustPair()
	var open []*client
	for range 3 {
		open = append(open, r.mustDial(bob, ""))
	}
	r.expectRefused(bob, "", 429, relay.TooManySockets)
	_, resp, _ := r.dial(bob, "")
	if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err != nil || n < 1 {
		t.Errorf("Retry-After is %q", resp.Header.Get("Retry-After"))
	}
	other := r.mustIssue("bob^test") // another key of the same Mecha
	r.expectRefused(other, "", 429, relay.TooManySockets)
	r.mustDial(alice, "").expectNothing()
	open[1].CloseNow()
	eventually(t, "there is room again", func() bool {
		c, _, err := r.dial(bob, "")
		if err == nil {
			c.expectNothing()
		}
		return err == nil
	})
	r.expectRefused(bob, "", 429, relay.TooManySockets)
	open[0].expectNothing()
}

func TestSocketsInAll(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.MaxSockets = 2 })
	alice, bob := r.mustPair()
	first := r.mustDial(alice, "")
	_, _, stop, err := r.hub.Watch(bob.Key) // a long-poll counts as well
	if err != nil {
		t.Fatal(err)
	}
	r.expectRefused(bob, "", 503, relay.TooManySockets)
	if _, _, _, err := r.hub.Watch(bob.Key); relay.ErrorCode(err) != relay.TooManySockets {
		t.Fatal(err)
	}
	stop()
	r.mustDial(bob, "").expectNothing()
	r.expectRefused(alice, "", 503, relay.TooManySockets)
	r.mustClose(first, alice)
	eventually(t, "there is room again", func() bool { _, _, err := r.dial(alice, ""); return err == nil })
}

func TestARefusedHandshakeHoldsNoPlace(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.MaxSockets, c.MaxSocketsPerMecha = 1, 1 })
	_, bob := r.mustPair()
	for range 20 {
		r.expectRefused(bob, "since_message_id=unknown", 404, relay.CursorNotFound)
		r.expectHandshakeRefused(handshake(bob, "", "-Sec-WebSocket-Key"), 400, relay.InvalidRequest)
	}
	r.mustDial(bob, "").expectNothing()
}

func TestManyAtTheDoorAtOnce(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.MaxSocketsPerMecha = 5 })
	_, bob := r.mustPair()
	var wg sync.WaitGroup
	var mu sync.Mutex
	in := 0
	for range 40 {
		wg.Go(func() {
			c, resp, err := r.dial(bob, "")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				c.expectNothing()
				in++
			} else if resp == nil || resp.StatusCode != 429 {
				t.Errorf("got %v, %v", resp, err)
			}
		})
	}
	wg.Wait()
	if in != 5 {
		t.Errorf("%d got in", in)
	}
}

// Beyond the rate a socket is not read for a while; nothing is lost or closed.
func TestFramesBeyondTheRateWait(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.FrameRate, c.FrameBurst = 1, 10 })
		alice, bob := r.mustPair()
		c, other := r.mustDial(bob, "sync_limit=0"), r.mustDial(bob, "sync_limit=0")
		began := time.Now()
		for range 60 {
			c.send(`{}`)
		}
		id := r.mustSend(alice, "bob^test", `{}`)
		other.expectMessage(id) // nobody else waits
		var answers, messages []time.Duration
		for range 61 {
			f, err := c.next()
			switch at := time.Since(began); {
			case err == nil && f.Type == "message":
				messages = append(messages, at)
			case err == nil && f.Code == relay.InvalidFrame:
				answers = append(answers, at)
			default:
				t.Fatalf("got %+v, %v", f, err)
			}
		}
		if len(answers) != 60 || len(messages) != 1 || messages[0] != 0 {
			t.Errorf("%d answers, messages at %v", len(answers), messages)
		}
		for i, at := range answers { // 10 at once, then one a second
			if want := time.Duration(max(i-9, 0)) * time.Second; at != want {
				t.Errorf("answer %d came after %v, want %v", i, at, want)
			}
		}
	})
}

// A close frame of the relay does not lift the limit: a client could provoke one by a
// message that it does not finish.
func TestTheRateHoldsAfterTheRelaysCloseFrame(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) {
			c.FrameRate, c.FrameBurst, c.WriteTimeout = 15, 10, time.Minute
			c.SetDrain(time.Second)
		})
		_, bob := r.mustPair()
		c := r.mustUpgrade(bob, "sync_limit=0")
		c.expectAlive()
		closed := make(chan struct{})
		go func() { r.hub.Close(ctx); close(closed) }()
		body := c.expectFrame(opClose)
		began := time.Now()
		c.mustWrite(strings.Repeat(masked(fin|opText, ackOf("x")), 60), masked(fin|opClose, body))
		c.expectEnd()
		if d := time.Since(began); d < 3*time.Second || d > 4*time.Second { // 50 of them at 15 a second
			t.Errorf("60 frames took %v", d)
		}
		<-closed
	})
}

// A client that waits for its turn is not silent.
func TestAClientThatWaitsForItsTurnIsNotGivenUp(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.FrameRate, c.FrameBurst, c.DeadAfter = 1./60, 1, 20*time.Second })
		_, bob := r.mustPair()
		c := r.mustUpgrade(bob, "sync_limit=0")
		c.SetDeadline(time.Time{})
		c.mustWrite(strings.Repeat(masked(fin|opPing, ""), 3))
		for range 3 { // a minute between two of them
			c.expectFrame(opPong)
		}
	})
}

// All sockets of a key share its rate, and each has its turns. The sockets of another
// key have their own.
func TestTheSocketsOfAKeyWaitInTurn(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.FrameRate, c.FrameBurst = 20, 1 })
		alice, bob := r.mustPair()
		const sockets, frames = 4, 15
		began := time.Now()
		var wg sync.WaitGroup
		for range sockets {
			c := r.mustDial(bob, "sync_limit=0")
			for range frames {
				c.send(`{}`)
			}
			wg.Go(func() {
				for range frames {
					if f, err := c.next(); err != nil || f.Code != relay.InvalidFrame {
						t.Errorf("got %+v, %v", f, err)
					}
				}
			})
		}
		r.mustDial(alice, "sync_limit=0").expectNothing()
		wg.Wait()
		if d := time.Since(began); d < 2900*time.Millisecond || d > 3*time.Second { // 59 of them at 20 a second
			t.Errorf("%d frames of %d sockets took %v", frames, sockets, d)
		}
	})
}

// A message that was begun must be finished in time. Until then its client may take
// its time, and pings are answered.
func TestAMessageThatIsNotFinishedEndsTheConnection(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		_, bob := r.mustPair()
		whole := masked(fin|opText, `{"type":"nothing","x":"`+strings.Repeat("x", 5000)+`"}`)
		var all []*raw
		for _, part := range []string{whole[:1], whole[:3], whole[:7], whole[:9], whole[:5000], masked(opText, "{"), masked(opText, "{") + masked(fin|opPing, "p"), masked(fin|opPing, "ping")[:8]} {
			c := r.mustUpgrade(bob, "sync_limit=0")
			c.mustWrite(whole, part)
			all = append(all, c)
		}
		for _, c := range all {
			texts := 0
			op, body, err := c.frame()
			for ; err == nil && (op == opPong || op == opText); op, body, err = c.frame() {
				if op == opText {
					texts++
				}
			}
			if err != nil || op != opClose || body[:2] != closeBody(1002, "") || texts != 1 {
				t.Errorf("got %d answers, then frame %x %q, %v", texts, op, body, err)
			}
			c.expectEnd()
		}
		r.mustUpgrade(bob, "sync_limit=0").expectAlive()
	})
}

// The tests in bubbles have no poller, and see the times exactly. With one, the same things happen.
func TestTimeEndsTheSocketsOfThePoller(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		begun    string
		settings func(*ws.Config)
		code     int
	}{
		"silence":        {"", func(c *ws.Config) { c.PingEvery, c.DeadAfter = 50*time.Millisecond, 200*time.Millisecond }, 1001},
		"half a message": {masked(fin|opText, ackOf("x"))[:9], func(c *ws.Config) { c.MessageTimeout = 100 * time.Millisecond }, 1002},
		"a fault":        {masked(fin|3, ""), func(*ws.Config) {}, 1002},
	} {
		r := mustServe(t, c.settings, func(c *ws.Config) { c.SetDrain(50 * time.Millisecond) })
		_, bob := r.mustPair()
		conn := r.mustUpgrade(bob, "sync_limit=0")
		conn.mustWrite(c.begun)
		op, body, err := conn.frame()
		for err == nil && op == opPing {
			op, body, err = conn.frame()
		}
		if err != nil || op != opClose || body[:2] != closeBody(c.code, "") {
			t.Errorf("%s: got frame %x %q, %v", what, op, body, err)
		}
		conn.expectEnd()
		eventually(t, "the hub has forgotten it", func() bool { return !r.hub.Online(bob.Mecha.Number) })
	}
}

func TestPingsAreSent(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, pingsAtTheirTimes)
		_, bob := r.mustPair()
		c := r.mustUpgrade(bob, "")
		c.SetDeadline(time.Time{})
		last := time.Now()
		for range 10 { // for longer than a client may be silent
			if p := c.expectFrame(opPing); p != "" || time.Since(last) < 25*time.Second || time.Since(last) > 26*time.Second {
				t.Errorf("ping %q after %v", p, time.Since(last))
			}
			last = time.Now()
			c.mustWrite(masked(fin|opPong, "")) // a sign of life
		}
	})
}

func TestADeadPeerIsClosed(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, pingsAtTheirTimes)
		_, bob := r.mustPair()
		began := time.Now()
		c := r.mustUpgrade(bob, "")
		c.expectFrame(opPing)
		c.expectFrame(opPing)
		if body := c.expectFrame(opClose); body[:2] != closeBody(1001, "") || time.Since(began) < time.Minute || time.Since(began) > 62*time.Second {
			t.Errorf("got close %q after %v", body, time.Since(began))
		}
		c.expectEnd() // though nobody answers
	})
}

// One that has gone without a word, and left data on its way, is cut off too.
func TestADeadPeerWithAFullBufferIsCut(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) {
			c.PingEvery, c.DeadAfter, c.MaxSocketsPerMecha = 25*time.Second, time.Minute, 1
		})
		alice, bob := r.mustPair()
		deaf := r.mustBeDeaf(bob, "sync_limit=0")
		r.mustSendBig(alice, "bob^test")
		eventually(t, "its place is free", func() bool { _, _, err := r.dial(bob, "sync_limit=0"); return err == nil })
		deaf.Close()
	})
}

func TestConnectAndDisconnectLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.MaxSockets, c.MaxSocketsPerMecha = 3, 3 })
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 20)
	ids := r.received(bob)
	for i := range scratch.Amount(t, 60, 200) {
		var c *client
		eventually(t, "there is room", func() (in bool) {
			var err error
			c, _, err = r.dial(bob, "events=sync,acks,receipts")
			return err == nil
		})
		switch i % 4 {
		case 0:
			c.CloseNow()
		case 1:
			c.expect("sync")
			c.ack(ids[0], "received")
			c.CloseNow()
		case 2:
			r.mustClose(c, bob)
		case 3:
			c.CloseNow()
			rude := r.mustConnect()
			rude.mustWrite(handshake(bob, "")) // may be refused: it does not look
			rude.Conn.(*net.TCPConn).SetLinger(0)
			rude.Close()
		}
	}
	eventually(t, "only the hub's own goroutines are left", func() bool { return goroutinesOfHub(r.mine) == goroutinesIdle() })
	for range 3 {
		var c *client
		eventually(t, "there is room", func() (in bool) { // a rude one may come late
			var err error
			c, _, err = r.dial(bob, "")
			return err == nil
		})
		c.expect("message")
	}
	r.expectRefused(bob, "", 429, relay.TooManySockets)
}
