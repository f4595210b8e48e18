package ws_test

import (
	"io"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/ws"
)

// A socket on which nothing happens has no goroutine where there is a poller,
// else one; whatever has happened on it before.
func TestAnIdleSocketHasAtMostOneGoroutine(t *testing.T) {
	t.Parallel()
	const sockets = 20
	r := mustServe(t)
	alice, bob := r.mustPair()
	want := goroutinesIdle()
	if noPoller {
		want += sockets
	}
	var all []*raw
	for i := range sockets {
		k := []relay.IssuedKey{alice, bob}[i%2]
		c := r.mustConnect()
		early := ""
		if i%3 == 0 {
			early = masked(fin|opPing, "early")
		}
		c.mustWrite(handshake(k, "sync_limit=0"), early)
		c.expectSwitch()
		if early != "" {
			c.expectFrame(opPong)
		}
		all = append(all, c)
	}
	idle := func() bool { return goroutinesOfHub(r.mine) == want }
	eventually(t, "the new sockets are idle", idle)
	id := r.mustSend(alice, "bob^test", `{}`)
	for i, c := range all {
		if i%2 == 1 {
			c.expectFrame(opText)
		}
		switch i % 4 {
		case 0:
			c.expectAlive()
		case 1:
			c.mustWrite(masked(fin|opPong, ""))
		case 3:
			c.mustWrite(masked(fin|opText, ackOf(string(id))))
		}
	}
	eventually(t, "they are idle again", idle)
	for _, c := range all {
		c.expectAlive()
	}
}

// A frame may come byte by byte, with any time between; meanwhile others are served.
func TestAFrameByteByByte(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.MessageTimeout = time.Hour })
	_, bob := r.mustPair()
	slow, other := r.mustUpgrade(bob, "sync_limit=0"), r.mustUpgrade(bob, "sync_limit=0")
	for range 3 {
		text := masked(opText, "{") + masked(fin|opPing, "between") + masked(fin|opContinuation, "}")
		for i := range len(text) {
			slow.mustWrite(text[i : i+1])
			other.expectAlive() // by then the byte has been looked at, most likely
		}
		if p := slow.expectFrame(opPong); p != "between" {
			t.Fatalf("pong %q", p)
		}
		slow.expectFrame(opText) // that {} is no frame of ours
	}
	slow.expectAlive()
}

// A frame that arrives just as the reader parks is not overlooked.
func TestFramesInAnyRhythm(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.PingEvery = time.Hour })
	_, bob := r.mustPair()
	var wg sync.WaitGroup
	for range 8 {
		c := r.mustUpgrade(bob, "sync_limit=0")
		wg.Go(func() {
			for i := range scratch.Amount(t, 250, 2000) {
				for range i % 97 * 20 { // some while, of no certain length
					_ = time.Now()
				}
				if _, err := io.WriteString(c, masked(fin|opPing, "")); err != nil {
					t.Error(err)
					return
				}
				if op, _, err := c.frame(); err != nil || op != opPong {
					t.Errorf("after %d pongs: frame %x, %v", i, op, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Over TLS no poller knows whether there is something to read, so TLS goes without one.
func TestSocketsOverTLS(t *testing.T) {
	t.Parallel()
	r := mustServeTLS(t)
	alice, bob := r.mustPair()
	c := r.mustDial(bob, "events=acks")
	for range 3 {
		id := r.mustSend(alice, "bob^test", `{}`)
		c.expectMessage(id)
		c.ack(id, "completed")
		c.expect("ack_ok")
	}
	r.mustClose(c, bob)
}
