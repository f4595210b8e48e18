package ws_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
)

// sendOf is a frame that sends a payload to a Mecha; the payload begins with the marks.
func sendOf(ref string, to relay.Address, socket, n, size int) string {
	return fmt.Sprintf(`{"type":"send","ref":%q,"message":{"to":%q,"payload":{"socket":%d,"n":%d,"text":%q}}}`, ref, to, socket, n, strings.Repeat("x", size))
}

// marks returns the marks of a payload.
type marks struct{ Socket, N int }

// payloads returns the marks of what has come in for a Mecha, in commit order, with its id.
func (r *testRelay) payloads(k relay.IssuedKey) (all []marks, ids []relay.MessageID) {
	r.t.Helper()
	ids = r.received(k)
	for _, id := range ids {
		body, err := r.Payload(ctx, k.Mecha.Number, id)
		if err != nil {
			r.t.Fatal(err)
		}
		var m marks
		if err := json.Unmarshal(body, &m); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all, ids
}

// The messages of a connection are committed in the order in which they came, however
// many are under way, of whatever size, and on however many sockets next to each other.
func TestPipelinedSendsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	withAndWithoutTLS(t, func(t *testing.T, r *testRelay) {
		alice, bob := r.mustPair()
		const sockets = 4
		each := scratch.Amount(t, 100, 200)
		var wg sync.WaitGroup
		ids := make([]map[string]relay.MessageID, sockets)
		for s := range sockets {
			from := []relay.IssuedKey{alice, r.mustIssue(relay.Address(fmt.Sprintf("s%d^test", s)))}[s%2]
			c := r.mustDial(from, "sync_limit=0")
			wg.Go(func() {
				for n := range each {
					size := rand.IntN(200)
					if n%50 == 7 {
						size = 10_000 << rand.IntN(6) // up to 320 KB
					}
					c.send(sendOf(fmt.Sprint(n), "bob^test", s, n, size))
				}
			})
			ids[s] = map[string]relay.MessageID{}
			wg.Go(func() {
				for range each {
					f := c.expect("sent")
					ids[s][f.Ref] = f.MessageID
				}
			})
		}
		wg.Wait()
		all, kept := r.payloads(bob)
		next := make([]int, sockets)
		for i, m := range all {
			if m.N != next[m.Socket] {
				t.Fatalf("message %d is %d of socket %d, want %d", i, m.N, m.Socket, next[m.Socket])
			}
			if id := ids[m.Socket][fmt.Sprint(m.N)]; id != kept[i] {
				t.Fatalf("%d of socket %d is %s, but was answered as %s", m.N, m.Socket, kept[i], id)
			}
			next[m.Socket]++
		}
		if len(all) != sockets*each {
			t.Errorf("%d messages are stored, want %d", len(all), sockets*each)
		}
	})
}

// A frame that sends may be as large as a request's body, in any pieces; another frame,
// and one that is larger, may not.
func TestTheSizeOfAFrameThatSends(t *testing.T) {
	t.Parallel()
	r := mustServe(t, drainLong)
	alice, bob := r.mustPair()
	frame := func(total int) string {
		short := sendOf("r", "bob^test", 0, 0, 0)
		return sendOf("r", "bob^test", 0, 0, total-len(short))
	}
	expectSent := func(c *raw) {
		t.Helper()
		if f := c.expectFrame(opText); !strings.HasPrefix(f, `{"type":"sent","ref":"r",`) {
			t.Errorf("got %s", f)
		}
	}
	c := r.mustUpgrade(alice, "sync_limit=0")
	for _, total := range []int{200, 4096, 16 << 10, 16<<10 + 1, 64 << 10, 64<<10 + 1, 200_000, 1 << 20} {
		text := frame(total)
		c.mustWrite(masked(fin|opText, text))
		expectSent(c)
		c.mustWrite(masked(fin|opBinary, text))
		expectSent(c)
		parts := masked(opText, text[:total/3]) + masked(opContinuation, "") + masked(fin|opPing, "p") + masked(fin|opContinuation, text[total/3:])
		for len(parts) > 0 { // the reader stops and continues anywhere
			n := min(len(parts), 1+rand.IntN(100_000))
			c.mustWrite(parts[:n])
			parts = parts[n:]
		}
		c.expectFrame(opPong)
		expectSent(c)
	}
	for name, text := range map[string]string{
		"larger than a body":              masked(fin|opText, frame(1<<20+1)),
		"announced to be larger":          string(frameHeader(fin|opText, 0x80, 1<<20+1)) + "1234",
		"grown to be larger":              masked(opText, frame(1<<20)) + masked(fin|opContinuation, " "),
		"a large ack":                     masked(fin|opText, ackOf("a")+strings.Repeat(" ", 64<<10)),
		"a large frame of another type":   masked(fin|opText, strings.Replace(frame(70_000), `"send"`, `"post"`, 1)),
		"a large frame of no type":        masked(fin|opText, strings.Replace(frame(70_000), `"type":"send",`, "", 1)),
		"a large text that is no object":  masked(fin|opText, `"`+strings.Repeat("x", 70_000)+`"`),
		"a large text, faulty at the end": masked(fin|opText, strings.Repeat("x", 70_000)+"{"),
	} {
		c := r.mustUpgrade(alice, "sync_limit=0")
		c.mustWrite(text)
		if body := c.expectFrame(opClose); body[:2] != closeBody(1009, "") {
			t.Errorf("%s: closed with %q", name, body)
		}
	}
	c = r.mustUpgrade(alice, "sync_limit=0")
	c.mustWrite(masked(fin|opText, frame(70_000)+"}"), masked(fin|opText, strings.Replace(frame(70_000), "xx", `\u12`, 1)))
	for range 2 {
		if f := c.expectFrame(opText); !strings.Contains(f, `"invalid_json"`) || !strings.Contains(f, `"ref":"r"`) {
			t.Errorf("got %s", f)
		}
	}
	c.expectAlive()
	if got := len(r.received(bob)); got != 24 {
		t.Errorf("%d messages are stored, want 24", got)
	}
}

// Messages that the client sent before it saw that the relay stops are accepted, all that
// came and in their order, but no longer answered.
func TestSendsWhileTheRelayStops(t *testing.T) {
	t.Parallel()
	r := mustServe(t, drainLong)
	alice, bob := r.mustPair()
	c := r.mustUpgrade(alice, "sync_limit=0")
	const n = 700 // more than may be due at once
	sends := ""
	for i := range n {
		sends += masked(fin|opText, sendOf(fmt.Sprint(i), "bob^test", 0, i, i%10*100))
	}
	closed := make(chan struct{})
	go func() { r.hub.Close(ctx); close(closed) }()
	body := c.expectFrame(opClose)
	c.mustWrite(sends, masked(fin|opClose, body))
	c.expectEnd()
	<-closed
	eventually(t, "all messages are stored", func() bool { return len(r.received(bob)) == n }) // the store does so before it closes
	all, _ := r.payloads(bob)
	for i, m := range all {
		if m.N != i {
			t.Fatalf("message %d is %d", i, m.N)
		}
	}
}

// A server that stops in the midst of it has every message that it answered for, and of
// each socket those that came first.
func TestNoAnsweredSendIsLostWhenTheRelayStops(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	bob := r.mustIssue("bob^test")
	const sockets = 4
	var wg sync.WaitGroup
	answered := make([]int, sockets)
	enough := make(chan struct{}, sockets)
	for s := range sockets {
		c := r.mustUpgrade(r.mustIssue(relay.Address(fmt.Sprintf("s%d^test", s))), "sync_limit=0")
		wg.Go(func() {
			for n := range 2000 { // bounded: the relay may be much slower to stop than a client to send
				if _, err := c.Write([]byte(masked(fin|opText, sendOf(fmt.Sprint(n), "bob^test", s, n, 100)))); err != nil {
					return
				}
			}
		})
		wg.Go(func() {
			for {
				op, text, err := c.frame()
				if err != nil || op == opClose {
					c.Close()
					return
				}
				var f frame
				if err := json.Unmarshal([]byte(text), &f); err != nil || f.Type != "sent" || f.Ref != fmt.Sprint(answered[s]) {
					t.Errorf("got %s, want the answer to %d", text, answered[s])
					return
				}
				if answered[s]++; answered[s] == scratch.Amount(t, 20, 100) {
					enough <- struct{}{}
				}
			}
		})
	}
	for range sockets {
		<-enough
	}
	r.hub.Close(ctx)
	wg.Wait()
	all, _ := r.payloads(bob)
	next := make([]int, sockets)
	for _, m := range all {
		if m.N != next[m.Socket] {
			t.Fatalf("%d of socket %d came, want %d", m.N, m.Socket, next[m.Socket])
		}
		next[m.Socket]++
	}
	for s := range sockets {
		if next[s] < answered[s] {
			t.Errorf("socket %d got %d answers, but %d messages are stored", s, answered[s], next[s])
		}
	}
}

// Sends and acks of one socket go by their own ways, and each gets its answer.
func TestSendsAndAcksOfOneSocket(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 200)
	ids := r.received(bob)
	c := r.mustDial(bob, "sync_limit=0&events=acks")
	go func() {
		for i, id := range ids {
			c.ack(id, "completed")
			c.send(sendOf(fmt.Sprint(i), "alice^test", 0, i, 10))
		}
	}()
	acks, sends := 0, 0
	for range 2 * len(ids) {
		switch f, err := c.next(); {
		case err != nil:
			t.Fatal(err)
		case f.Type == "ack_ok" && f.MessageID == ids[acks]:
			acks++
		case f.Type == "sent" && f.Ref == fmt.Sprint(sends):
			sends++
		default:
			t.Fatalf("got %+v, want the answer to ack %d or send %d", f, acks, sends)
		}
	}
	c.expectNothing()
}
