package admin

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net"
	"sync"

	"relay/db/relay"
)

// The errors of a write that did not get its outcome.
var (
	// ErrNoServer says that nothing was written, since no server takes writes.
	ErrNoServer = errors.New("no server takes writes at the socket beside the file")
	// ErrEnded says that it is unknown whether the write was done.
	ErrEnded = errors.New("the server has ended the connection")
)

// A Client hands writes to the server of a file. It connects with the first write, and again
// after a connection has ended. It is safe for concurrent use. Make it with NewClient.
type Client struct {
	path     string
	greeting []byte
	order    sync.Mutex // held while a write is sent

	mu    sync.Mutex    // guards the fields below; not held while a write is sent, since answers come meanwhile
	conn  net.Conn      // nil: none
	ended chan struct{} // closed when the answers of conn have ended
	n     uint64
	done  map[uint64]func(json.RawMessage, error) // of the writes without an outcome
}

// NewClient makes the client for the server of the file at path.
func NewClient(path string, greeting []byte) *Client { return &Client{path: path, greeting: greeting} }

// Send sends a write. done gets its outcome, from any goroutine, once: an error of the server
// (*relay.Error), ErrNoServer, ErrEnded, or that of Socket.
func (c *Client) Send(write []byte, done func(error)) {
	c.send(write, func(_ json.RawMessage, err error) { done(err) })
}

// Status asks the server how it is. Errors: those of Send, and that of ctx.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	type outcome struct {
		status json.RawMessage
		err    error
	}
	got := make(chan outcome, 1)
	c.send(nil, func(status json.RawMessage, err error) { got <- outcome{status, err} })
	select {
	case o := <-got:
		return o.status, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *Client) send(write []byte, done func(json.RawMessage, error)) {
	c.order.Lock()
	defer c.order.Unlock()
	conn, err := c.expect(done)
	if err != nil {
		done(nil, err)
		return
	}
	if _, err := conn.Write(append(binary.AppendUvarint(nil, uint64(len(write))), write...)); err != nil {
		conn.Close() // then read gives the outcome
	}
}

// expect gives the connection, and notes who waits for the answer to the write that is sent
// next.
func (c *Client) expect(done func(json.RawMessage, error)) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		conn, err := c.dial()
		if err != nil {
			return nil, err
		}
		c.conn, c.n, c.done, c.ended = conn, 0, map[uint64]func(json.RawMessage, error){}, make(chan struct{})
		go c.read(conn, c.ended)
	}
	c.n++
	c.done[c.n] = done
	return c.conn, nil
}

func (c *Client) dial() (net.Conn, error) {
	socket, err := Socket(c.path)
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, ErrNoServer
	}
	if _, err := conn.Write(append([]byte{version}, c.greeting...)); err != nil {
		conn.Close()
		return nil, ErrNoServer
	}
	return conn, nil
}

// read takes the answers of a connection until it ends.
func (c *Client) read(conn net.Conn, ended chan struct{}) {
	defer close(ended)
	lines := json.NewDecoder(conn)
	for {
		var a answer
		if err := lines.Decode(&a); err != nil {
			break
		}
		c.mu.Lock()
		done := c.done[a.N]
		delete(c.done, a.N)
		c.mu.Unlock()
		switch {
		case done == nil:
		case a.Code != "":
			done(nil, &relay.Error{Code: a.Code, Detail: a.Detail})
		default:
			done(a.Status, nil)
		}
	}
	conn.Close()
	c.mu.Lock()
	left := c.done
	c.conn, c.done = nil, nil
	c.mu.Unlock()
	for _, done := range left {
		done(nil, ErrEnded)
	}
}

// Close ends the connection; the writes without an outcome get ErrEnded. Close of nil does
// nothing.
func (c *Client) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	conn, ended := c.conn, c.ended
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
		<-ended
	}
}
