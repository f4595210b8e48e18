package ws_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/ws"
)

func TestCloseCodesAreEchoed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	for _, code := range []int{1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999} {
		c := r.mustUpgrade(bob, "")
		c.mustWrite(masked(fin|opClose, closeBody(code, "b\u00e9")))
		c.expectClose(code)
	}
	c := r.mustUpgrade(bob, "")
	c.mustWrite(masked(fin|opClose, closeBody(1000, strings.Repeat("a", 123))))
	c.expectClose(1000)
	c = r.mustUpgrade(bob, "")
	c.mustWrite(masked(fin|opClose, "")) // without a code
	c.expectClose(1000)
}

func TestCloseFramesThatAreNone(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	expect := func(body string, code int) {
		t.Helper()
		c := r.mustUpgrade(bob, "")
		c.mustWrite(masked(fin|opClose, body))
		c.CloseWrite()
		c.expectClose(code)
	}
	for _, code := range []int{0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535} {
		expect(closeBody(code, ""), 1002)
	}
	expect("\x03", 1002)
	expect(closeBody(1000, "\xff"), 1007)
	expect(closeBody(1000, "\xe2\x82"), 1007)
}

func TestTheForeignClientClosesInOrder(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	for range 20 {
		r.mustClose(r.mustDial(bob, ""), bob) // it wants our close frame
	}
}

// Acknowledgements before the close frame count.
func TestAcknowledgementsBeforeACloseFrameCount(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	for range 20 {
		id := r.mustSend(alice, "bob^test", `{}`)
		c := r.mustUpgrade(bob, "sync_limit=0")
		c.mustWrite(masked(fin|opText, ackOf(string(id)))+masked(fin|opClose, closeBody(1000, "")), masked(fin|opText, "not read"))
		c.expectFrame(opClose)
		eventually(t, "the acknowledgement is stored", func() bool {
			m, err := r.Message(ctx, bob.Mecha.Number, id)
			return err == nil && m.Ack != nil && m.Ack.Status == "completed"
		})
	}
}

// After the relay's close frame, the peer's answer ends the connection at once, while one who
// does not answer is still waited for.
func TestTheRelayDoesNotWaitAfterTheAnswerToItsClose(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { // the drain ends after the test has lost its patience
			c.WriteTimeout = 2 * patience
			c.SetDrain(2 * patience)
		})
		alice, bob := r.mustPair()
		c, silent := r.mustUpgrade(bob, ""), r.mustUpgrade(alice, "")
		closed := make(chan struct{})
		go func() { r.hub.Close(ctx); close(closed) }()
		body := c.expectFrame(opClose)
		silent.expectFrame(opClose)
		c.mustWrite(masked(fin|opText, "more"), masked(fin|opPing, ""), masked(fin|opClose, body)) // frames that are under way may still come
		c.expectEnd()
		eventually(t, "the relay is done with the one who has answered", func() bool { return !r.hub.Online(bob.Mecha.Number) })
		if !r.hub.Online(alice.Mecha.Number) {
			t.Error("the relay did not wait for the one who has not answered")
		}
		silent.mustWrite(masked(fin|opClose, body))
		silent.expectEnd()
		<-closed
	})
}

// Acknowledgements that the client sent before it saw that the relay stops count: the
// store takes them until the connection is closed.
func TestAcknowledgementsAfterTheRelaysCloseFrameCount(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, drainLong)
		alice, bob := r.mustPair()
		const n = 700 // more than may be due at once
		r.mustSendMany(alice, "bob^test", n)
		c := r.mustUpgrade(bob, "sync_limit=0&events=acks")
		acks := ""
		for _, id := range r.received(bob) {
			acks += masked(fin|opText, ackOf(string(id)))
		}
		closed := make(chan struct{})
		go func() { r.hub.Close(ctx); close(closed) }()
		body := c.expectFrame(opClose)
		c.mustWrite(acks, masked(fin|opClose, body))
		c.expectEnd() // and no answer comes after the close frame
		<-closed
		for _, id := range r.received(bob) {
			r.expectState(bob, id, relay.Acknowledged)
		}
	})
}

// A slow reader has much before it that the network holds. It sees 1001 anyway,
// though it acknowledges while it reads: on a connection that is closed already, the
// network would answer that with a reset.
func TestASlowReaderSees1001(t *testing.T) {
	for name, serve := range map[string]func(testing.TB, ...func(*ws.Config)) *testRelay{"TCP": mustServe, "TLS": mustServeTLS} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				r := serve(t, func(c *ws.Config) { c.WriteTimeout = patience })
				alice, bob := r.mustPair()
				r.mustSendBig(alice, "bob^test")
				c := r.mustBeDeaf(bob, "sync_limit=1000")
				c.expectFrame(opText)
				closed := make(chan struct{})
				go func() { r.hub.Close(ctx); close(closed) }()
				frames := 0
				for op := opText; op != opClose; frames++ {
					var err error
					if op, _, err = c.frame(); err != nil {
						t.Fatalf("after %d frames: %v", frames, err)
					}
					time.Sleep(900 * time.Millisecond) // of the second after which a silent peer is cut
					c.mustWrite(masked(fin|opText, ackOf("x")))
				}
				if frames < 3 {
					t.Errorf("the network held %d frames: nothing was tested", frames)
				}
				c.mustWrite(masked(fin|opClose, closeBody(1001, "")))
				<-closed
			})
		})
	}
}

func TestShutdownSays1001(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	a, b, c := r.mustDial(alice, ""), r.mustDial(bob, ""), r.mustDial(bob, "sync_limit=0")
	closed := make(chan struct{})
	go func() { r.stop(); close(closed) }()
	for _, c := range []*client{a, b, c} {
		c.expectClose(websocket.StatusGoingAway)
	}
	<-closed
	r.hub.Close(ctx) // again: nothing happens
}

// Nobody keeps the relay from stopping: not one who reads nothing, not one who
// does not answer, not one who has been throttled.
func TestShutdownCutsThoseWhoDoNotGo(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.FrameRate, c.FrameBurst, c.WriteTimeout = 0.01, 1, time.Minute })
		alice, bob := r.mustPair()
		deaf := r.mustUpgrade(bob, "")
		deaf.Conn.(interface{ SetReadBuffer(int) error }).SetReadBuffer(4096)
		throttled := r.mustUpgrade(alice, "")
		throttled.mustWrite(strings.Repeat(masked(fin|opPing, ""), 3)) // at once: what the relay has not read when it cuts would make the end a reset
		throttled.expectFrame(opPong)
		silent := r.mustUpgrade(alice, "")
		for range 16 {
			r.mustSend(alice, "bob^test", `{"t":"`+strings.Repeat("x", 1<<20-100)+`"}`)
		}
		ctx, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		began := time.Now()
		r.hub.Close(ctx)
		if d := time.Since(began); d > 1500*time.Millisecond { // it would be a minute, and ages for the throttled one
			t.Errorf("Close took %v", d)
		}
		if n := goroutinesLeft(r.mine); n > 0 {
			t.Errorf("%d goroutines are left", n)
		}
		silent.expectClose(1001)
		throttled.expectClose(1001)
	})
}

// Once Close has returned, nobody reads from the store: it may be closed.
func TestHubCloseWaitsForThoseWhoRead(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		reading, goOn := make(chan struct{}), make(chan struct{})
		r := mustServe(t, func(c *ws.Config) {
			c.Store = &store{DB: c.Store.(*db.DB), before: func() { close(reading); <-goOn }}
		})
		_, bob := r.mustPair()
		r.mustDial(bob, "")
		<-reading
		now, cancel := context.WithCancel(ctx)
		cancel()
		closed := make(chan struct{})
		go func() { r.hub.Close(now); close(closed) }()
		time.Sleep(time.Minute)
		select {
		case <-closed:
			t.Error("Close returned while a page was being read")
		default:
		}
		close(goOn)
		<-closed
	})
}
