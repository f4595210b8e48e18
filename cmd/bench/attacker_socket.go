package bench

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"relay/http/client"
)

// acknowledge acknowledges one message as `processing`, again and again, on a
// socket. Only the connection limits how many frames are on the way.
func (a *attacker) acknowledge(i int) {
	who := a.Actors[i%len(a.Actors)]
	m := &mecha{who.Address, who.Key}
	frame := fmt.Appendf(nil, `{"type":"ack","message_id":%q,"status":"processing","client_ts":"2026-01-01T00:00:00Z"}`,
		a.Message)
	frames := make([][]byte, 64)
	for k := range frames {
		frames[k] = frame
	}
	begun := sync.OnceFunc(a.ready.Done)
	defer begun()
	for a.ctx.Err() == nil {
		s, err := a.links.listen(m, a.Query)
		begun()
		if err != nil {
			a.fail(err)
			continue
		}
		var reader sync.WaitGroup
		reader.Go(func() { a.countAnswers(s) })
		for err == nil {
			err = s.SendText(frames...)
			a.begun.Add(int64(len(frames)))
		}
		s.Close()
		reader.Wait()
		a.fail(err)
	}
}

func (a *attacker) countAnswers(s *client.Socket) {
	for {
		frame, err := s.Next()
		switch {
		case err != nil:
			s.Close() // the writer ends, too, and counts the fault
			return
		case bytes.HasPrefix(frame, []byte(`{"type":"ack_ok"`)):
			a.accepted.Add(1)
		case bytes.HasPrefix(frame, []byte(`{"type":"error"`)):
			a.refused.Add(1)
			text := string(frame)
			a.problem.CompareAndSwap(nil, &text)
		}
	}
}

// hold opens a socket and keeps it open, either in the middle of a frame or without
// reading. When the relay cuts the socket, hold opens another.
func (a *attacker) hold(i int) {
	who := a.Actors[i%len(a.Actors)]
	m := &mecha{who.Address, who.Key}
	a.connected(func(c *conn) error {
		if a.Kind == unreadKind {
			c.net.(*net.TCPConn).SetReadBuffer(4096) // an error leaves the default, and a weaker attack
		}
		if err := c.upgrade(m, a.Query); err != nil {
			return fmt.Errorf("no WebSocket: %w", err)
		}
		a.accepted.Add(1)
		if a.Kind == halfFramesKind {
			if _, err := c.net.Write([]byte{textFrame}); err != nil {
				return err
			}
			_, err := io.Copy(io.Discard, c.net)
			return fmt.Errorf("the socket was cut: %w", either(err, io.EOF))
		}
		for { // only a write tells that the socket was cut
			if !sleep(time.Now().Add(time.Second), a.ctx.Done()) {
				return nil
			}
			if _, err := c.net.Write(emptyPing); err != nil {
				return err
			}
		}
	})
}

func either(err, other error) error {
	if err == nil {
		return other
	}
	return err
}

// The first byte of a text frame, the bit that says that a frame is masked, and a
// whole ping of a client (RFC 6455 §5.2). A mask of zeros leaves the text as it is.
const (
	textFrame = 0x81
	masked    = 0x80
)

var emptyPing = []byte{0x89, masked, 0, 0, 0, 0}

// upgrade opens a WebSocket on the connection (RFC 6455 §4.1). Its frames are read
// and written by hand, because client.Socket reads and writes whole frames only.
func (c *conn) upgrade(m *mecha, query string) error {
	signer, err := c.signer(m)
	if err != nil {
		return err
	}
	c.out = fmt.Appendf(c.out[:0], "GET /api/v1/ws/mecha/%s?%s HTTP/1.1\r\nHost: %s\r\nConnection: "+
		"Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", m.address, query, c.host)
	c.out = append(signer.Append(c.out, nil), "\r\n"...)
	if _, err := c.net.Write(c.out); err != nil {
		return err
	}
	status, answer, err := c.answer()
	if err == nil && status != http.StatusSwitchingProtocols {
		err = refused(status, answer)
	}
	return err
}

// frame reads the next frame of an upgraded connection; its text is valid until the
// next call. A relay sends each frame whole, and without a mask.
func (c *conn) frame() (first byte, text []byte, err error) {
	c.in, c.from = c.in[:copy(c.in, c.in[c.from:])], 0
	for head := 2; ; {
		for len(c.in) < head {
			if err := c.more(); err != nil {
				return 0, nil, err
			}
		}
		length := int(c.in[1])
		switch {
		case length == 126 && head < 4:
			head = 4
			continue
		case length == 127 && head < 10:
			head = 10
			continue
		case length >= 126:
			length = 0
			for _, b := range c.in[2:head] {
				length = length<<8 | int(b)
			}
		}
		for len(c.in) < head+length {
			if err := c.more(); err != nil {
				return 0, nil, err
			}
		}
		c.from = head + length
		return c.in[0], c.in[head:c.from], nil
	}
}
