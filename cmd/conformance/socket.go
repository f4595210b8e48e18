package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/gobwas/ws"
)

// A socket is a WebSocket that goes through the proxy.
type socket struct {
	key    string
	number int // 1 for the first socket of the key
	pushed int // frames with messages that have come from the relay
}

// A frame is what the kit reads of a text frame.
type frame struct {
	Type      string
	MessageID string `json:"message_id"`
	Status    string
	Nonce     string
	Message   json.RawMessage
}

// A frameFate is what becomes of a frame.
type frameFate int

const (
	passFrame frameFate = iota
	halfFrame           // the connection ends in the middle of it
	dropFrame           // the connection ends before it
	lastFrame           // the connection ends after it
)

// serveSocket opens a WebSocket to the relay, and lets frames pass in both directions.
func (p *proxy) serveSocket(w http.ResponseWriter, r *http.Request, e *exchange) {
	host := p.upstream()
	if host == "" {
		hangUp()
	}
	relay, err := net.Dial("tcp", host)
	if err != nil {
		hangUp()
	}
	defer relay.Close()
	var head bytes.Buffer
	fmt.Fprintf(&head, "GET %s HTTP/1.1\r\nHost: %s\r\n", r.RequestURI, r.Host)
	r.Header.Write(&head) // to a buffer: it cannot fail
	head.WriteString("\r\n")
	if _, err := relay.Write(head.Bytes()); err != nil {
		hangUp()
	}
	fromRelay := bufio.NewReader(relay)
	resp, err := http.ReadResponse(fromRelay, r)
	if err != nil {
		hangUp()
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			hangUp()
		}
		p.pass(w, e, resp, body, fate{})
		return
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		hangUp()
	}
	defer client.Close()
	if !p.keep(client, relay, true) {
		return
	}
	defer p.keep(client, relay, false)
	p.answers(e, resp.StatusCode, "")
	head.Reset()
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	resp.Header.Write(&head)
	head.WriteString("\r\n")
	if _, err := client.Write(head.Bytes()); err != nil {
		return
	}
	p.join(e, client, relay, buffered.Reader, fromRelay)
}

// keep notes the connections of a socket while it is open. It returns false if the relay
// is down.
func (p *proxy) keep(client, relay net.Conn, open bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !open {
		delete(p.conns, client)
		delete(p.conns, relay)
		return true
	}
	if p.relay == "" {
		return false
	}
	p.conns[client], p.conns[relay] = true, true
	return true
}

// join lets frames pass until one side ends.
func (p *proxy) join(e *exchange, client, relay net.Conn, fromClient, fromRelay *bufio.Reader) {
	p.mu.Lock()
	p.sockets[e.key]++
	s := &socket{key: e.key, number: p.sockets[e.key]}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.up(s, fromClient, relay, e)
		client.Close()
		relay.Close()
	}()
	if p.repeat(s, client) == nil {
		p.down(s, fromRelay, client)
	}
	client.Close()
	relay.Close()
	<-done
}

const repeatedSockets = 4 // so many sockets of a key get again what was pushed before

// repeat pushes again what was pushed to earlier sockets.
func (p *proxy) repeat(s *socket, client net.Conn) error {
	if !p.again || s.number > repeatedSockets {
		return nil
	}
	p.mu.Lock()
	before := slices.Clone(p.pushed[s.key])
	p.mu.Unlock()
	for _, text := range before {
		p.struck.Add(1)
		if err := ws.WriteFrame(client, ws.NewTextFrame(text)); err != nil {
			return err
		}
	}
	return nil
}

// down passes on what the relay sends.
func (p *proxy) down(s *socket, in *bufio.Reader, client net.Conn) {
	for {
		f, err := nextFrame(in)
		if err != nil {
			return
		}
		fate := passFrame
		if read := readFrame(f); read != nil {
			p.keepPush(s, read, f.Payload)
			if p.push != nil {
				fate = p.struckBy(p.push(s, read))
			}
		}
		text := ws.MustCompileFrame(f)
		switch {
		case fate == dropFrame:
			return
		case fate == halfFrame:
			client.Write(text[:len(text)/2])
			return
		case p.slow && f.Header.OpCode == ws.OpText:
			p.struck.Add(1)
			for piece := range slices.Chunk(text, pieceBytes) {
				if _, err = client.Write(piece); err != nil {
					return
				}
				time.Sleep(pieceEvery)
			}
		default:
			_, err = client.Write(text)
		}
		if err != nil || fate == lastFrame {
			return
		}
	}
}

// keepPush counts a message that is pushed, or that was accepted, and keeps the frame if it must be sent again.
func (p *proxy) keepPush(s *socket, read *frame, text []byte) {
	switch read.Type {
	case "message":
		s.pushed++
		if p.again {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pushed[s.key] = append(p.pushed[s.key], text)
		}
	case "sent":
		p.count(s.key)
	}
}

// up passes on what the client sends.
func (p *proxy) up(s *socket, in *bufio.Reader, relay net.Conn, opened *exchange) {
	for {
		f, err := nextFrame(in)
		if err != nil {
			return
		}
		plain := f
		plain.Payload = slices.Clone(f.Payload)
		if f.Header.Masked {
			plain = ws.UnmaskFrame(plain)
		}
		fate := passFrame
		if read := readFrame(plain); read != nil {
			if read.Nonce != "" {
				p.note(&exchange{at: time.Now(), key: s.key, method: "frame", target: read.Type, path: read.Type, nonce: read.Nonce,
					body: read.Message})
			}
			if p.frame != nil {
				fate = p.struckBy(p.frame(s, read))
			}
		}
		switch fate {
		case dropFrame:
			return
		case halfFrame:
			relay.Write(ws.MustCompileFrame(f)[:2])
			return
		}
		if _, err := relay.Write(ws.MustCompileFrame(f)); err != nil || fate == lastFrame {
			return
		}
	}
}

// struckBy counts a fault.
func (p *proxy) struckBy(f frameFate) frameFate {
	if f != passFrame {
		p.struck.Add(1)
	}
	return f
}

const maxFrame = 16 << 20 // bytes; a relay and its clients send less

// nextFrame takes the next frame off a stream.
func nextFrame(in io.Reader) (f ws.Frame, err error) {
	if f.Header, err = ws.ReadHeader(in); err != nil {
		return f, err
	}
	if f.Header.Length > maxFrame {
		return f, fmt.Errorf("a frame of %d bytes", f.Header.Length)
	}
	f.Payload = make([]byte, f.Header.Length)
	_, err = io.ReadFull(in, f.Payload)
	return f, err
}

// readFrame reads a frame of data; nil if it is none, or no JSON object.
func readFrame(f ws.Frame) *frame {
	if !f.Header.Fin || f.Header.OpCode != ws.OpText && f.Header.OpCode != ws.OpBinary {
		return nil
	}
	var read frame
	if json.Unmarshal(f.Payload, &read) != nil {
		return nil
	}
	return &read
}
