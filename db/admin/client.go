package admin

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"relay/db/relay"
)

// The errors of a request that did not get its outcome.
var (
	// ErrNoServer says that nothing was done, since no server takes requests.
	ErrNoServer = errors.New("no server takes requests at the socket of the file")
	// ErrEnded says that it is unknown whether the request was done.
	ErrEnded = errors.New("the server has ended the connection")
)

const (
	welcomeIn = 10 * time.Second // in which a server must take a connection
	silence   = time.Minute      // how long a server that owes an answer may be silent, twice in a row
)

// A Client hands requests to the server of a file. It connects with the first request, and
// again after a connection has ended. It is safe for concurrent use. Make it with NewClient.
type Client struct {
	path     string
	greeting []byte
	order    sync.Mutex // locked while a request is sent

	mu    sync.Mutex    // guards the fields below; unlocked while a request is sent, since answers come meanwhile
	conn  *net.UnixConn // nil: none
	ended chan struct{} // closed when the answers of conn have ended
	n     uint64
	done  map[uint64]func(answer, error) // of the requests without an outcome
}

func (c *Client) dial() (*net.UnixConn, error) {
	socket, err := Socket(c.path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	name, done, err := short(socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	defer done()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	return conn, nil
}

// Send sends a write. done gets its outcome, from any goroutine, once: an error of the server
// (*relay.Error), ErrNoServer or ErrEnded.
func (c *Client) Send(write []byte, done func(error)) {
	c.send(aWrite, write, func(_ answer, err error) { done(err) })
}

// Ask asks the server a question. said gets the outcome so far, now and then; it may be nil.
// When ctx ends, Ask tells the server, and returns the outcome of what was done. No further
// request can be sent then. Errors: as of Send, perhaps together with an outcome, and the
// error of ctx.
func (c *Client) Ask(ctx context.Context, question []byte, said func(json.RawMessage)) (json.RawMessage, error) {
	type end struct {
		outcome json.RawMessage
		err     error
	}
	got := make(chan end, 1)
	c.send(aQuestion, question, func(a answer, err error) {
		if !a.More {
			got <- end{a.Outcome, err}
		} else if said != nil {
			said(a.Outcome)
		}
	})
	select {
	case e := <-got:
		return e.outcome, e.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.conn != nil {
		c.conn.CloseWrite()
	}
	c.mu.Unlock()
	select {
	case e := <-got:
		return e.outcome, ctx.Err()
	case <-time.After(2 * endsIn):
		return nil, ctx.Err()
	}
}

func (c *Client) send(kind byte, body []byte, done func(answer, error)) {
	c.order.Lock()
	defer c.order.Unlock()
	conn, err := c.expect(done)
	if err != nil {
		done(answer{}, err)
		return
	}
	request := append(binary.AppendUvarint(nil, uint64(1+len(body))), kind)
	_, _ = conn.Write(append(request, body...)) // an error means that the answers end, too
}

// expect returns the connection, and registers done for the answers to the next request.
func (c *Client) expect(done func(answer, error)) (net.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.connect(); err != nil {
		return nil, err
	}
	c.n++
	c.done[c.n] = done
	return c.conn, nil
}

// connect connects, unless there is a connection. The caller must hold the lock.
func (c *Client) connect() error {
	if c.conn != nil {
		return nil
	}
	conn, err := c.dial()
	if err != nil {
		return err
	}
	p, welcome := &patient{of: c, conn: conn}, answer{}
	lines := json.NewDecoder(p)
	if _, err = conn.Write(append([]byte{version}, c.greeting...)); err == nil {
		conn.SetReadDeadline(time.Now().Add(welcomeIn))
		err = lines.Decode(&welcome)
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", ErrNoServer, err)
	case welcome.Code != "":
		err = &relay.Error{Code: welcome.Code, Detail: welcome.Detail}
	}
	if err != nil {
		conn.Close()
		return err
	}
	p.welcome = true
	c.conn, c.n, c.done, c.ended = conn, 0, map[uint64]func(answer, error){}, make(chan struct{})
	go c.read(conn, lines, c.ended)
	return nil
}

// read takes the answers of a connection until it ends.
func (c *Client) read(conn net.Conn, lines *json.Decoder, ended chan struct{}) {
	defer close(ended)
	fault := error(ErrEnded)
	for {
		var a answer
		if err := lines.Decode(&a); err != nil {
			break
		}
		var err error
		if a.Code != "" {
			err = &relay.Error{Code: a.Code, Detail: a.Detail}
		}
		if a.N == 0 { // the server has taken none of the remaining requests
			fault = err
			break
		}
		c.mu.Lock()
		done := c.done[a.N]
		if !a.More {
			delete(c.done, a.N)
		}
		c.mu.Unlock()
		if done != nil {
			done(a, err)
		}
	}
	conn.Close()
	c.mu.Lock()
	left := c.done
	c.conn, c.done = nil, nil
	c.mu.Unlock()
	for _, done := range left {
		done(answer{}, fault)
	}
}

// patient reads from a connection. It gives up a silent server that owes an answer, after the
// second timeout, because this process may have been suspended during the first.
type patient struct {
	of      *Client
	conn    net.Conn
	welcome bool
}

func (p *patient) Read(b []byte) (n int, err error) {
	if !p.welcome {
		return p.conn.Read(b)
	}
	for times := 0; times < 2; times++ {
		p.conn.SetReadDeadline(time.Now().Add(silence))
		if n, err = p.conn.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		p.of.mu.Lock()
		if len(p.of.done) == 0 {
			times = -1
		}
		p.of.mu.Unlock()
	}
	return n, err
}

// Close ends the connection; the requests without an outcome get ErrEnded. Close of nil does
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
