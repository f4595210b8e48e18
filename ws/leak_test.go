package ws_test

import (
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/ws"
)

// An ending is a way in which a connection comes and goes.
type ending struct {
	name string
	run  func(r *testRelay, k relay.IssuedKey)
}

// reset closes with a TCP reset: nothing that is under way arrives.
func (c *raw) reset() {
	c.tcp().SetLinger(0)
	c.tcp().Close()
}

var endings = []ending{
	{"closing handshake", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "sync_limit=0")
		c.mustWrite(masked(fin|opClose, closeBody(1000, "")))
		c.expectClose(1000)
		c.Close()
	}},
	{"reset", func(r *testRelay, k relay.IssuedKey) { r.mustUpgrade(k, "").reset() }},
	{"reset with answers under way", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "events=acks,sync,receipts")
		c.mustWrite(strings.Repeat(masked(fin|opText, ackOf("x")), 20))
		c.expectFrame(opText)
		c.reset()
	}},
	{"half close", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "sync_limit=0")
		c.CloseWrite()
		c.expectEnd()
		c.Close()
	}},
	{"half close below TLS", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "sync_limit=0")
		c.tcp().CloseWrite()
		c.expectEnd()
		c.Close()
	}},
	{"gone within a frame", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "")
		c.mustWrite(masked(opText, "{"), masked(fin|opContinuation, strings.Repeat("x", 3000))[:1000])
		c.Close()
	}},
	{"gone within a header", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "")
		c.mustWrite("\x81\xff\x00\x00")
		c.reset()
	}},
	{"gone within the handshake", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustConnect()
		c.mustWrite(handshake(k, "")[:100])
		c.Close()
	}},
	{"gone before the handshake is answered", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustConnect()
		c.mustWrite(handshake(k, ""))
		c.reset()
	}},
	{"handshake refused: no such cursor", func(r *testRelay, k relay.IssuedKey) {
		r.mustBeRefused(handshake(k, "since_message_id=unknown"), 404)
	}},
	{"handshake refused: malformed", func(r *testRelay, k relay.IssuedKey) {
		r.mustBeRefused(handshake(k, "", "-Sec-WebSocket-Key"), 400)
	}},
	{"handshake refused: no key", func(r *testRelay, k relay.IssuedKey) { r.mustBeRefused(handshake(k, "", "-X-Mecha-Key"), 401) }},
	{"a fault of the peer", func(r *testRelay, k relay.IssuedKey) {
		c := r.mustUpgrade(k, "")
		c.mustWrite(strings.Repeat("\xff", 5000))
		c.expectClose(1002)
		c.Close()
	}},
	{"key revoked", func(r *testRelay, k relay.IssuedKey) {
		k = r.mustIssue(k.Mecha.Address)
		c := r.mustUpgrade(k, "sync_limit=0")
		r.mustRevoke(k)
		if body := c.expectFrame(opClose); body[:2] != closeBody(1008, "") {
			r.t.Errorf("close %q", body)
		}
		c.mustWrite(masked(fin|opClose, closeBody(1008, "")))
		c.expectEnd()
		c.Close()
	}},
	{"key revoked, and no answer", func(r *testRelay, k relay.IssuedKey) {
		k = r.mustIssue(k.Mecha.Address)
		c := r.mustUpgrade(k, "sync_limit=0")
		r.mustRevoke(k)
		c.expectFrame(opClose)
		c.reset()
	}},
}

func (r *testRelay) mustBeRefused(text string, status int) {
	r.t.Helper()
	c := r.mustConnect()
	c.mustWrite(text)
	if resp := c.response(); resp.StatusCode != status {
		r.t.Errorf("got %d, want %d", resp.StatusCode, status)
	} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		r.t.Error(err)
	}
	c.Close()
}

// left counts what a process holds.
type left struct{ goroutines, files int }

func countLeft() left {
	files, _ := os.ReadDir("/proc/self/fd") // where there is none, files are not counted
	return left{runtime.NumGoroutine(), len(files)}
}

// leftAtRest counts when nothing ends any more.
func leftAtRest() left {
	last := countLeft()
	for same := 0; same < 20; same++ {
		time.Sleep(5 * time.Millisecond)
		if now := countLeft(); now != last {
			last, same = now, 0
		}
	}
	return last
}

// in returns the relay to a subtest.
func (r *testRelay) in(t testing.TB) *testRelay {
	c := *r
	c.t = t
	return &c
}

// forgetful drops cleanups: each connection is closed where it is opened, so that
// thousands are not kept until the end of the test.
type forgetful struct{ testing.TB }

func (forgetful) Cleanup(func()) {}

// mustCycle opens n connections, a few at a time, and has them end in every way.
func (r *testRelay) mustCycle(k relay.IssuedKey, n int) {
	r.t.Helper()
	f := r.in(forgetful{r.t})
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n) && !r.t.Failed(); i = next.Add(1) {
				endings[int(i)%len(endings)].run(f, k)
			}
		})
	}
	wg.Wait()
	if r.t.Failed() {
		r.t.FailNow()
	}
	eventually(r.t, "the hub is empty", func() bool { return !r.hub.Online(k.Mecha.Number) })
}

// leftPerCycle is how many bytes a connection may leave: its nonce, for as long as it could be repeated. A connection that is not let go of takes ten times as much.
const leftPerCycle = 128

// Thousands of connections that end in every way leave nothing behind: no
// goroutine, no file, no place in the hub, no memory.
func TestNoConnectionLeavesAnythingBehind(t *testing.T) {
	rates := func(c *ws.Config) { c.FrameRate, c.FrameBurst = 2000, 4000 }
	t.Run("TCP", func(t *testing.T) { leavesNothing(t, mustServe(t, rates), scratch.Amount(t, 45, 5000)) })
	t.Run("TLS", func(t *testing.T) { leavesNothing(t, mustServeTLS(t, rates), scratch.Amount(t, 15, 5000)) })
}

func leavesNothing(t *testing.T, r *testRelay, cycles int) {
	_, bob := r.mustPair()
	r.mustCycle(bob, scratch.Amount(t, 3, 8)*len(endings)) // files that are opened once, and kept, are open now
	before, heapBefore, began := leftAtRest(), heap(), time.Now()
	r.mustCycle(bob, cycles)
	took := time.Since(began)
	var after left
	eventually(t, "goroutines and files are as many as before", func() bool {
		after = countLeft()
		return after.goroutines <= before.goroutines && after.files <= before.files
	})
	grown := heap() - heapBefore
	t.Logf("%d connections in %v: %+v before, %+v after; the heap has grown by %d KiB", cycles, took.Round(time.Millisecond), before, after, grown>>10)
	if bound := int64(256<<10 + cycles*leftPerCycle); grown > bound {
		t.Errorf("the heap has grown by %d KiB, more than %d KiB", grown>>10, bound>>10)
	}
}
