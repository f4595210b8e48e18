package ws_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
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
	t.Parallel()
	inTime(t, seconds, framesBeyondTheRate)
}

// framesBeyondTheRate sends 60 frames at once, of which 10 may come at once and 15 within the scale.
// It is late if a message was committed only when half of them were due.
func framesBeyondTheRate(t *testing.T, scale time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) { c.FrameRate, c.FrameBurst = 15/scale.Seconds(), 10 })
	alice, bob := r.mustPair()
	c, other := r.mustDial(bob, "sync_limit=0"), r.mustDial(bob, "sync_limit=0")
	began := time.Now()
	for range 60 {
		c.send(`{}`)
	}
	id := r.mustSend(alice, "bob^test", `{}`)
	other.expectMessage(id) // nobody else waits
	late = time.Since(began) > scale
	answers, messages := 0, 0
	for range 61 {
		switch f, next := c.next(); {
		case next != nil:
			return next, false
		case f.Type == "message":
			messages++
			if answers > 40 { // those of two times the scale
				err = fmt.Errorf("the message waited for %d frames", answers)
			}
		case f.Code == relay.InvalidFrame:
			answers++
		}
	}
	if answers != 60 || messages != 1 {
		return fmt.Errorf("%d answers, %d messages", answers, messages), false
	}
	if d := time.Since(began); d < 3*scale { // 50 of them at 15 in the scale
		return fmt.Errorf("60 frames took %v", d), false
	}
	return err, late
}

// A close frame of the relay does not lift the limit: a client could provoke one by a
// message that it does not finish.
func TestTheRateHoldsAfterTheRelaysCloseFrame(t *testing.T) {
	t.Parallel()
	inTime(t, seconds, rateAfterTheClose)
}

// rateAfterTheClose sends 60 frames after the relay's close frame, three times as many as the rate
// allows while the relay drains. It is late if they were sent when the drain was nearly over.
func rateAfterTheClose(t *testing.T, drain time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) {
		c.FrameRate, c.FrameBurst, c.WriteTimeout = 15/drain.Seconds(), 10, patience
		c.SetDrain(drain)
	})
	_, bob := r.mustPair()
	c := r.mustUpgrade(bob, "sync_limit=0")
	c.expectAlive()
	closed := make(chan struct{})
	stopped := time.Now()
	go func() { r.hub.Close(ctx); close(closed) }()
	body := c.expectFrame(opClose)
	began := time.Now()
	_, err = io.WriteString(c, strings.Repeat(masked(fin|opText, ackOf("x")), 60)+masked(fin|opClose, body))
	late = time.Since(stopped) > drain/4
	var rest []byte
	if err == nil {
		rest, err = io.ReadAll(c.r)
	}
	if d := time.Since(began); err != nil || len(rest) > 0 || d < 3*drain { // 50 of them at 15 in the drain
		return fmt.Errorf("60 frames took %v, and then came % x, %v", d, rest, err), late
	}
	<-closed
	return nil, false
}

// A client that waits for its turn is not silent.
func TestAClientThatWaitsForItsTurnIsNotGivenUp(t *testing.T) {
	t.Parallel()
	inTime(t, seconds, waitForTheTurn)
}

// waitForTheTurn sends three pings, and waits for the last of them three times as long as a client
// may be silent. It is late if they were not sent in half of that time after the handshake began.
func waitForTheTurn(t *testing.T, dead time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) { c.FrameRate, c.FrameBurst, c.DeadAfter = 2/(3*dead.Seconds()), 1, dead })
	_, bob := r.mustPair()
	began := time.Now()
	c := r.mustUpgrade(bob, "sync_limit=0")
	_, err = io.WriteString(c, strings.Repeat(masked(fin|opPing, ""), 3))
	late = time.Since(began) > dead/2
	for n := 0; n < 3 && err == nil; n++ {
		var op int
		if op, _, err = c.frame(); err == nil && op != opPong {
			err = fmt.Errorf("frame %x, want pong %d", op, n)
		}
	}
	return err, late
}

// All sockets of a key share its rate, and each has its turns. The sockets of another
// key have their own.
func TestTheSocketsOfAKeyWaitInTurn(t *testing.T) {
	t.Parallel()
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
	if d := time.Since(began); d < 2*time.Second { // 59 of them at 20 a second; with a rate for each it would be 700 ms
		t.Errorf("%d frames of %d sockets took %v", frames, sockets, d)
	}
}

// A message that was begun must be finished in time. Until then its client may take
// its time, and pings are answered.
func TestAMessageThatIsNotFinishedEndsTheConnection(t *testing.T) {
	t.Parallel()
	const limit = time.Second // the relay answers a whole message on the goroutine that reads the next one: it needs no time for that
	r := mustServe(t, func(c *ws.Config) { c.MessageTimeout, c.MaxSocketsPerMecha = limit, 0 })
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
}

func TestPingsAreSent(t *testing.T) {
	t.Parallel()
	inTime(t, lives, answerPings)
}

// answerPings answers pings for longer than a client may be silent.
func answerPings(t *testing.T, dead time.Duration) (err error, late bool) {
	r := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = dead/20, dead })
	_, bob := r.mustPair()
	spoke := time.Now()
	c := r.mustUpgrade(bob, "")
	for began := time.Now(); time.Since(began) < dead*3/2; {
		op, p, err := c.frame()
		if err == nil {
			_, err = io.WriteString(c, masked(fin|opPong, "")) // a sign of life
		}
		late = late || time.Since(spoke) > dead/2
		spoke = time.Now()
		if err != nil || op != opPing || p != "" {
			return fmt.Errorf("frame %x %q, %v, want a ping", op, p, err), late
		}
	}
	return nil, false
}

func TestADeadPeerIsClosed(t *testing.T) {
	t.Parallel()
	const dead = 2 * time.Second
	r := mustServe(t, func(c *ws.Config) { c.PingEvery, c.DeadAfter = 200*time.Millisecond, dead })
	_, bob := r.mustPair()
	began := time.Now()
	c := r.mustUpgrade(bob, "")
	pings := 0
	for {
		op, body, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		if op == opPing {
			pings++
			continue
		}
		if op != opClose || body[:2] != closeBody(1001, "") || time.Since(began) < dead || pings == 0 {
			t.Fatalf("got frame %x %q after %v and %d pings", op, body, time.Since(began), pings)
		}
		break
	}
	c.expectEnd() // though nobody answers
}

// One that has gone without a word, and left data on its way, is cut off too.
func TestADeadPeerWithAFullBufferIsCut(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) {
		c.PingEvery, c.DeadAfter, c.WriteTimeout, c.MaxSocketsPerMecha = time.Second, 2*time.Second, time.Second, 1
	})
	alice, bob := r.mustPair()
	deaf := r.mustBeDeaf(bob, "sync_limit=0")
	r.mustSendBig(alice, "bob^test")
	eventually(t, "its place is free", func() bool { _, _, err := r.dial(bob, "sync_limit=0"); return err == nil })
	deaf.Close()
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
