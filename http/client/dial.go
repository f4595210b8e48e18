package client

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"relay/db/relay"
)

const dialTimeout = 10 * time.Second // for the connection and the handshake

var errDialTimeout = &Unreachable{fmt.Errorf("no WebSocket within %v", dialTimeout)}

// dialTCP connects without TLS. Tests may connect in memory.
var dialTCP = (&net.Dialer{}).DialContext

// Connect opens a connection to where a URL leads, with TLS if that is https; config may be nil. Do
// and Dial connect automatically: this is for programs that write their requests themselves.
func Connect(ctx context.Context, address string, config *tls.Config) (net.Conn, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	port, dial := "80", dialTCP
	if u.Scheme == "https" {
		port, dial = "443", (&tls.Dialer{Config: config}).DialContext
	}
	if u.Port() != "" {
		port = u.Port()
	}
	conn, err := dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, explain(u, err)
	}
	return conn, nil
}

// Dial opens the WebSocket of a Mecha, which must be the Mecha of the key.
// query has the options of the connection, as in
// "sync_limit=0&events=receipts"; it may be empty. Dial takes at most 10
// seconds. A handshake that the relay refuses is a *Refusal.
//
// The socket lives no longer than ctx: when ctx ends, the socket is closed.
func (c *Client) Dial(ctx context.Context, address relay.Address, query string) (*Socket, error) {
	dialing, cancel := context.WithTimeoutCause(ctx, dialTimeout, errDialTimeout)
	defer cancel()
	conn, err := Connect(dialing, c.url, c.tls)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(dialing, func() { conn.Close() })
	in, err := c.handshake(conn, "/api/v1/ws/mecha/"+url.PathEscape(string(address))+"?"+query)
	if !stop() {
		err = context.Cause(dialing)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return newSocket(ctx, conn, in), nil
}

// handshake asks for the WebSocket (RFC 6455 §4.1). The first frames may be in
// the reader that it returns.
func (c *Client) handshake(conn net.Conn, path string) (*bufio.Reader, error) {
	req, err := http.NewRequest("GET", c.url+path, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	var random [16]byte
	rand.Read(random[:]) // never fails
	key := base64.StdEncoding.EncodeToString(random[:])
	req.Header = c.authentication(req, nil)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "websocket")
	req.Header.Set("Sec-WebSocket-Version", "13")
	req.Header.Set("Sec-WebSocket-Key", key)
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	in := bufio.NewReader(&patient{Conn: conn})
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, explain(req.URL, err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		answer, err := readResponse(req.URL, resp)
		if err != nil {
			return nil, err
		}
		return nil, newRefusal(answer)
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if resp.Header.Get("Sec-WebSocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) {
		return nil, errors.New("the answer belongs to another WebSocket handshake: is there a proxy that caches?")
	}
	return in, nil
}
