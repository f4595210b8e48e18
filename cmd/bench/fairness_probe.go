package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"relay/http/client"
)

// A probe is one operation that the bystander repeats, in parallel to its other probes, at a rate
// below all limits. The function that begin makes runs the operation once, and returns the time
// that its measured part took.
type probe struct {
	every time.Duration
	begin func(*line) func() (time.Duration, error)
}

var probes = map[string]probe{
	"read":      {20 * time.Millisecond, readProbe},
	"send":      {20 * time.Millisecond, sendProbe},
	"ack":       {20 * time.Millisecond, ackProbe},
	"search":    {50 * time.Millisecond, searchProbe},
	"handshake": {20 * time.Millisecond, handshakeProbe},
	"receipt":   {20 * time.Millisecond, receiptProbe},
	"split":     {20 * time.Millisecond, splitProbe},
	"slow":      {slowPayload * 4 / 3 * time.Second / (4 << 20), slowProbe}, // 4 MiB/s, in Base64
}

// A line is the bystander's connection for one probe. It opens the connection when it
// needs one, and another after a fault.
type line struct {
	*arena
	b     *bench
	links *links
	c     *conn
}

// do sends a request as one of the people.
func (n *line) do(who, method, path string, body []byte, want int) ([]byte, error) {
	if n.c == nil {
		var err error
		if n.c, err = n.links.dial(); err != nil {
			return nil, err
		}
	}
	n.c.net.SetDeadline(time.Now().Add(patience))
	answer, err := n.c.do(n.people[who], method, path, body, want)
	if err != nil && !isRefusal(err) {
		n.hangUp()
	}
	return answer, err
}

func (n *line) hangUp() {
	if n.c != nil {
		n.c.close()
		n.c = nil
	}
}

// send sends a message, and returns its id.
func (n *line) send(from, to string) (string, error) {
	answer, err := n.do(from, "POST", sendPath, appendSend(nil, n.people[to], n.b.payload()), http.StatusCreated)
	return string(textField(answer, "message_id")), err
}

func measure(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}

// measured makes a probe of which all is measured.
func measured(f func() error) func() (time.Duration, error) {
	return func() (time.Duration, error) { return measure(f) }
}

func readProbe(n *line) func() (time.Duration, error) {
	return measured(func() error {
		_, err := n.do("alice", "GET", sendPath+"/"+n.known, nil, http.StatusOK)
		return err
	})
}

func sendProbe(n *line) func() (time.Duration, error) {
	return measured(func() error {
		_, err := n.send("alice", "bob")
		return err
	})
}

const finalAck = `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`

// acknowledge acknowledges a message over HTTP.
func (n *line) acknowledge(who, id string) error {
	_, err := n.do(who, "POST", sendPath+"/"+id+"/ack", []byte(finalAck), http.StatusOK)
	return err
}

func ackProbe(n *line) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		id, err := n.send("carol", "bob")
		if err != nil {
			return 0, err
		}
		return measure(func() error { return n.acknowledge("bob", id) })
	}
}

func searchProbe(n *line) func() (time.Duration, error) {
	queries, i := newVocabulary().queries(7), 0
	return measured(func() error {
		i++
		_, err := n.do("alice", "POST", searchPath, queries[i%len(queries)], http.StatusOK)
		return err
	})
}

// handshakeProbe opens a connection and a WebSocket on it.
func handshakeProbe(n *line) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		defer n.hangUp()
		return measure(func() error { return n.listen("carol", "sync_limit=0", 0) })
	}
}

// listen opens a connection with a receive buffer of that size, and a socket on it. 0
// leaves the size to the system.
func (n *line) listen(who, query string, buffer int) (err error) {
	if n.c, err = n.links.dial(); err != nil {
		return err
	}
	n.c.net.SetDeadline(time.Now().Add(patience))
	if buffer > 0 {
		if err := n.c.net.(*net.TCPConn).SetReadBuffer(buffer); err != nil {
			return err
		}
	}
	return n.c.upgrade(n.people[who], query)
}

// receiptProbe measures the time from an acknowledgement to its receipt on the
// sender's socket. If the relay cuts the socket, that is a failure.
func receiptProbe(n *line) func() (time.Duration, error) {
	type receipt struct {
		id string
		at time.Time
	}
	var in *client.Socket
	var receipts chan receipt
	return func() (time.Duration, error) {
		if in == nil {
			var err error
			if in, err = n.links.listen(n.people["alice"], "sync_limit=0&events=receipts"); err != nil {
				return 0, err
			}
			to := make(chan receipt, 1024)
			receipts = to
			go func(s *client.Socket) {
				defer close(to)
				for {
					frame, err := s.Next()
					if err != nil {
						return
					}
					if bytes.Contains(frame, []byte(`"acknowledged"`)) {
						to <- receipt{string(textField(frame, "message_id")), time.Now()}
					}
				}
			}(in)
		}
		id, err := n.send("alice", "bob")
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if err := n.acknowledge("bob", id); err != nil {
			return 0, err
		}
		late := time.NewTimer(patience)
		defer late.Stop()
		for {
			select {
			case r, open := <-receipts:
				if !open {
					in.Close()
					in = nil
					return 0, errors.New("the socket with the receipts was closed")
				}
				if r.id == id {
					return r.at.Sub(began), nil
				}
			case <-late.C:
				return 0, errors.New("no receipt")
			}
		}
	}
}

const (
	betweenHalves = 5 * time.Millisecond
	closeFirst    = 0x88
	pingFirst     = 0x89
)

// await reads frames until one contains the text. Pings do not count.
func (n *line) await(text string) error {
	for {
		first, frame, err := n.c.frame()
		switch {
		case err != nil:
			return err
		case first == closeFirst:
			return fmt.Errorf("the relay closed the socket: %q", frame)
		case first != pingFirst && bytes.Contains(frame, []byte(text)):
			return nil
		}
	}
}

// splitProbe acknowledges on a socket, with a frame that it sends in two parts. It
// measures the time from the second part to the answer.
func splitProbe(n *line) func() (time.Duration, error) {
	sender := &line{arena: n.arena, b: n.b, links: n.links}
	return func() (took time.Duration, err error) {
		defer func() {
			if err != nil {
				n.hangUp()
			}
		}()
		if n.c == nil {
			if err := n.listen("dave", "sync_limit=0&events=acks", 0); err != nil {
				return 0, err
			}
		}
		n.c.net.SetDeadline(time.Now().Add(patience))
		id, err := sender.send("carol", "dave")
		if err != nil {
			return 0, err
		}
		if err := n.await(id); err != nil {
			return 0, err
		}
		frame := clientFrame(fmt.Appendf(nil,
			`{"type":"ack","message_id":%q,"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`, id))
		if _, err := n.c.net.Write(frame[:len(frame)/2]); err != nil {
			return 0, err
		}
		time.Sleep(betweenHalves) // so that the relay reads the first half alone
		return measure(func() error {
			if _, err := n.c.net.Write(frame[len(frame)/2:]); err != nil {
				return err
			}
			return n.await(id)
		})
	}
}

// clientFrame makes the frame of a text of up to 65,535 bytes.
func clientFrame(text []byte) []byte {
	b := []byte{textFrame, masked | byte(len(text))}
	if len(text) > 125 {
		b = binary.BigEndian.AppendUint16([]byte{textFrame, masked | 126}, uint16(len(text)))
	}
	return append(append(b, 0, 0, 0, 0), text...)
}

// slowProbe reads large messages at 4 MiB/s, and measures the wait for each. After the
// last of them it opens another socket, which gets them all again.
func slowProbe(n *line) func() (time.Duration, error) {
	left := 0
	return func() (time.Duration, error) {
		if n.c == nil || left == 0 {
			n.hangUp()
			if err := n.listen("erin", fmt.Sprintf("sync_limit=%d", slowMessages), 64<<10); err != nil {
				n.hangUp()
				return 0, err
			}
			left = slowMessages
		}
		n.c.net.SetDeadline(time.Now().Add(patience))
		left--
		took, err := measure(func() error { return n.await("") })
		if err != nil {
			n.hangUp()
			err = fmt.Errorf("after %d of %d messages: %w", slowMessages-left-1, slowMessages, err)
		}
		return took, err
	}
}
