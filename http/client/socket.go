package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"

	"relay/db/relay"
)

const (
	writeTimeout = 10 * time.Second
	closeTimeout = time.Second
	silence      = 90 * time.Second // without a byte the relay is gone: it pings every 25 s
)

// Socket is a WebSocket to a relay, from which the frames for a Mecha are read (PROTOCOL §4). One
// goroutine at a time may call Receive, Next and Buffered. The other methods may be called
// concurrently, even with these.
type Socket struct {
	ctx    context.Context
	conn   net.Conn
	in     *bufio.Reader
	frames wsutil.Reader
	text   bytes.Buffer // the last frame
	hangUp func() error // closes the connection, once
	stop   func() bool  // unties the socket from ctx
}

// Closed is the error of reading from a WebSocket that the relay has closed.
type Closed struct {
	Code   int    // RFC 6455 §7.4.1, PROTOCOL §4
	Reason string // for people; with 1008 an error code
}

// Error returns one line: control characters in the reason are escaped.
func (e *Closed) Error() string {
	return fmt.Sprintf("the relay closed the connection: %d %s", e.Code, relay.Visible(e.Reason))
}

func newSocket(ctx context.Context, conn net.Conn, in *bufio.Reader) *Socket {
	s := &Socket{ctx: ctx, conn: conn, in: in}
	s.frames = wsutil.Reader{Source: in, State: ws.StateClientSide, OnIntermediate: s.control}
	s.hangUp = sync.OnceValue(func() error {
		_ = s.write(closeTimeout, ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))) // out of courtesy
		return conn.Close()
	})
	s.stop = context.AfterFunc(ctx, func() { s.hangUp() })
	return s
}

// patient is a connection that waits for the next byte for as long as silence.
type patient struct {
	net.Conn
	renewed time.Time
}

func (p *patient) Read(b []byte) (int, error) {
	// Not before every read: to move a timer costs as much as to read a frame.
	if now := time.Now(); now.Sub(p.renewed) > time.Second {
		p.renewed = now
		if err := p.SetReadDeadline(now.Add(silence)); err != nil {
			return 0, err
		}
	}
	return p.Conn.Read(b)
}

// Receive waits for the next frame, and stores its JSON in v.
func (s *Socket) Receive(v any) error {
	frame, err := s.Next()
	if err != nil {
		return err
	}
	return json.Unmarshal(frame, v)
}

// Next waits for the next frame, and returns its JSON, which is valid until the
// next call. It answers the relay's pings. The error is a *Closed if the relay
// has closed the socket, the cause of ctx if that has ended, and otherwise the
// network error: a relay that is silent for 90 seconds, without
// even a ping, counts as gone.
func (s *Socket) Next() ([]byte, error) {
	frame, err := s.read()
	if err != nil && s.ctx.Err() != nil {
		err = context.Cause(s.ctx)
	}
	return frame, err
}

var errInvalidUTF8 = errors.New("the relay sent text that is not valid UTF-8")

func (s *Socket) read() ([]byte, error) {
	for {
		h, err := s.frames.NextFrame()
		if err != nil {
			return nil, err
		}
		if h.OpCode.IsControl() {
			if err := s.control(h, &s.frames); err != nil {
				return nil, err
			}
			continue
		}
		s.text.Reset()
		if _, err := s.text.ReadFrom(&s.frames); err != nil {
			return nil, err
		}
		if !utf8.Valid(s.text.Bytes()) {
			return nil, errInvalidUTF8
		}
		return s.text.Bytes(), nil
	}
}

// control answers a ping, and takes note of a close. The library's own handler
// takes 1013, with which the relay asks to try again later, for a fault.
func (s *Socket) control(h ws.Header, r io.Reader) error {
	payload := make([]byte, h.Length) // at most 125: the reader has checked the header
	if _, err := io.ReadFull(r, payload); err != nil {
		return err
	}
	switch h.OpCode {
	case ws.OpPing:
		return s.write(writeTimeout, ws.NewPongFrame(payload))
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(payload)
		// RFC 6455 §5.5.1; the relay may be gone already
		_ = s.write(closeTimeout, ws.NewCloseFrame(payload[:min(len(payload), 2)]))
		return &Closed{Code: int(code), Reason: reason}
	}
	return nil
}

// Buffered returns how many bytes have come in that Next has not read. Otherwise Next waits for the network.
func (s *Socket) Buffered() int { return s.in.Buffered() }

// Send sends v as JSON, in a frame.
func (s *Socket) Send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.SendText(text)
}

// SendText sends each text, which is JSON, in a frame of its own, and all of
// them in one write. It gives up after 10 seconds; then a frame may have been
// sent in part, and the socket is of no more use.
func (s *Socket) SendText(texts ...[]byte) error {
	frames := make([]ws.Frame, len(texts))
	for i, text := range texts {
		frames[i] = ws.NewTextFrame(text)
	}
	return s.write(writeTimeout, frames...)
}

// Ping sends a ping. The relay hangs up on a socket from which nothing comes
// for 60 seconds. Next answers the relay's pings, so only a program that does
// not call it for so long needs this.
func (s *Socket) Ping() error { return s.write(writeTimeout, ws.NewPingFrame(nil)) }

// Close tells the relay that the socket ends, and closes the connection. To
// close again does nothing. Next then fails.
func (s *Socket) Close() error {
	s.stop()
	return s.hangUp()
}

// write sends frames in one Write, so that goroutines may write side by side.
func (s *Socket) write(timeout time.Duration, frames ...ws.Frame) error {
	var b bytes.Buffer
	for _, f := range frames {
		if err := ws.WriteFrame(&b, ws.MaskFrame(f)); err != nil {
			return err
		}
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(b.Bytes())
	return err
}
