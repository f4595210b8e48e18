package ws_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
	"relay/ws"
)

// An ack of a message that is none gets an answer that names it: proof that a
// message has arrived in one piece.
func ackOf(id string) string {
	return `{"type":"ack","message_id":"` + id + `","status":"completed","client_ts":"` + clientTS + `"}`
}

func (c *raw) expectAnswerFor(id string) {
	c.t.Helper()
	if text := c.expectFrame(opText); !strings.Contains(text, `"message_not_found"`) || !strings.Contains(text, `"message_id":"`+id+`"`) {
		c.t.Fatalf("got %s, want an answer for %s", text, id)
	}
}

func TestFramesThatEndTheConnection(t *testing.T) {
	t.Parallel()
	r := mustServe(t, drainLong)
	_, bob := r.mustPair()
	tests := []struct {
		name  string
		bytes string
		code  int
	}{
		{"unmasked text", string(frameHeader(fin|opText, 0, 2)) + "{}", 1002},
		{"unmasked ping", string(frameHeader(fin|opPing, 0, 0)), 1002},
		{"unmasked close", string(frameHeader(fin|opClose, 0, 2)) + closeBody(1000, ""), 1002},
		{"RSV1", masked(fin|rsv1|opText, "{}"), 1002},
		{"RSV2", masked(fin|rsv2|opText, "{}"), 1002},
		{"RSV3", masked(fin|rsv3|opPing, ""), 1002},
		{"reserved opcode 3", masked(fin|3, "{}"), 1002},
		{"reserved opcode 7", masked(fin|7, "{}"), 1002},
		{"reserved control opcode 11", masked(fin|11, ""), 1002},
		{"reserved control opcode 15", masked(fin|15, ""), 1002},
		{"fragmented ping", masked(opPing, "a"), 1002},
		{"fragmented close", masked(opClose, closeBody(1000, "")), 1002},
		{"too long ping", masked(fin|opPing, strings.Repeat("a", 126)), 1002},
		{"too long close", masked(fin|opClose, closeBody(1000, strings.Repeat("a", 124))), 1002},
		{"continuation without a start", masked(fin|opContinuation, "{}"), 1002},
		{"unfinished continuation without a start", masked(opContinuation, "{}"), 1002},
		{"text within a message", masked(opText, "{") + masked(fin|opText, "}"), 1002},
		{"binary within a message", masked(opText, "{") + masked(fin|opBinary, "}"), 1002},
		{"length of 64 bits with the top one", "\x81\xff\x80\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00", 1002},
		{"short length in 16 bits", "\x81\xfe\x00\x02\x00\x00\x00\x00{}", 1002},
		{"short length in 64 bits", "\x81\xff\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00", 1002},
		{"invalid UTF-8", masked(fin|opText, "{\"\xff\"}"), 1007},
		{"overlong UTF-8", masked(fin|opText, "\xc0\xaf"), 1007},
		{"surrogate in UTF-8", masked(fin|opText, "\xed\xa0\x80"), 1007},
		{"cut UTF-8", masked(fin|opText, "\xe2\x82"), 1007},
		{"invalid UTF-8 in fragments", masked(opText, "\xe2\x82") + masked(fin|opContinuation, "{"), 1007},
		{"65537 bytes", masked(fin|opText, strings.Repeat(" ", 65537)), 1009},
		{"65537 bytes in fragments", masked(opText, strings.Repeat(" ", 65536)) + masked(fin|opContinuation, " "), 1009},
		{"announced to be huge", "\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", 1009},
		{"grown to be huge", masked(opText, "{") + "\x80\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", 1009},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := r.mustUpgrade(bob, "")
			c.t = t
			c.mustWrite(test.bytes)
			body := c.expectFrame(opClose)
			if got := int(body[0])<<8 | int(body[1]); got != test.code || len(body) == 2 {
				t.Fatalf("got close %d %q, want %d with a reason", got, body[2:], test.code)
			}
			c.mustWrite(masked(fin|opClose, body)) // and the relay ends the connection
			c.CloseWrite()
			c.expectEnd()
		})
	}
}

// The peer continues sending for a while, as one does that has not read yet. The
// close frame must arrive in spite of unread frames behind it.
func TestTheCloseFrameArrivesThoughThePeerGoesOnSending(t *testing.T) {
	t.Parallel()
	r := mustServe(t, drainLong)
	_, bob := r.mustPair()
	for range 5 {
		c := r.mustUpgrade(bob, "")
		big := strings.Repeat("x", 4<<20)
		if _, err := io.WriteString(c, string(frameHeader(fin|opText, 0x80, len(big)))+"\x00\x00\x00\x00"+big); err != nil {
			t.Fatal(err) // it was not taken off our hands
		}
		if body := c.expectFrame(opClose); body[:2] != closeBody(1009, "") {
			t.Fatalf("got %q", body)
		}
		c.CloseWrite()
		c.expectEnd()
	}
}

// A peer that is told of its fault sees the end at once. If it never closes, it
// does not hold the relay up for more than its drain.
func TestTheDrainEnds(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.MaxSocketsPerMecha = 1 })
		_, bob := r.mustPair()
		c := r.mustUpgrade(bob, "")
		began := time.Now()
		c.mustWrite(masked(fin|3, ""))
		c.expectClose(1002)
		for range 2 { // it is still there, and drains
			time.Sleep(300 * time.Millisecond)
			c.mustWrite("more")
			r.expectRefused(bob, "", 429, relay.TooManySockets)
		}
		eventually(t, "its place is free", func() bool { _, _, err := r.dial(bob, ""); return err == nil })
		if d := time.Since(began); d < time.Second || d > 2*time.Second {
			t.Errorf("the relay waited %v", d)
		}
	})
}

func TestFragmentsMakeOneMessage(t *testing.T) {
	r := mustServe(t)
	_, bob := r.mustPair()
	c := r.mustUpgrade(bob, "")
	text := ackOf("é")
	c.mustWrite(masked(opText, text[:10]), masked(opContinuation, ""), masked(opContinuation, text[10:11]), masked(fin|opContinuation, text[11:]))
	c.expectAnswerFor("é")
	c.mustWrite(masked(opText, ""), masked(opContinuation, ""), masked(fin|opContinuation, text))
	c.expectAnswerFor("é")

	for i := range len(text) { // even within a character
		c.mustWrite(masked([]int{opText, opContinuation}[min(i, 1)], text[i:i+1]))
		c.mustWrite(masked(fin|opPing, "")) // control frames may come between
		c.expectFrame(opPong)
		c.mustWrite(masked(fin|opPong, "unasked"))
	}
	c.mustWrite(masked(fin|opContinuation, ""))
	c.expectAnswerFor("é")
	c.expectAlive()
	c.mustWrite(masked(fin|opContinuation, "")) // that one was over
	c.expectClose(1002)
}

func TestACloseBetweenFragmentsCloses(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	c := r.mustUpgrade(bob, "")
	c.mustWrite(masked(opText, "{"), masked(fin|opClose, closeBody(1000, "")))
	c.expectClose(1000)
}

func TestMessagesOfExactly64KiBAreTaken(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	c := r.mustUpgrade(bob, "")
	text := ackOf("x")
	text += strings.Repeat(" ", 65536-len(text))
	c.mustWrite(masked(fin|opText, text))
	c.expectAnswerFor("x")
	// Control frames between the fragments do not count.
	c.mustWrite(masked(opText, text), masked(fin|opPing, strings.Repeat("p", 125)), masked(fin|opContinuation, ""))
	if p := c.expectFrame(opPong); len(p) != 125 {
		t.Fatalf("pong %q", p)
	}
	c.expectAnswerFor("x")
}

func TestPingsAreAnsweredWithTheirPayload(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	c := r.mustUpgrade(bob, "")
	for _, payload := range []string{"", "a", "\x00\xff", strings.Repeat("z", 125)} {
		c.mustWrite(masked(fin|opPing, payload))
		if got := c.expectFrame(opPong); got != payload {
			t.Fatalf("pong %q, want %q", got, payload)
		}
	}
	// A few at once are answered each and in order; of very many, the last at the latest.
	few := ""
	for i := range 10 {
		few += masked(fin|opPing, strings.Repeat("p", i*12))
	}
	c.mustWrite(few)
	for i := range 10 {
		if got := c.expectFrame(opPong); len(got) != i*12 {
			t.Fatalf("pong %q, want %d bytes", got, i*12)
		}
	}
	for range 1000 {
		c.mustWrite(masked(fin|opPing, "more"))
	}
	c.mustWrite(masked(fin|opPing, "last"))
	for range 1001 {
		if c.expectFrame(opPong) == "last" {
			return
		}
	}
	t.Fatal("the last ping was not answered")
}

func TestFramesInTheSegmentOfTheHandshakeAreNotLost(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	whole := masked(fin|opText, ackOf("one")) + masked(fin|opPing, "early") + masked(fin|opText, ackOf("two"))
	for _, split := range []int{1, 5, 40, len(whole) / 2, len(whole)} {
		c := r.mustConnect()
		c.mustWrite(handshake(bob, ""), whole[:split])
		c.expectSwitch()
		c.mustWrite(whole[split:])
		texts, pong := "", false
		for range 3 {
			op, payload, err := c.frame()
			if err != nil {
				t.Fatal(err)
			}
			if op == opPong {
				pong = payload == "early"
			} else {
				texts += payload
			}
		}
		if !pong || !strings.Contains(texts, `"one"`) || strings.Index(texts, `"two"`) < strings.Index(texts, `"one"`) {
			t.Fatalf("split at %d: got %s, pong %v", split, texts, pong)
		}
	}
	// More than any buffer.
	c := r.mustConnect()
	text := ackOf("big")
	c.mustWrite(handshake(bob, "")+masked(fin|opText, text+strings.Repeat(" ", 60000)), masked(fin|opClose, closeBody(1000, "")))
	c.expectSwitch()
	for op := opText; op != opClose; { // the answer may come, or may not: it has left
		var err error
		if op, _, err = c.frame(); err != nil {
			t.Fatal(err)
		}
	}
}

// A client that sends and does not read is not read either: its answers wait
// in a bounded place, and none is lost.
func TestAnswersWaitForASlowReader(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.WriteTimeout, c.PingEvery = patience, time.Hour })
	_, bob := r.mustPair()
	c := r.mustUpgrade(bob, "")
	n := scratch.Amount(t, 6_000, 20_000) // far more than may be owed, and than the network holds unread
	sent := make(chan error, 1)
	go func() {
		one := masked(fin|opText, ackOf("msg_"+strings.Repeat("0", 1000)))
		for range n {
			if _, err := io.WriteString(c, one); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range n {
		if text := c.expectFrame(opText); !strings.Contains(text, string(relay.MessageNotFound)) {
			t.Fatalf("got %s", text)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	c.expectAlive()
}
