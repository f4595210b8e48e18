package ws

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/gobwas/ws"
)

// maxMessage bounds what a client may send in one message (PROTOCOL §4).
const maxMessage = 64 << 10

// closeError says that the connection must end, with a code and a reason for
// the peer (RFC 6455 §7.4). byPeer: the peer asked for it.
type closeError struct {
	code   ws.StatusCode
	reason string
	byPeer bool
}

func (e *closeError) Error() string { return fmt.Sprintf("close %d: %s", e.code, e.reason) }

func protocolError(format string, args ...any) error {
	return &closeError{code: ws.StatusProtocolError, reason: fmt.Sprintf(format, args...)}
}

// A messageReader reads the client's messages from a connection, strictly by
// RFC 6455. It belongs to one goroutine.
type messageReader struct {
	r       *bufio.Reader
	scratch [ws.MaxHeaderSize]byte
}

// listener is told what comes between the messages.
type listener interface {
	// frame is called for every frame before its payload is read.
	frame()
	// control is given the payload of each ping and pong, which it must not keep.
	control(op ws.OpCode, payload []byte)
}

// next reads one message, its fragments joined; or one ping or pong that does
// not stand among fragments: then op says so. The error is a *closeError for a
// fault of the peer and for its close frame, else the connection's own.
func (m *messageReader) next(l listener) (op ws.OpCode, payload []byte, err error) {
	state := ws.StateServerSide
	for {
		start, err := m.r.Peek(2)
		if err != nil {
			return 0, nil, err
		}
		form := start[1] & 0x7f // how the length is written
		h, err := ws.ReadHeaderBuffer(m.r, m.scratch[:])
		if err != nil {
			if errors.Is(err, ws.ErrHeaderLengthMSB) || errors.Is(err, ws.ErrHeaderLengthUnexpected) {
				err = protocolError("malformed frame length")
			}
			return 0, nil, err
		}
		l.frame()
		if err := ws.CheckHeader(h, state); err != nil {
			return 0, nil, protocolError("%v", err)
		}
		if !h.OpCode.IsControl() && h.Length > int64(maxMessage-len(payload)) { // a sum might overflow
			return 0, nil, &closeError{code: ws.StatusMessageTooBig, reason: "messages are at most 64 KiB"}
		}
		if form == 126 && h.Length < 126 || form == 127 && h.Length <= 0xffff {
			return 0, nil, protocolError("frame length not in its shortest form")
		}
		body, err := m.body(int(h.Length))
		if err != nil {
			return 0, nil, err
		}
		ws.Cipher(body, h.Mask, 0)
		if h.OpCode.IsControl() {
			if h.OpCode == ws.OpClose {
				return 0, nil, readClose(body)
			}
			l.control(h.OpCode, body)
			if state.Fragmented() {
				continue
			}
			return h.OpCode, nil, nil
		}
		if h.OpCode != ws.OpContinuation {
			op = h.OpCode
		}
		if payload == nil {
			payload = body
		} else {
			payload = append(payload, body...)
		}
		if !h.Fin {
			state = state.Set(ws.StateFragmented)
			continue
		}
		if op == ws.OpText && !utf8.Valid(payload) {
			return 0, nil, &closeError{code: ws.StatusInvalidFramePayloadData, reason: "text is not UTF-8"}
		}
		return op, payload, nil
	}
}

// body reads n bytes. What is only announced takes no memory: it grows as the bytes arrive.
func (m *messageReader) body(n int) ([]byte, error) {
	if n <= announced {
		b := make([]byte, n)
		_, err := io.ReadFull(m.r, b)
		return b, err
	}
	b, err := io.ReadAll(io.LimitReader(m.r, int64(n)))
	if err == nil && len(b) < n {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

const announced = 4 << 10 // bytes of a frame that are believed

// readClose turns the peer's close frame into the answer to it.
func readClose(body []byte) error {
	if len(body) == 0 {
		return &closeError{code: ws.StatusNormalClosure, byPeer: true}
	}
	if len(body) == 1 {
		return protocolError("a close frame of one byte")
	}
	code := binary.BigEndian.Uint16(body)
	if !mayBeSent(code) {
		return protocolError("close code %d may not be sent", code)
	}
	if !utf8.Valid(body[2:]) {
		return &closeError{code: ws.StatusInvalidFramePayloadData, reason: "close reason is not UTF-8"}
	}
	return &closeError{code: ws.StatusCode(code), byPeer: true}
}

// mayBeSent follows RFC 6455 §7.4 and the IANA registry (1012–1014 came later).
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

func appendFrame(b []byte, op ws.OpCode, payload []byte) []byte {
	return append(appendHeader(b, op, len(payload)), payload...)
}

// closeFrame makes a close frame; the reason is cut to what a control frame holds.
func closeFrame(code ws.StatusCode, reason string) []byte {
	const room = ws.MaxControlFramePayloadSize - 2
	for len(reason) > room || !utf8.ValidString(reason) {
		reason = reason[:len(reason)-1]
	}
	return appendFrame(nil, ws.OpClose, ws.NewCloseFrameBody(code, reason))
}
