package ws_test

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

// raw is a connection on which a test says what it likes, byte by byte.
type raw struct {
	net.Conn
	t      testing.TB
	r      *bufio.Reader
	of     *testRelay
	closes map[int]bool // the codes of the close frames that were written
}

const secKey = "dGhlIHNhbXBsZSBub25jZQ==" // of RFC 6455 §1.3

func (r *testRelay) mustConnect() *raw {
	r.t.Helper()
	c, err := wire.Dial(ctx, "tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.tls != nil {
		c = tls.Client(c, r.tls)
	}
	c.SetDeadline(time.Now().Add(patience))
	r.t.Cleanup(func() { c.Close() })
	return &raw{Conn: c, t: r.t, r: bufio.NewReader(c), of: r, closes: map[int]bool{}}
}

// handshake is the text of a request that is right; each edit is "Name: value"
// to set a header, "+Name: value" to add one, "-Name" to leave it out, or "= text" for the request line.
func handshake(k relay.IssuedKey, query string, edits ...string) string {
	line := "GET " + socketPath(k.Mecha.Address, query) + " HTTP/1.1"
	lines := []string{"Host: relay.test", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: " + secKey}
	for name, v := range headers(k) {
		lines = append(lines, name+": "+v[0])
	}
	without := func(name string) (rest []string) {
		for _, l := range lines {
			if !strings.HasPrefix(strings.ToLower(l), strings.ToLower(name)+":") {
				rest = append(rest, l)
			}
		}
		return rest
	}
	for _, e := range edits {
		switch {
		case e[0] == '=':
			line = e[2:]
		case e[0] == '-':
			lines = without(e[1:])
		case e[0] == '+':
			lines = append(lines, e[1:])
		default:
			lines = append(without(e[:strings.Index(e, ":")]), e)
		}
	}
	return line + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// CloseWrite says that nothing more comes from us; over TLS with its own alert.
func (c *raw) CloseWrite() { c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// below is the connection below TLS, if there is TLS.
func (c *raw) below() net.Conn {
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c.Conn
}

// tcp is below for a connection that is real.
func (c *raw) tcp() *net.TCPConn { return c.below().(*net.TCPConn) }

func (c *raw) mustWrite(parts ...string) {
	c.t.Helper()
	c.noteCloses(strings.Join(parts, ""))
	if _, err := io.WriteString(c, strings.Join(parts, "")); err != nil {
		c.t.Fatal(err)
	}
}

func (c *raw) response() *http.Response {
	c.t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *raw) expectSwitch() {
	c.t.Helper()
	resp := c.response()
	if resp.StatusCode != 101 || resp.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" ||
		!strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") || !strings.EqualFold(resp.Header.Get("Connection"), "upgrade") ||
		resp.Header["Sec-Websocket-Extensions"] != nil || resp.Header["Sec-Websocket-Protocol"] != nil {
		c.t.Fatalf("got %d %v", resp.StatusCode, resp.Header)
	}
}

// mustUpgrade is a connection after its handshake, byte by byte.
func (r *testRelay) mustUpgrade(k relay.IssuedKey, query string) *raw {
	r.t.Helper()
	c := r.mustConnect()
	c.mustWrite(handshake(k, query))
	c.expectSwitch()
	return c
}

// Opcodes, and the bits of a frame's first byte.
const (
	opContinuation, opText, opBinary, opClose, opPing, opPong = 0, 1, 2, 8, 9, 10
	fin, rsv1, rsv2, rsv3                                     = 0x80, 0x40, 0x20, 0x10
)

// masked is a frame as a client has to send it.
func masked(first int, payload string) string {
	mask := []byte{0x12, 0x9a, 0xf0, 0x33}
	b := frameHeader(first, 0x80, len(payload))
	b = append(b, mask...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return string(b)
}

func frameHeader(first, maskBit, n int) []byte {
	b := []byte{byte(first)}
	switch {
	case n < 126:
		return append(b, byte(maskBit|n))
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, byte(maskBit|126)), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(b, byte(maskBit|127)), uint64(n))
}

// noteCloses notes the codes of the close frames in a text, as masked writes them.
func (c *raw) noteCloses(text string) {
	for {
		before, after, found := strings.Cut(text, "\x12\x9a\xf0\x33")
		if !found {
			return
		}
		if n := len(before); n >= 2 && before[n-2]&0x0f == opClose && len(after) >= 2 {
			c.closes[int(after[0]^0x12)<<8|int(after[1]^0x9a)] = true
		}
		text = after
	}
}

func closeBody(code int, reason string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(code))) + reason
}

// frame reads one frame, by the rules for what a server sends, and holds it against the
// documents.
func (c *raw) frame() (op int, payload string, err error) {
	op, payload, err = c.anyFrame()
	if err != nil || c.of.record == nil || c.of.echoes {
		return op, payload, err
	}
	if op == opText {
		c.of.holdFrame([]byte(payload))
	}
	if op == opClose && len(payload) >= 2 {
		if code := int(payload[0])<<8 | int(payload[1]); !c.closes[code] { // else it may be the client's own, sent back
			c.of.holdClose(code)
		}
	}
	return op, payload, nil
}

// anyFrame reads one frame.
func (c *raw) anyFrame() (op int, payload string, err error) {
	var head [8]byte
	if _, err := io.ReadFull(c.r, head[:2]); err != nil {
		return 0, "", err
	}
	if head[0]&0xf0 != fin || head[1]&0x80 != 0 {
		return 0, "", fmt.Errorf("a frame that starts with % x", head[:2])
	}
	op = int(head[0] & 0x0f)
	n := uint64(head[1])
	if extra := map[uint64]int{126: 2, 127: 8}[n]; extra > 0 {
		clear(head[:])
		if _, err := io.ReadFull(c.r, head[8-extra:]); err != nil {
			return 0, "", err
		}
		if n = binary.BigEndian.Uint64(head[:]); n < 126 || extra == 8 && n <= 0xffff {
			return 0, "", errors.New("a length that is not the shortest")
		}
	}
	body := make([]byte, n)
	_, err = io.ReadFull(c.r, body)
	return op, string(body), err
}

func (c *raw) expectFrame(op int) string {
	c.t.Helper()
	got, payload, err := c.frame()
	if err != nil || got != op {
		c.t.Fatalf("got frame %x %.100q, %v, want opcode %x", got, payload, err, op)
	}
	return payload
}

// expectClose reads a close frame of the code, and then the end of the connection.
func (c *raw) expectClose(code int) (reason string) {
	c.t.Helper()
	body := c.expectFrame(opClose)
	if len(body) < 2 || int(binary.BigEndian.Uint16([]byte(body))) != code {
		c.t.Fatalf("got close % x %q, want %d", body, body, code)
	}
	c.expectEnd()
	return body[2:]
}

// expectEnd reads the end of the connection: an orderly one, not a reset.
func (c *raw) expectEnd() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); err != nil || len(b) > 0 {
		c.t.Fatalf("got % x, %v after the last frame", b, err)
	}
}

// expectAlive sees that the connection still serves, and has nothing to say before.
func (c *raw) expectAlive() {
	c.t.Helper()
	c.mustWrite(masked(fin|opPing, "still there?"))
	if p := c.expectFrame(opPong); p != "still there?" {
		c.t.Fatalf("pong %q", p)
	}
}
