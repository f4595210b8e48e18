package bench

import (
	"bytes"
	"fmt"

	"relay/db/relay"
	"relay/http/client"
)

// listen opens a Mecha's WebSocket.
func (l *links) listen(m *mecha, query string) (*client.Socket, error) {
	c, err := client.New(client.Config{URL: l.server.url, Key: m.key})
	if err != nil {
		return nil, err
	}
	s, err := c.Dial(l.ctx, relay.Address(m.address), query)
	if err != nil {
		return nil, fmt.Errorf("no WebSocket: %w", explainFiles(err))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sockets = append(l.sockets, s)
	return s, nil
}

// acknowledge acknowledges the message of a frame.
func acknowledge(s *client.Socket, frame []byte) error {
	text, err := acknowledgement(frame)
	if err != nil {
		return err
	}
	return s.SendText(text)
}

// acknowledgement makes the frame that acknowledges the message of a frame.
func acknowledgement(frame []byte) ([]byte, error) {
	id := textField(frame, "message_id")
	if id == nil {
		return nil, fmt.Errorf("a frame without a message_id: %.200s", frame)
	}
	return fmt.Appendf(nil, `{"type":"ack","message_id":"%s","status":"completed","client_ts":"2026-01-01T00:00:00Z"}`,
		id), nil
}

// textField returns a string member of a JSON object that the relay wrote. Such an
// object has no spaces, and the members that are asked for have no escapes.
func textField(object []byte, name string) []byte {
	_, rest, found := bytes.Cut(object, []byte(`"`+name+`":"`))
	value, _, closed := bytes.Cut(rest, []byte{'"'})
	if !found || !closed {
		return nil
	}
	return value
}
