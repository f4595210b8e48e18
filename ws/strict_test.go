package ws_test

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"relay/db/relay"
	"relay/db/scratch"
)

// A fault is a piece of a conversation that must end it. Whatever stands after
// the fault is not looked at, so each is tried with something behind it as well.
type fault struct {
	name  string
	bytes string
	code  int
}

// expectFaults opens a connection for each, all at the same time, and wants the
// close code with a reason, no other frame, and an orderly end.
func expectFaults(t *testing.T, faults []fault) {
	t.Helper()
	r, bob := mustEcho(t)
	for _, f := range faults {
		for _, behind := range []string{"", strings.Repeat("\xff", 300), masked(fin|opText, "behind")}[:scratch.Amount(t, 2, 3)] {
			c := r.mustEchoOn(bob)
			c.mustWrite(f.bytes + behind)
			if op, body, err := c.frame(); err != nil || op != opClose || len(body) < 3 ||
				int(binary.BigEndian.Uint16([]byte(body))) != f.code || !utf8.ValidString(body[2:]) {
				t.Errorf("%s, with %d bytes behind: got frame %x %.80q, %v, want close %d", f.name, len(behind), op, body, err, f.code)
			}
			c.expectEnd()
			c.Close()
		}
	}
}

var all16 = []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}

// RFC 6455 §5.2: every first byte that a frame may not have, at the start of a
// message and within one.
func TestFirstBytes(t *testing.T) {
	t.Parallel()
	var faults []fault
	for _, op := range all16 {
		data, control := op <= opBinary, op >= opClose && op <= opPong
		body := ""
		if op == opClose {
			body = closeBody(1000, "")
		}
		for _, rsv := range []int{0, rsv1, rsv2, rsv3, rsv1 | rsv2 | rsv3} {
			for _, final := range []int{0, fin} {
				first := final | rsv | op
				name := fmt.Sprintf("first byte %02x", first)
				reserved := rsv != 0 || !data && !control || control && final == 0
				if reserved || op == opContinuation {
					faults = append(faults, fault{name, masked(first, body), 1002})
				}
				if reserved || op == opText || op == opBinary {
					faults = append(faults, fault{name + " within a message", masked(opText, "a") + masked(first, body), 1002})
				}
			}
		}
	}
	expectFaults(t, faults)
}

// RFC 6455 §5.1, §5.2: a frame of a client is masked, whatever its kind and length.
func TestUnmaskedFrames(t *testing.T) {
	t.Parallel()
	var faults []fault
	for _, op := range []int{opText, opBinary, opClose, opPing, opPong} {
		for _, n := range []int{0, 2, 125} {
			faults = append(faults, fault{fmt.Sprintf("unmasked %x of %d bytes", op, n), string(frameHeader(fin|op, 0, n)) + strings.Repeat("\x03\xe8", n/2+1)[:n], 1002})
		}
	}
	for _, n := range []int{126, 65535, 65536, 1 << 20} {
		faults = append(faults, fault{fmt.Sprintf("unmasked text of %d bytes", n), string(frameHeader(fin|opText, 0, n)), 1002})
	}
	faults = append(faults, fault{"unmasked continuation", masked(opText, "a") + string(frameHeader(fin|opContinuation, 0, 1)) + "b", 1002})
	expectFaults(t, faults)
}

// header returns the header of a masked text frame, its length in the given form.
func header(first, form int, n uint64) string {
	b := []byte{byte(first), byte(0x80 | form)}
	if form == 126 {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	} else {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return string(b) + "\x00\x00\x00\x00"
}

// RFC 6455 §5.2: the minimal number of bytes must be used, the top bit of 64 is 0.
func TestLengths(t *testing.T) {
	t.Parallel()
	var faults []fault
	text := func(n uint64) string { return strings.Repeat("x", int(n)) }
	for _, n := range []uint64{0, 1, 124, 125} {
		faults = append(faults, fault{fmt.Sprintf("%d in 16 bits", n), header(fin|opText, 126, n) + text(n), 1002})
	}
	for _, n := range []uint64{0, 125, 126, 65535} {
		faults = append(faults, fault{fmt.Sprintf("%d in 64 bits", n), header(fin|opText, 127, n) + text(n), 1002})
	}
	for _, n := range []uint64{1 << 63, 1<<63 + 1, 1<<64 - 1, 1<<63 | 126} {
		faults = append(faults, fault{fmt.Sprintf("length %x", n), header(fin|opText, 127, n), 1002})
	}
	for _, n := range []uint64{65537, 1 << 31, 1 << 32, 1<<32 + 5, 1<<63 - 1} {
		faults = append(faults, fault{fmt.Sprintf("length %x", n), header(fin|opText, 127, n), 1009},
			fault{fmt.Sprintf("continuation of length %x", n), masked(opText, "x") + header(fin|opContinuation, 127, n), 1009})
	}
	// However a control frame writes it, and whether or not its payload ever comes.
	for _, op := range []int{opClose, opPing, opPong} {
		for _, h := range []string{header(fin|op, 126, 2), header(fin|op, 126, 126), header(fin|op, 127, 2), header(fin|op, 127, 1<<40)} {
			faults = append(faults, fault{fmt.Sprintf("% x", h), h, 1002})
		}
	}
	// Fragments of all sizes count together.
	for _, size := range []int{1 << 10, 40000, 65535} {
		parts := masked(opText, text(uint64(size)))
		for sum := 2 * size; sum <= 65536; sum += size {
			parts += masked(opContinuation, text(uint64(size)))
		}
		faults = append(faults, fault{fmt.Sprintf("fragments of %d", size), parts + masked(opContinuation, text(uint64(size))), 1009})
	}
	expectFaults(t, faults)
}

// RFC 6455 §5.4: control frames may stand between fragments, data frames not.
func TestControlFramesBetweenFragments(t *testing.T) {
	r, bob := mustEcho(t)
	c := r.mustEchoOn(bob)
	for _, op := range []int{opText, opBinary} {
		for parts := 2; parts < 7; parts++ {
			want := ""
			for i := range parts {
				part := strings.Repeat(string(rune('a'+i)), i*50)
				want += part
				first := opContinuation
				if i == 0 {
					first = op
				}
				if i == parts-1 {
					first |= fin
				}
				c.mustWrite(masked(fin|opPing, part[:min(len(part), 125)]), masked(fin|opPong, ""), masked(first, part))
				if got := c.expectFrame(opPong); got != part[:min(len(part), 125)] {
					t.Fatalf("pong %q", got)
				}
			}
			c.expectEcho(op, want)
		}
	}
}

// RFC 6455 §8.1. The message is refused at its end at the latest; a reader that
// sees the fault sooner may say so sooner.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	var faults []fault
	for _, bad := range []string{
		"\x80", "\xbf", "\x80\xbf\x80\xbf", "\xc0", "\xc1\xbf", "\xc0\x80", "\xc3", "\xc3(", "\xe2\x82", "\xe2(\xa1", "\xe2\x82(", "\xe0\x80\xaf", "\xe0\x9f\xbf",
		"\xed\xa0\x80", "\xed\xaf\xbf", "\xed\xb0\x80", "\xed\xbf\xbf", "\xed\xa0\x80\xed\xb0\x80", "\xf0\x80\x80\xaf", "\xf0\x8f\xbf\xbf", "\xf0\x9f\x98", "\xf0(\x8c\xbc",
		"\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xf8\x88\x80\x80\x80", "\xfc\x84\x80\x80\x80\x80", "\xfe", "\xff", "\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80\x65\x64\x69\x74\x65\x64",
	} {
		around := "κό" + bad + "σμε"
		faults = append(faults, fault{fmt.Sprintf("%x", bad), masked(fin|opText, bad), 1007}, fault{fmt.Sprintf("%x among others", bad), masked(fin|opText, around), 1007})
		for i := range len(bad) + 1 {
			faults = append(faults, fault{fmt.Sprintf("%x, split at %d", bad, i), masked(opText, bad[:i]) + masked(opContinuation, "") + masked(fin|opContinuation, bad[i:]), 1007})
		}
	}
	expectFaults(t, faults)
}

// A character may be split over fragments, and a frame over segments, at any byte.
func TestTextSplitAnywhere(t *testing.T) {
	r, bob := mustEcho(t)
	c := r.mustEchoOn(bob)
	c.Conn.(*net.TCPConn).SetNoDelay(true)
	text := "a\u00e9\u0800\uffff\U00010000\U0010ffff\ufeff\x00z"
	for i := range len(text) + 1 {
		for k := i; k <= len(text); k++ {
			c.mustWrite(masked(opText, text[:i]), masked(opContinuation, text[i:k]), masked(fin|opContinuation, text[k:]))
			c.expectEcho(opText, text)
		}
	}
	// The pong tells that the relay has read the bytes before the split.
	whole := masked(opText, text) + masked(fin|opContinuation, text)
	for i := range len(whole) + 1 {
		c.mustWrite(masked(fin|opPing, "") + whole[:i])
		c.expectFrame(opPong)
		c.mustWrite(whole[i:])
		c.expectEcho(opText, text+text)
	}
	// One byte a segment, and many messages in one.
	for i := range len(whole) {
		c.mustWrite(whole[i : i+1])
	}
	c.expectEcho(opText, text+text)
	c.mustWrite(strings.Repeat(whole, 100))
	for range 100 {
		c.expectEcho(opText, text+text)
	}
	// A character that is cut in one message does not continue in the next.
	c.mustWrite(masked(fin|opText, "\xf0\x9f"), masked(fin|opText, "\x98\x80"))
	c.expectClose(1007)
}

// Binary messages are any bytes.
func TestBinaryIsNotText(t *testing.T) {
	r, bob := mustEcho(t)
	c := r.mustEchoOn(bob)
	for b := range 256 {
		c.mustWrite(masked(opBinary, string([]byte{byte(b)})), masked(fin|opContinuation, "\xff"))
		c.expectEcho(opBinary, string([]byte{byte(b), 0xff}))
	}
}

// Many clients send their JSON as bytes. The relay reads it as it reads text, and
// answers in text; bytes that are not JSON get an error, and the connection stays.
func TestABinaryFrameIsReadLikeText(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustUpgrade(bob, "sync_limit=0&events=acks")
	for _, split := range []bool{false, true} {
		id := string(r.mustSend(alice, "bob^test", `{}`))
		c.expectFrame(opText)
		text := ackOf(id)
		if split {
			c.mustWrite(masked(opBinary, text[:9]), masked(fin|opPing, "p"), masked(fin|opContinuation, text[9:]))
			c.expectFrame(opPong)
		} else {
			c.mustWrite(masked(fin|opBinary, text))
		}
		if answer := c.expectFrame(opText); !strings.Contains(answer, `"ack_ok"`) || !strings.Contains(answer, id) {
			t.Errorf("got %s", answer)
		}
	}
	for _, bytes := range []string{"", "\xff", "{\"type\":\"\xff\"}", "{\x00}", "bytes"} {
		c.mustWrite(masked(fin|opBinary, bytes))
		if answer := c.expectFrame(opText); !strings.Contains(answer, string(relay.InvalidJSON)) {
			t.Errorf("%q: got %s", bytes, answer)
		}
	}
	c.expectAlive()
}

// RFC 6455 §5.3: the masking key is the client's to choose, and of four bytes
// whatever the length.
func TestMasks(t *testing.T) {
	r, bob := mustEcho(t)
	c := r.mustEchoOn(bob)
	for _, mask := range []string{"\x00\x00\x00\x00", "\xff\xff\xff\xff", "\x01\x02\x04\x08", "relay"[:4]} {
		for n := range 40 {
			text := strings.Repeat("0123456789", 4)[:n]
			b := frameHeader(fin|opText, 0x80, n)
			b = append(b, mask...)
			for i := range n {
				b = append(b, text[i]^mask[i%4])
			}
			c.mustWrite(string(b))
			c.expectEcho(opText, text)
		}
	}
}

// RFC 6455 §7.4: every code that may be sent is answered with itself, every
// other one is a fault. The list comes from §7.4.1 and of the IANA registry.
func TestEveryCloseCode(t *testing.T) {
	t.Parallel()
	r, bob := mustEcho(t)
	codes := []int{0, 1, 255, 256, 998, 999, 1016, 1099, 1100, 1999, 2000, 2999, 3000, 3001, 3999, 4000, 4001, 4998, 4999, 5000, 5001, 9999, 32767, 32768, 65534, 65535}
	for code := 1000; code <= 1015; code++ {
		codes = append(codes, code)
	}
	for _, code := range codes {
		want := code
		if legal := code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006 || code >= 3000 && code <= 4999; !legal {
			want = 1002
		}
		for _, reason := range []string{"", "why", strings.Repeat("é", 61), strings.Repeat("x", 123)} {
			c := r.mustEchoOn(bob)
			c.mustWrite(masked(fin|opClose, closeBody(code, reason)))
			body := c.expectFrame(opClose)
			if body[:2] != closeBody(want, "") {
				t.Errorf("%d %q: got close %q, want %d", code, reason, body, want)
			}
			c.expectEnd()
			c.Close()
		}
	}
}

// RFC 6455 §5.5.1: nothing is sent after a close frame, and nothing that comes
// after one is looked at.
func TestNothingAfterAClose(t *testing.T) {
	t.Parallel()
	r, bob := mustEcho(t)
	for _, behind := range []string{masked(fin|opText, "more"), masked(fin|opPing, "p"), masked(fin|opClose, closeBody(3000, "")), "\xff\xff\xff\xff", strings.Repeat(masked(fin|opText, "more"), 1000)} {
		for _, body := range []string{"", closeBody(1000, ""), closeBody(4321, "bye")} {
			c := r.mustEchoOn(bob)
			c.mustWrite(masked(fin|opClose, body) + behind)
			want := body
			if want == "" {
				want = closeBody(1000, "")
			}
			if got := c.expectFrame(opClose); got[:2] != want[:2] {
				t.Errorf("close %q was answered with %q", body, got)
			}
			if op, payload, err := c.frame(); err == nil {
				t.Errorf("frame %x %q after the close frame", op, payload)
			}
			c.Close()
		}
	}
	// Messages before it are answered before it.
	c := r.mustEchoOn(bob)
	c.mustWrite(strings.Repeat(masked(fin|opText, "before"), 50) + masked(fin|opClose, closeBody(1000, "")))
	for range 50 {
		c.expectEcho(opText, "before")
	}
	c.expectClose(1000)
}
