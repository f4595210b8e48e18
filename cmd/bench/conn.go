package bench

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"net"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

// A mecha is one of those in whose name requests are signed.
type mecha struct {
	address string
	key     string
}

// A conn is one keep-alive connection to the relay. It is written by hand,
// because the generator shares the machine with what it measures: the fewer
// cycles it takes, the truer the figures. It belongs to one goroutine.
type conn struct {
	net    net.Conn
	host   string
	macs   map[*mecha]hash.Hash
	nonce  []byte // its head; a counter follows
	count  uint64
	second int64 // of stamp
	stamp  []byte
	out    []byte // the request
	in     []byte // what has been read
	from   int    // … and what of it has been answered
	sum    []byte
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
	var d net.Dialer
	d.Timeout = patience
	var c net.Conn
	if u.Scheme == "https" {
		c, err = (&tls.Dialer{NetDialer: &d}).DialContext(ctx, "tcp", withPort(u, "443"))
	} else {
		c, err = d.DialContext(ctx, "tcp", withPort(u, "80"))
	}
	if errors.Is(err, syscall.EMFILE) {
		return nil, fmt.Errorf("this process may not open more files: raise the limit (ulimit -n), or ask for fewer --sockets and --connections")
	}
	if err != nil {
		return nil, err
	}
	head := rand.Text()[:12]
	return &conn{net: c, host: u.Host, macs: map[*mecha]hash.Hash{}, nonce: []byte(head), in: make([]byte, 0, 2048)}, nil
}

func withPort(u *url.URL, port string) string {
	if u.Port() != "" {
		port = u.Port()
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// sign appends the headers of PROTOCOL §2.
func (c *conn) sign(m *mecha, body []byte) {
	if now := time.Now().Unix(); now != c.second {
		c.second, c.stamp = now, time.Unix(now, 0).UTC().AppendFormat(c.stamp[:0], time.RFC3339)
	}
	c.count++
	nonce := strconv.AppendUint(c.nonce[:12], c.count, 36)
	mac := c.macs[m]
	if mac == nil {
		mac = hmac.New(sha256.New, []byte(m.key))
		c.macs[m] = mac
	}
	mac.Reset()
	mac.Write(body)
	b := append(c.out, "X-Mecha-Key: "...)
	b = append(append(b, m.key...), "\r\nX-Nonce: "...)
	b = append(append(b, nonce...), "\r\nX-Request-Timestamp: "...)
	b = append(append(b, c.stamp...), "\r\nX-Signature: "...)
	start := len(b) // the signed text's tail stands here for a moment
	b = append(append(append(append(b, '|'), nonce...), '|'), c.stamp...)
	mac.Write(b[start:])
	c.sum = mac.Sum(c.sum[:0])
	c.nonce, c.out = nonce, append(base64.StdEncoding.AppendEncode(b[:start], c.sum), "\r\n"...)
}

// do sends a request and reads the answer, whose body is good until the next
// one. A status other than the wanted one is an error that tells the problem.
func (c *conn) do(m *mecha, method, path string, body []byte, want int) ([]byte, error) {
	c.out = append(append(append(append(c.out[:0], method...), ' '), path...), " HTTP/1.1\r\nHost: "...)
	c.out = append(append(c.out, c.host...), "\r\n"...)
	c.sign(m, body)
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

// A refusal is an answer with another status than the wanted one.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refused(status int, body []byte) error {
	var p struct{ Code, Detail string }
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return &refusal{fmt.Sprintf("the relay answered %d", status)}
	}
	return &refusal{fmt.Sprintf("%d %s: %s", status, p.Code, p.Detail)}
}

var (
	endOfHead     = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

// answer reads one response: the relay gives the length of all of them.
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

// more reads what there is.
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
