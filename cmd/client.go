package cmd

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"os"
	"strings"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/spf13/cobra"

	"relay/db"
)

// client speaks to a relay as one Mecha, signing every request.
type client struct {
	url    string
	key    string
	secret string // "": the key's own text signs
	http   *nethttp.Client
}

const clientTimeout = 90 * time.Second // longer than the longest long-poll

// credentials are the flags of every client command.
type credentials struct{ url, keyFile string }

func (c *credentials) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "http://127.0.0.1:8080", "the relay's `address`")
	c.keyFlag(cmd)
}

func (c *credentials) keyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.keyFile, "key-file", "", "read the key from a `file` instead of RELAY_KEY")
}

// client makes a client for --url.
func (c *credentials) client() (*client, error) {
	if !strings.HasPrefix(c.url, "http://") && !strings.HasPrefix(c.url, "https://") {
		return nil, usagef("--url must begin with http:// or https://, and is %q", c.url)
	}
	return c.signer()
}

// signer makes a client that need not send anything. It takes the key from
// --key-file or RELAY_KEY, and the signing secret from RELAY_SIGNING_SECRET:
// never from an argument, which others can see.
func (c *credentials) signer() (*client, error) {
	key := os.Getenv("RELAY_KEY")
	if c.keyFile != "" {
		b, err := os.ReadFile(c.keyFile)
		if err != nil {
			return nil, err
		}
		key = string(b)
	}
	if key = strings.TrimSpace(key); key == "" {
		return nil, usagef("no key: set RELAY_KEY, or --key-file (relay key create ADDRESS issues one)")
	}
	return newClient(c.url, key, strings.TrimSpace(os.Getenv("RELAY_SIGNING_SECRET"))), nil
}

func newClient(url, key, secret string) *client {
	return &client{url: strings.TrimSuffix(url, "/"), key: key, secret: secret, http: &nethttp.Client{
		Timeout: clientTimeout,
		// A redirect would carry the key to another host.
		CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse },
	}}
}

// headers makes the authentication headers for a body (PROTOCOL §2).
func (c *client) headers(body []byte) nethttp.Header {
	nonce, timestamp, secret := rand.Text(), db.FormatTime(time.Now()), c.secret
	if secret == "" {
		secret = c.key
	}
	return nethttp.Header{
		"X-Mecha-Key":         {c.key},
		"X-Request-Timestamp": {timestamp},
		"X-Nonce":             {nonce},
		"X-Signature":         {base64.StdEncoding.EncodeToString(db.Sign(secret, body, nonce, timestamp))},
	}
}

// do sends one signed request and reads the whole answer.
func (c *client) do(ctx context.Context, method, path string, body []byte, more nethttp.Header) (*nethttp.Response, []byte, error) {
	req, err := nethttp.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header = c.headers(body)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range more {
		req.Header[name] = values
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, nil, fmt.Errorf("%w (is the relay running at %s?)", err, c.url)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp, answer, err
}

// call is do for an answer that is wanted as a value. in is sent as JSON, or as
// it is if it is a []byte. Another status than 2xx is an error.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	body, raw := in.([]byte)
	if in != nil && !raw {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	resp, answer, err := c.do(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode/100 != 2 {
		return problemOf(resp.StatusCode, answer)
	}
	return json.Unmarshal(answer, out)
}

// problemOf makes a sentence of a problem document.
func problemOf(status int, body []byte) error {
	var p struct{ Code, Detail string }
	if json.Unmarshal(body, &p) != nil || p.Code == "" {
		return fmt.Errorf("the relay answered %d %s", status, nethttp.StatusText(status))
	}
	return fmt.Errorf("%s (%d %s; relay errors %s)", p.Detail, status, p.Code, p.Code)
}

// socket is a WebSocket to a relay.
type socket struct {
	io.ReadWriteCloser
	r io.Reader
}

// dial opens the Mecha's WebSocket; query begins with "?" or is "".
func (c *client) dial(ctx context.Context, address db.Address, query string) (*socket, error) {
	d := ws.Dialer{Header: ws.HandshakeHeaderHTTP(c.headers(nil)), Timeout: 10 * time.Second}
	url := "ws" + strings.TrimPrefix(c.url, "http") + "/api/v1/ws/mecha/" + string(address) + query
	conn, early, _, err := d.Dial(ctx, url)
	if err != nil {
		return nil, err
	}
	s := &socket{ReadWriteCloser: conn, r: conn}
	if early != nil {
		s.r = early
	}
	return s, nil
}

// receive reads the next frame into v.
func (s *socket) receive(v any) error {
	rw := struct {
		io.Reader
		io.Writer
	}{s.r, s.ReadWriteCloser}
	frame, err := wsutil.ReadServerText(rw)
	if err != nil {
		return err
	}
	return json.Unmarshal(frame, v)
}

func (s *socket) send(v any) error {
	frame, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return wsutil.WriteClientText(s.ReadWriteCloser, frame)
}

func asError(err error, target **db.Error) bool { return errors.As(err, target) }
