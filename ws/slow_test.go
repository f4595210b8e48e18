package ws_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
	"relay/ws"
)

const bigPayload = 64 << 10

// bigMessages is how many big messages are more than the network holds. In the long form they are 21 MiB of frames.
func (r *testRelay) bigMessages() int {
	if wire.InBubble(r.t) {
		return 12 * wire.Room / bigPayload
	}
	return scratch.Amount(r.t, 125, 250)
}

// Neither the relay nor this test keeps the messages. A connection that does not read
// may hold two queues (one in hand, one filling) and a
// page of 256 KiB of payload each, and a buffer of frames of less than 512 KiB.
// The rest of the bound is for the store and the runtime.
const heapBound = 4 << 20

func heap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC() // pools are emptied in two steps
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// mustBeDeaf is a connection whose client reads nothing until it is told to.
func (r *testRelay) mustBeDeaf(k relay.IssuedKey, query string) *raw {
	r.t.Helper()
	c := r.mustConnect()
	c.below().(interface{ SetReadBuffer(int) error }).SetReadBuffer(wire.Room) // or the network would hold a good part of it
	c.mustWrite(handshake(k, query))
	c.expectSwitch()
	return c
}

func (r *testRelay) mustSendBig(from relay.IssuedKey, to relay.Address) {
	r.t.Helper()
	payload := `{"t":"` + strings.Repeat("x", bigPayload-8) + `"}`
	for range r.bigMessages() {
		r.mustSend(from, to, payload)
	}
}

// readMessage reads a message from a raw connection: its id alone is kept.
func (c *raw) readMessage() (relay.MessageID, error) {
	op, text, err := c.frame()
	if err != nil {
		return "", err
	}
	var f frame
	if err := json.Unmarshal([]byte(text), &f); err != nil || op != opText || f.Type != "message" || len(f.Payload) != (bigPayload+2)/3*4 {
		return "", fmt.Errorf("got frame %x %.80q, %v", op, text, err)
	}
	return f.MessageID, nil
}

func (c *raw) mustReadMessages(n int) (ids []relay.MessageID) {
	c.t.Helper()
	for range n {
		id, err := c.readMessage()
		if err != nil {
			c.t.Fatalf("after %d messages: %v", len(ids), err)
		}
		ids = append(ids, id)
	}
	return ids
}

func TestASlowReaderCostsLittleAndHoldsUpNobody(t *testing.T) {
	r := mustServe(t, func(c *ws.Config) { c.WriteTimeout, c.PingEvery = patience, time.Hour })
	alice, bob := r.mustPair()
	n := r.bigMessages()
	slow := r.mustBeDeaf(bob, "sync_limit=1000")
	quick := r.mustUpgrade(bob, "sync_limit=0")
	slow.expectAlive()
	quick.expectAlive()
	before := heap()

	var got []relay.MessageID
	var wg sync.WaitGroup
	wg.Go(func() {
		for range n {
			id, err := quick.readMessage()
			if err != nil {
				t.Error(err)
				return
			}
			got = append(got, id)
		}
	})
	r.mustSendBig(alice, "bob^test")
	wg.Wait() // it gets everything, though the other one stands still
	if grown := heap() - before; grown > heapBound {
		t.Errorf("the heap has grown by %d KiB", grown>>10)
	}
	ids := r.received(bob)
	expectSame(t, got, ids)
	expectSame(t, slow.mustReadMessages(n), ids)
	// And both are live again.
	r.mustSend(alice, "bob^test", `{"t":"`+strings.Repeat("y", bigPayload-8)+`"}`)
	last := r.received(bob)[n:]
	expectSame(t, slow.mustReadMessages(1), last)
	expectSame(t, quick.mustReadMessages(1), last)
}

// readMessages reads until the connection ends, within a frame most likely.
func (c *raw) readMessages() (ids []relay.MessageID) {
	for {
		id, err := c.readMessage()
		if err != nil {
			return ids
		}
		ids = append(ids, id)
	}
}

func TestAReaderThatStopsIsCutOffAndResumes(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.MaxSocketsPerMecha = 1 })
		alice, bob := r.mustPair()
		deaf := r.mustBeDeaf(bob, "sync_limit=0")
		r.mustSendBig(alice, "bob^test")
		began := time.Now()
		var next *client
		eventually(t, "the relay gives the deaf one up", func() (in bool) {
			var err error
			next, _, err = r.dial(bob, "sync_limit=0") // there is room for one
			return err == nil
		})
		if d := time.Since(began); d > 11*time.Second { // the deadline of a write
			t.Errorf("it was given up after %v", d)
		}
		next.CloseNow()

		got := deaf.readMessages()
		if len(got) == 0 || len(got) == r.bigMessages() {
			t.Fatalf("it was cut after %d messages", len(got))
		}
		eventually(t, "there is room again", func() (in bool) {
			var err error
			next, _, err = r.dial(bob, "sync_limit=1000&since_message_id="+string(got[len(got)-1]))
			return err == nil
		})
		for len(got) < r.bigMessages() {
			got = append(got, next.expect("message").MessageID)
		}
		next.expectNothing()
		expectSame(t, got, r.received(bob))
	})
}

// A reader that is slow but reads keeps its connection: the deadline is of each write, not of the
// whole backlog.
func TestABacklogMayTakeLongerThanTheDeadline(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		const messages = 4
		for range messages {
			r.mustSend(alice, "bob^test", `{"t":"`+strings.Repeat("x", 1<<20-100)+`"}`)
		}
		c := r.mustBeDeaf(bob, "")
		c.SetDeadline(time.Time{})
		began, n := time.Now(), 0
		for buf := make([]byte, 32<<10); n < messages*(4<<20)/3; { // two of them are a write, which has 10 s
			k, err := c.r.Read(buf)
			if err != nil {
				t.Fatalf("cut after %d bytes and %v: %v", n, time.Since(began), err)
			}
			n += k
			time.Sleep(4 * time.Second)
		}
		if d := time.Since(began); d < 10*time.Minute {
			t.Errorf("it took no longer than %v: nothing was tested", d)
		}
	})
}

// A sender that does not read its receipts for a while costs little memory. When it
// reads, it gets every one of them, in the order of the commits, and is live again.
func TestReceiptsWaitInTheStoreForASlowReader(t *testing.T) {
	r := mustServe(t, func(c *ws.Config) { c.WriteTimeout = patience })
	alice, bob := r.mustPair()
	carol := r.mustIssue("carol^test")
	deaf := r.mustBeDeaf(alice, "sync_limit=0&events=receipts")
	detail := strings.Repeat("d", 1000)
	const n = 700 // more than the network holds
	r.mustSendMany(alice, "bob^test", n)
	r.mustSendMany(carol, "bob^test", 100) // whose receipts are not hers
	ids := r.received(bob)
	before := heap()
	var mu sync.Mutex
	var want []string
	r.OnCommit(func(c *relay.Commit) {
		mu.Lock()
		defer mu.Unlock()
		for _, change := range c.Changes {
			if change.New && change.Sender == alice.Mecha.Number {
				want = append(want, fmt.Sprint(change.ID, change.State, change.Status, len(change.Detail)))
			}
		}
	})
	var wg sync.WaitGroup
	for part := range 50 {
		wg.Go(func() {
			for i := part; i < len(ids); i += 50 {
				for word := range 8 {
					a := &relay.Acknowledge{At: time.Now(), Key: bob.Number, ID: ids[i], Status: "seen", ClientTS: clientTS, Detail: detail + fmt.Sprint(word)}
					if word == 7 {
						a.Status, a.Detail = "completed", ""
					}
					if _, err := r.Acknowledge(a); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	if grown := heap() - before; grown > heapBound {
		t.Errorf("the heap has grown by %d KiB", grown>>10)
	}
	next := func() string {
		t.Helper()
		op, text, err := deaf.frame()
		for op == opPing && err == nil {
			op, text, err = deaf.frame()
		}
		if err != nil || op != opText {
			t.Fatalf("got frame %x %.200s, %v", op, text, err)
		}
		var f frame
		if err := json.Unmarshal([]byte(text), &f); err != nil || f.Type != "receipt" {
			t.Fatalf("got %.200s, %v", text, err)
		}
		return fmt.Sprint(f.MessageID, f.State, f.Status, len(f.Detail))
	}
	var got []string
	for range 8 * n {
		got = append(got, next())
	}
	mu.Lock()
	expectSame(t, got, want)
	mu.Unlock()
	last := r.mustSend(alice, "bob^test", `{}`)
	r.mustAck(bob, last, "completed")
	if got, want := next(), fmt.Sprint(last, relay.Acknowledged, "completed", 0); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A recipient reports progress on many sockets, as fast as it may. The sender's sockets
// stay open, and it learns of every end.
func TestAFloodOfProgressEndsNobodysReceipts(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.DeadAfter = time.Hour })
	alice, bob := r.mustPair()
	sender := r.mustDial(alice, "sync_limit=0&events=receipts")
	const messages, sockets = 4, 16
	r.mustSendMany(alice, "bob^test", messages)
	ids := r.received(bob)
	var wg sync.WaitGroup
	for i := range sockets {
		c := r.mustDial(bob, "sync_limit=0&events=acks")
		wg.Go(func() {
			for range scratch.Amount(t, 1, 2) {
				for n := range 200 {
					c.send(fmt.Sprintf(`{"type":"ack","message_id":%q,"status":"processing","detail":"%d of %d","client_ts":%q}`, ids[n%messages], n, i, clientTS))
				}
				for range 200 {
					if f, err := c.next(); err != nil || f.Type != "ack_ok" && f.Code != relay.TooManyAcks {
						t.Errorf("got %+v, %v", f, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		r.mustAck(bob, id, "completed")
	}
	progress := 0
	for done := 0; done < messages; {
		switch f := sender.expect("receipt"); f.Status {
		case "processing":
			progress++
		case "completed":
			done++
		}
	}
	if progress == 0 || progress > messages*100 {
		t.Errorf("%d receipts of progress", progress)
	}
	sender.expectNothing()
}
