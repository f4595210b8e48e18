package ws_test

import (
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// verdict is what RFC 6455 and PROTOCOL §4 make of a client's bytes.
type verdict struct {
	echoes []string // of whole messages, each with its opcode before it
	pongs  []string
	// codes are the close codes of which one must come; 0: none, the bytes end
	// too soon. There are several where a reader may see one fault before another.
	codes    []int
	boundary bool // the bytes end where a frame does, and nothing is wrong
}

// judge reads a client's bytes the slow and simple way, one frame after the other.
func judge(in []byte) (v verdict) {
	var message []byte
	op := -1 // of the message under way
	early := func(codes ...int) verdict {
		if op == opText && !beginsUTF8(message) {
			codes = append(codes, 1007)
		}
		v.codes = codes
		return v
	}
	for {
		v.boundary = len(in) == 0
		if len(in) < 2 {
			return early(0)
		}
		h, codes := judgeHeader(in, op >= 0, len(message))
		if h.size > len(in) {
			return early(append(codes, 0)...)
		}
		if len(codes) > 0 {
			return early(codes...)
		}
		body := unmask(in[h.size-4:h.size], in[h.size:min(len(in), h.size+h.length)])
		whole := len(body) == h.length
		switch {
		case h.op == opPing && whole:
			v.pongs = append(v.pongs, string(body))
		case h.op == opClose && whole:
			return early(judgeClose(body)...)
		case h.op < opClose:
			if op < 0 {
				op = h.op
			}
			message = append(message, body...)
		}
		if !whole {
			return early(0)
		}
		in = in[h.size+h.length:]
		if h.op < opClose && h.fin {
			if op == opText && !utf8.Valid(message) {
				v.codes = []int{1007}
				return v
			}
			v.echoes, message, op = append(v.echoes, string(rune(op))+string(message)), nil, -1
		}
	}
}

type judged struct {
	op, size, length int
	fin              bool
}

// judgeHeader wants two bytes at least. A fault of these may be told before the rest has come.
func judgeHeader(in []byte, within bool, before int) (h judged, codes []int) {
	h = judged{op: int(in[0] & 15), fin: in[0]&fin != 0, size: 2, length: int(in[1] & 127)}
	form := h.length
	h.size += map[int]int{126: 2, 127: 8}[form]
	if in[1]&0x80 != 0 {
		h.size += 4
	}
	control := h.op >= opClose
	wrong := in[0]&(rsv1|rsv2|rsv3) != 0 || h.op > opPong || h.op > opBinary && !control || in[1]&0x80 == 0 ||
		control && (!h.fin || form > 125) || h.op == opContinuation && !within || (h.op == opText || h.op == opBinary) && within
	if len(in) >= h.size && form > 125 {
		n := uint64(0)
		for _, b := range in[2 : 2+map[int]int{126: 2, 127: 8}[form]] {
			n = n<<8 | uint64(b)
		}
		wrong = wrong || n < 126 || form == 127 && (n <= 0xffff || n>>63 == 1)
		h.length = int(n &^ (1 << 63))
	}
	if wrong {
		codes = append(codes, 1002)
	}
	if !control && h.length > 65536-before {
		codes = append(codes, 1009)
	}
	return h, codes
}

func judgeClose(body []byte) (codes []int) {
	if len(body) == 0 {
		return []int{1000}
	}
	code := 0
	if len(body) > 1 {
		code = int(binary.BigEndian.Uint16(body))
	}
	if legal := code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006 || code >= 3000 && code <= 4999; !legal {
		codes = append(codes, 1002)
	}
	if len(body) > 2 && !utf8.Valid(body[2:]) {
		codes = append(codes, 1007)
	}
	if codes == nil {
		codes = []int{code}
	}
	return codes
}

func unmask(mask, body []byte) []byte {
	b := make([]byte, len(body))
	for i := range body {
		b[i] = body[i] ^ mask[i%4]
	}
	return b
}

// beginsUTF8 reports whether more bytes could make valid UTF-8 of b.
func beginsUTF8(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return !utf8.FullRune(b)
		}
		b = b[n:]
	}
	return true
}

// Whatever bytes a client sends, the relay reads in them what the RFC says:
// every whole message before a fault comes back once and in order, pings are
// answered, and the code of the close frame is the right one.
func FuzzFrames(f *testing.F) {
	r, bob := mustEcho(f)
	for _, seed := range []string{
		"", "\x81", masked(fin|opText, "hello"), masked(fin|opBinary, "\xff\x00"), masked(opText, "\xc3") + masked(fin|opPing, "p") + masked(fin|opContinuation, "\xa9"),
		masked(fin|opText, strings.Repeat("x", 126)), masked(opText, strings.Repeat("x", 300)) + masked(opContinuation, "") + masked(fin|opContinuation, "\xff"),
		masked(fin|opClose, ""), masked(fin|opClose, "\x03"), masked(fin|opClose, closeBody(1000, "bye")) + "x", masked(fin|opClose, closeBody(1005, "\xff")),
		masked(fin|opPing, "a") + masked(fin|opPing, "b") + masked(fin|opPong, "c") + masked(fin|opText, ""), masked(fin|3, ""), masked(fin|rsv1|opText, "a"), masked(opPing, ""),
		string(frameHeader(fin|opText, 0, 1)) + "a", header(fin|opText, 126, 5) + "abcde", header(fin|opText, 127, 1<<63), header(fin|opText, 127, 65537), header(fin|opText, 127, 65536),
		masked(opText, "a") + masked(fin|opText, "b"), masked(fin|opContinuation, "a"), masked(opText, "\xff") + masked(fin|opText, ""), masked(fin|opPing, strings.Repeat("p", 126)),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := r.in(t).mustEchoOn(bob)
		want := judge(in)
		if want.boundary && slices.Equal(want.codes, []int{0}) {
			in, want.codes = append(slices.Clone(in), masked(fin|opClose, "")...), []int{1000}
		}
		go func() { // the relay may answer before it has read all
			_, _ = c.Write(in)
			c.CloseWrite()
		}()
		got := c.everything()
		switch {
		case !slices.Contains(want.codes, got.code):
			t.Fatalf("close %d, want one of %v; %x", got.code, want.codes, in)
		case got.code != 0 && !slices.Equal(got.echoes, want.echoes), len(got.echoes) > len(want.echoes) || !slices.Equal(got.echoes, want.echoes[:len(got.echoes)]):
			t.Fatalf("got %.200q, want %.200q; %x", got.echoes, want.echoes, in)
		case !inOrder(got.pongs, want.pongs), got.code != 0 && len(want.pongs) > 0 && (len(got.pongs) == 0 || got.pongs[len(got.pongs)-1] != want.pongs[len(want.pongs)-1]):
			t.Fatalf("pongs %.200q, want %.200q; %x", got.pongs, want.pongs, in)
		}
	})
}

type heard struct {
	echoes, pongs []string
	code          int
}

// everything reads what the relay sends until it ends the connection. Nothing
// may follow a close frame; only without one may a frame be cut.
func (c *raw) everything() (h heard) {
	c.t.Helper()
	for {
		op, body, err := c.frame()
		switch {
		case err != nil:
			if h.code == 0 && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "reset") {
				c.t.Fatalf("after %+v: %v", h, err)
			}
			return h
		case h.code != 0:
			c.t.Fatalf("frame %x %q after close %d", op, body, h.code)
		case op == opClose:
			h.code = int(binary.BigEndian.Uint16([]byte(body)))
			if !utf8.ValidString(body[2:]) {
				c.t.Fatalf("reason %q", body[2:])
			}
		case op == opPong:
			h.pongs = append(h.pongs, body)
		default:
			h.echoes = append(h.echoes, string(rune(op))+body)
		}
	}
}

// inOrder reports whether got is want with some left out.
func inOrder(got, want []string) bool {
	for _, w := range want {
		if len(got) > 0 && got[0] == w {
			got = got[1:]
		}
	}
	return len(got) == 0
}
