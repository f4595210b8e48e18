package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"relay/http/client"
)

// A mecha is a sender or recipient, with the key that signs its requests.
type mecha struct {
	address string
	key     string
}

// A conn is one keep-alive connection to the relay, on which any Mecha's
// requests are sent, one at a time. It belongs to one goroutine.
//
// It writes requests and reads answers by hand, because the generator runs on
// the cores that it measures. A send costs the generator 9 µs of CPU in this
// way, 13 µs with http.ReadResponse, and 34 µs with the client of net/http,
// which measures 14,000 sends a second instead of 27,000 (two cores, 64
// connections, a relay without its store). http/client signs, connects and opens WebSockets, at
// no more cost than code of our own.
type conn struct {
	net     net.Conn
	host    string
	signers map[*mecha]*client.Signer
	out     []byte // the request
	in      []byte // what has been read
	from    int    // where in it the next answer begins
}

const (
	sendPath   = "/api/v1/messages"
	searchPath = "/api/v1/search"
)

const patience = 30 * time.Second // after which a relay that does not answer counts as hung

// dial opens a connection to a base URL.
func dial(ctx context.Context, base string) (*conn, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := client.Connect(ctx, base, nil)
	if err != nil {
		return nil, explainFiles(err)
	}
	return &conn{net: n, host: u.Host, signers: map[*mecha]*client.Signer{}, in: make([]byte, 0, 2048)}, nil
}

// explainFiles says what to do if this process may not open more files.
func explainFiles(err error) error {
	if errors.Is(err, syscall.EMFILE) {
		return errors.New("this process may not open more files: raise the limit (ulimit -n), or ask for fewer --sockets " +
			"and --connections")
	}
	return err
}

func (c *conn) signer(m *mecha) (_ *client.Signer, err error) {
	s := c.signers[m]
	if s == nil {
		s, err = client.NewSigner(m.key, "")
		c.signers[m] = s
	}
	return s, err
}

// do sends a request and reads the answer, whose body is valid until the next
// call. A status other than the wanted one is a *client.Refusal.
func (c *conn) do(m *mecha, method, path string, body []byte, want int) ([]byte, error) {
	signer, err := c.signer(m)
	if err != nil {
		return nil, err
	}
	c.out = append(append(append(append(c.out[:0], method...), ' '), path...), " HTTP/1.1\r\nHost: "...)
	c.out = append(append(c.out, c.host...), "\r\n"...)
	c.out = signer.Append(c.out, body)
	if method != "GET" {
		if path == searchPath {
			c.out = append(c.out, "Prefer: wait=10\r\n"...) // the result itself
		}
		c.out = append(c.out, "Content-Type: application/json\r\nContent-Length: "...)
		c.out = append(strconv.AppendInt(c.out, int64(len(body)), 10), "\r\n"...)
	}
	c.out = append(append(c.out, "\r\n"...), body...)
	if _, err := c.net.Write(c.out); err != nil {
		return nil, err
	}
	status, answer, err := c.answer()
	if err == nil && status != want {
		err = refused(status, answer)
	}
	return answer, err
}

// refused makes the error for an answer with an unwanted status.
func refused(status int, body []byte) error {
	if err := (&client.Response{Status: status, Body: body}).Err(); err != nil {
		return err
	}
	return &client.Refusal{Status: status}
}

var (
	endOfHead     = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// answer reads one response. A relay gives the length of every body.
func (c *conn) answer() (status int, body []byte, err error) {
	c.in, c.from = c.in[:copy(c.in, c.in[c.from:])], 0
	head, looked := -1, 0
	for head < 0 {
		if err := c.more(); err != nil {
			return 0, nil, err
		}
		if i := bytes.Index(c.in[looked:], endOfHead); i >= 0 {
			head = looked + i
		}
		looked = max(len(c.in)-len(endOfHead), 0)
	}
	status, _ = strconv.Atoi(string(c.in[min(9, head):min(12, head)]))
	length, at := 0, bytes.Index(c.in[:head], contentLength)
	if at >= 0 {
		digits := c.in[at+len(contentLength) : head]
		if end := bytes.IndexByte(digits, '\r'); end >= 0 {
			digits = digits[:end]
		}
		if length, err = strconv.Atoi(string(digits)); err != nil {
			return 0, nil, err
		}
	} else if status >= 200 {
		return 0, nil, fmt.Errorf("the answer %d does not tell its length: is this a relay?", status)
	}
	start := head + len(endOfHead)
	for len(c.in) < start+length {
		if err := c.more(); err != nil {
			return 0, nil, err
		}
	}
	c.from = start + length
	return status, c.in[start:c.from], nil
}

// more reads what has arrived, or waits for it.
func (c *conn) more() error {
	if len(c.in) == cap(c.in) {
		c.in = append(c.in, make([]byte, cap(c.in))...)[:len(c.in)]
	}
	n, err := c.net.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	if n > 0 {
		return nil
	}
	return err
}

func (c *conn) close() { c.net.Close() }
