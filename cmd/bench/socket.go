package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A socket is a WebSocket of a Mecha, as cheap as conn. It belongs to one goroutine.
type socket struct {
	*conn
	later []byte // frames to be written before the next wait
}

const (
	opText  = 1
	opClose = 8
	opPing  = 9
	opPong  = 10
)

// listen opens a Mecha's WebSocket; query begins with "?" or is "".
func listen(ctx context.Context, base string, m *mecha, query string) (*socket, error) {
	c, err := dial(ctx, base)
	if err != nil {
		return nil, err
	}
	c.net.SetDeadline(time.Now().Add(patience))
	c.out = fmt.Appendf(c.out[:0], "GET /api/v1/ws/mecha/%s%s HTTP/1.1\r\nHost: %s\r\n", m.address, query, c.host)
	c.sign(m, nil)
	// The answer to the key need not be checked: nothing stands between us and the relay that could cache.
	c.out = append(c.out, "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cmVsYXkgYmVuY2ggaXMgMQ==\r\n\r\n"...)
	_, err = c.net.Write(c.out)
	var status int
	var body []byte
	if err == nil {
		status, body, err = c.answer()
	}
	if err == nil && status != http.StatusSwitchingProtocols {
		err = refused(status, body)
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("no WebSocket: %w", err)
	}
	return &socket{conn: c}, nil
}

var errClosed = errors.New("the relay closed the WebSocket")

// next reads the next text frame, which is good until the one after. It
// answers pings.
func (s *socket) next() ([]byte, error) {
	for {
		op, payload, err := s.frame()
		switch {
		case err != nil:
			return nil, err
		case op == opText:
			return payload, nil
		case op == opPing:
			if err := s.write(opPong, payload); err != nil {
				return nil, err
			}
		case op == opClose:
			return nil, fmt.Errorf("%w: %s", errClosed, payload[min(2, len(payload)):])
		}
	}
}

// frame reads a frame. The relay neither fragments nor masks.
func (s *socket) frame() (op byte, payload []byte, err error) {
	for {
		if rest := s.in[s.from:]; len(rest) >= 2 {
			head, length := 2, int(rest[1]&0x7f)
			switch {
			case length == 126 && len(rest) >= 4:
				head, length = 4, int(binary.BigEndian.Uint16(rest[2:]))
			case length == 127 && len(rest) >= 10:
				head, length = 10, int(binary.BigEndian.Uint64(rest[2:]))
			case length >= 126:
				head = len(rest) + 1 // not all of it is here
			}
			if len(rest) >= head+length {
				s.from += head + length
				return rest[0] & 0x0f, rest[head : head+length], nil
			}
		}
		if len(s.later) > 0 {
			if _, err := s.net.Write(s.later); err != nil {
				return 0, nil, err
			}
			s.later = s.later[:0]
		}
		if s.from > 0 { // move what has begun to the front, then read
			s.in, s.from = s.in[:copy(s.in, s.in[s.from:])], 0
		}
		if err := s.more(); err != nil {
			return 0, nil, err
		}
	}
}

// write sends a frame.
func (s *socket) write(op byte, payload []byte) error {
	s.out = appendFrame(s.out[:0], op, payload)
	_, err := s.net.Write(s.out)
	return err
}

// appendFrame masks with zeros, the cheapest of masks.
func appendFrame(b []byte, op byte, payload []byte) []byte {
	b = append(b, 0x80|op)
	if len(payload) < 126 {
		b = append(b, 0x80|byte(len(payload)))
	} else {
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(len(payload)))
	}
	return append(append(b, 0, 0, 0, 0), payload...)
}

// ack acknowledges the message of a frame.
func (s *socket) ack(frame []byte) error {
	text, err := acknowledgement(frame)
	if err != nil {
		return err
	}
	return s.write(opText, text)
}

// ackLater is ack once all that has arrived has been read, many in one write.
func (s *socket) ackLater(frame []byte) error {
	text, err := acknowledgement(frame)
	s.later = appendFrame(s.later, opText, text)
	return err
}

func acknowledgement(frame []byte) ([]byte, error) {
	id := textField(frame, "message_id")
	if id == nil {
		return nil, fmt.Errorf("a frame without a message_id: %.200s", frame)
	}
	return fmt.Appendf(nil, `{"type":"ack","message_id":"%s","status":"completed","client_ts":"2026-01-01T00:00:00Z"}`, id), nil
}

// textField finds a string of a JSON object that the relay wrote: without
// spaces, and in what is looked for here without escapes.
func textField(object []byte, name string) []byte {
	_, rest, found := bytes.Cut(object, []byte(`"`+name+`":"`))
	value, _, closed := bytes.Cut(rest, []byte{'"'})
	if !found || !closed {
		return nil
	}
	return value
}
