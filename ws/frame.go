package ws

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// maxMessage is how many bytes a client's message may have, unless it is a frame that
// sends (PROTOCOL §4).
const maxMessage = 64 << 10

// closeError says that the connection must end, with a code and a reason for
// the peer (RFC 6455 §7.4).
type closeError struct {
	code   ws.StatusCode
	reason string
	byPeer bool // the peer has sent a close frame, which this one answers
}

func (e *closeError) Error() string { return fmt.Sprintf("close %d: %s", e.code, e.reason) }

func protocolError(format string, args ...any) error {
	return &closeError{code: ws.StatusProtocolError, reason: fmt.Sprintf(format, args...)}
}

// tooBig says that a message has more bytes than it may have.
func tooBig(limit int) error {
	return &closeError{code: ws.StatusMessageTooBig, reason: fmt.Sprintf("a message may have at most %d KiB", limit>>10)}
}

// A messageReader reads the client's messages from a connection, strictly by
// RFC 6455. One goroutine at a time may use it.
type messageReader struct {
	r       *bufio.Reader
	scratch [ws.MaxHeaderSize]byte
	coming  coming
}

// coming is a message that has not come whole. It has all that next needs to continue when more bytes come. The
// zero value means that no message has begun.
type coming struct {
	op         ws.OpCode // of the message
	fragmented bool      // a fragment has come, and the last one has not
	payload    []byte    // of the fragments that have come
	inFrame    bool      // the header of a frame has come
	header     ws.Header // of that frame
	body       []byte    // of that frame, as far as it has come
}

// begun reports whether a part of the message has come.
func (c *coming) begun() bool { return c.inFrame || c.fragmented }

// frameEvents is told of the frames while a message is read.
type frameEvents interface {
	// countFrame is called for every frame, before its payload is read. It may wait.
	countFrame()
	// admit is called for every frame of a message, before its payload is read. length is the frame's, before
	// how many bytes the message has already, and last tells that the frame ends it. admit may wait. An error
	// ends the reading.
	admit(length int64, before int, last bool) error
	// control is called for each ping and pong. It must not keep the payload.
	control(op ws.OpCode, payload []byte)
}

// next reads one message and joins its fragments. It also returns after a ping or a pong that does
// not stand between fragments; then op is the ping's or pong's, and there is no payload. The error
// is a *closeError for a fault of the peer and for its close frame, else that of the connection. If
// the connection does not wait but returns an error, a later call continues where this one has
// stopped.
func (m *messageReader) next(events frameEvents) (op ws.OpCode, payload []byte, err error) {
	c := &m.coming
	for {
		if !c.inFrame {
			if err := m.readHeader(events); err != nil {
				return 0, nil, err
			}
		}
		if err := m.readBody(); err != nil {
			return 0, nil, err
		}
		h, body := c.header, c.body
		c.inFrame, c.body = false, nil
		ws.Cipher(body, h.Mask, 0)
		if h.OpCode.IsControl() {
			if h.OpCode == ws.OpClose {
				return 0, nil, readClose(body)
			}
			events.control(h.OpCode, body)
			if c.fragmented {
				continue
			}
			return h.OpCode, nil, nil
		}
		if h.OpCode != ws.OpContinuation {
			c.op = h.OpCode
		}
		if c.payload == nil {
			c.payload = body
		} else {
			c.payload = append(c.payload, body...)
		}
		if c.fragmented = !h.Fin; c.fragmented {
			continue
		}
		op, payload = c.op, c.payload
		*c = coming{}
		if op == ws.OpText && !utf8.Valid(payload) {
			return 0, nil, &closeError{code: ws.StatusInvalidFramePayloadData, reason: "text must be UTF-8"}
		}
		return op, payload, nil
	}
}

// readHeader reads and checks the header of a frame.
func (m *messageReader) readHeader(events frameEvents) error {
	start, err := m.r.Peek(2)
	if err != nil {
		return err
	}
	lengthForm := start[1] & 0x7f // 126 and 127: the length follows in 2 or 8 bytes
	if _, err := m.r.Peek(headerSize(start[1])); err != nil {
		return err // before any of it is taken, so that it is read again when all of it has come
	}
	h, err := ws.ReadHeaderBuffer(m.r, m.scratch[:])
	if err != nil {
		if errors.Is(err, ws.ErrHeaderLengthMSB) || errors.Is(err, ws.ErrHeaderLengthUnexpected) {
			err = protocolError("the frame length is malformed")
		}
		return err
	}
	events.countFrame()
	state := ws.StateServerSide
	if m.coming.fragmented {
		state = state.Set(ws.StateFragmented)
	}
	if err := ws.CheckHeader(h, state); err != nil {
		return protocolError("%v", err)
	}
	if lengthForm == 126 && h.Length < 126 || lengthForm == 127 && h.Length <= 0xffff {
		return protocolError("the frame length is not in its shortest form")
	}
	if !h.OpCode.IsControl() {
		if err := events.admit(h.Length, len(m.coming.payload), h.Fin); err != nil {
			return err
		}
	}
	m.coming.inFrame, m.coming.header = true, h
	return nil
}

// headerSize returns the length of a header whose second byte this is (RFC 6455 §5.2).
func headerSize(second byte) int {
	size := 2
	switch second & 0x7f {
	case 126:
		size += 2
	case 127:
		size += 8
	}
	if second&0x80 != 0 {
		size += 4 // the masking key
	}
	return size
}

// readBody reads the payload of a frame. A long one gets its memory as its bytes
// arrive, so that a client cannot have much allocated by a header alone.
func (m *messageReader) readBody() error {
	c := &m.coming
	if c.body == nil {
		c.body = make([]byte, 0, min(int(c.header.Length), allocatedAtOnce))
	}
	for n := int(c.header.Length); len(c.body) < n; {
		if len(c.body) == cap(c.body) {
			c.body = append(make([]byte, 0, min(n, 2*cap(c.body))), c.body...)
		}
		k, err := m.r.Read(c.body[len(c.body):cap(c.body)])
		c.body = c.body[:len(c.body)+k]
		if err != nil {
			return err
		}
	}
	return nil
}

const allocatedAtOnce = 4 << 10 // frames up to this length are allocated at once

// readClose makes of the peer's close frame the close frame that answers it.
func readClose(body []byte) error {
	if len(body) == 0 {
		return &closeError{code: ws.StatusNormalClosure, byPeer: true}
	}
	if len(body) == 1 {
		return protocolError("a close frame must have a code of two bytes, or no payload")
	}
	code := binary.BigEndian.Uint16(body)
	if !mayBeSent(code) {
		return protocolError("close code %d must not be sent", code)
	}
	if !utf8.Valid(body[2:]) {
		return &closeError{code: ws.StatusInvalidFramePayloadData, reason: "the close reason must be UTF-8"}
	}
	return &closeError{code: ws.StatusCode(code), byPeer: true}
}

// mayBeSent reports whether a close frame may have the code: RFC 6455 §7.4, and
// the IANA registry, to which 1012–1014 were added later.
func mayBeSent(code uint16) bool {
	return 1000 <= code && code <= 1003 || 1007 <= code && code <= 1014 || 3000 <= code && code <= 4999
}

// appendHeader appends the header of an unmasked, final frame (RFC 6455 §5.2).
func appendHeader(b []byte, op ws.OpCode, length int) []byte {
	b = append(b, 0x80|byte(op))
	switch {
	case length < 126:
		return append(b, byte(length))
	case length <= 0xffff:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(length))
	}
	return binary.BigEndian.AppendUint64(append(b, 127), uint64(length))
}

// appendFrame appends an unmasked, final frame.
func appendFrame(b []byte, op ws.OpCode, payload []byte) []byte {
	return append(appendHeader(b, op, len(payload)), payload...)
}

// closeFrame makes a close frame. A reason that is too long for a control frame
// (RFC 6455 §5.5) is cut.
func closeFrame(code ws.StatusCode, reason string) []byte {
	const room = ws.MaxControlFramePayloadSize - 2
	for len(reason) > room || !utf8.ValidString(reason) {
		reason = reason[:len(reason)-1]
	}
	return appendFrame(nil, ws.OpClose, ws.NewCloseFrameBody(code, reason))
}
