package cmd

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	neturl "net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"relay/db/relay"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/spf13/cobra"
)

// client speaks to a relay as one Mecha, signing every request.
type client struct {
	url    string
	key    string
	secret string // "": the key's own text signs
	http   *nethttp.Client
	tls    *tls.Config // nil: the system's CAs
}

const clientTimeout = 90 * time.Second // longer than the longest long-poll

// credentials are the flags of every client command.
type credentials struct{ url, keyFile, caFile string }

func (c *credentials) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.url, "url", "http://127.0.0.1:8080", "the relay's `address`")
	cmd.Flags().StringVar(&c.caFile, "ca-file", "", "with https: trust the certificates in this PEM `file` too")
	c.keyFlag(cmd)
}

func (c *credentials) keyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.keyFile, "key-file", "", "read the key from a `file` instead of RELAY_KEY")
}

// client makes a client for --url, which no error repeats: it may hold a
// password, or by mistake be the key.
func (c *credentials) client() (*client, error) {
	switch u, err := neturl.Parse(c.url); {
	case !strings.HasPrefix(c.url, "http://") && !strings.HasPrefix(c.url, "https://"):
		return nil, usagef("--url (RELAY_URL) must begin with http:// or https://")
	case err != nil || u.Host == "":
		return nil, usagef("--url (RELAY_URL) is no address, such as http://127.0.0.1:8080 or https://relay.example.com")
	}
	client, err := c.signer()
	if err == nil && c.caFile != "" {
		err = client.trust(c.caFile)
	}
	return client, err
}

// trust adds the certificates of a PEM file to the system's.
func (c *client) trust(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read --ca-file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil { // there is none
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("%s (--ca-file) has no certificate in PEM", file)
	}
	c.tls = &tls.Config{RootCAs: pool}
	c.http.Transport.(*nethttp.Transport).TLSClientConfig = c.tls.Clone() // which it changes
	return nil
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
	if strings.ContainsFunc(key, unicode.IsControl) { // it could not travel in a header
		return nil, errors.New("the key has a line break or another control character in it; a key is one line, as relay key create printed it")
	}
	return newClient(c.url, key, strings.TrimSpace(os.Getenv("RELAY_SIGNING_SECRET"))), nil
}

func newClient(url, key, secret string) *client {
	transport := nethttp.DefaultTransport.(*nethttp.Transport).Clone()
	transport.MaxIdleConnsPerHost = acksAtOnce // a listener has so many requests under way
	return &client{url: strings.TrimSuffix(url, "/"), key: key, secret: secret, http: &nethttp.Client{
		Timeout: clientTimeout, Transport: transport,
		// A redirect would carry the key to another host.
		CheckRedirect: func(*nethttp.Request, []*nethttp.Request) error { return nethttp.ErrUseLastResponse },
	}}
}

// shown is the relay's address without a password.
func (c *client) shown() string {
	u, err := neturl.Parse(c.url)
	if err != nil {
		return "--url"
	}
	return u.Redacted()
}

// headers makes the authentication headers for a body (PROTOCOL §2).
func (c *client) headers(body []byte) nethttp.Header {
	nonce, timestamp, secret := rand.Text(), relay.FormatTime(time.Now()), c.secret
	if secret == "" {
		secret = c.key
	}
	return nethttp.Header{
		"X-Mecha-Key":         {c.key},
		"X-Request-Timestamp": {timestamp},
		"X-Nonce":             {nonce},
		"X-Signature":         {base64.StdEncoding.EncodeToString(relay.Sign(secret, body, nonce, timestamp))},
	}
}

// do sends one signed request and reads the whole answer.
func (c *client) do(ctx context.Context, method, path string, body []byte, more nethttp.Header) (*nethttp.Response, []byte, error) {
	req, err := nethttp.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, usagef("not a path to ask for: %v", err) // --url is known to be good
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
		return nil, nil, fmt.Errorf("%w (is the relay running at %s?)", err, c.shown())
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
		return problemOf(resp, answer)
	}
	return json.Unmarshal(answer, out)
}

// A refusal is an answer that is no 2xx.
type refusal struct {
	status int
	code   relay.Code // "": no problem document; something else than a relay may have answered
	detail string
	after  time.Duration // Retry-After
}

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("the relay answered %d %s", r.status, nethttp.StatusText(r.status))
	}
	return fmt.Sprintf("%s (%d %s; relay errors %s)", r.detail, r.status, r.code, r.code)
}

// problemOf makes a *refusal of an answer.
func problemOf(resp *nethttp.Response, body []byte) error {
	r := &refusal{status: resp.StatusCode}
	var p struct {
		Code   relay.Code
		Detail string
	}
	if json.Unmarshal(body, &p) == nil {
		r.code, r.detail = p.Code, p.Detail
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.after = time.Duration(seconds) * time.Second
	}
	return r
}

// refusedWith tells whether an error is the relay's refusal for one of these reasons.
func refusedWith(err error, codes ...relay.Code) bool {
	var r *refusal
	return errors.As(err, &r) && slices.Contains(codes, r.code)
}

// socket is a WebSocket to a relay. One goroutine reads; any may write, for
// every frame is one Write.
type socket struct {
	net.Conn
	r io.Reader
}

const (
	dialTimeout = 10 * time.Second
	silence     = 90 * time.Second // without a frame: the relay is gone, for it pings every 25 s
)

// dial opens the Mecha's WebSocket; query begins with "?" or is "". A refused
// handshake is a *refusal, as that of any request.
func (c *client) dial(ctx context.Context, address relay.Address, query string) (*socket, error) {
	var refused error
	d := ws.Dialer{Header: ws.HandshakeHeaderHTTP(c.headers(nil)), Timeout: dialTimeout, TLSConfig: c.tls,
		OnStatusError: func(_ int, _ []byte, answer io.Reader) {
			resp, err := nethttp.ReadResponse(bufio.NewReader(answer), nil)
			if err != nil {
				return // the status is in the error of Dial
			}
			defer resp.Body.Close()
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // cut off, it is no problem document
			refused = problemOf(resp, body)
		}}
	url := "ws" + strings.TrimPrefix(c.url, "http") + "/api/v1/ws/mecha/" + string(address) + query
	conn, early, _, err := d.Dial(ctx, url)
	if err != nil {
		return nil, cmp.Or(refused, err)
	}
	s := &socket{Conn: conn, r: conn}
	if early != nil {
		s.r = early
	}
	return s, nil
}

// receive reads the next frame into v. The end of the connection is an error:
// a wsutil.ClosedError if the relay said why.
func (s *socket) receive(v any) error {
	r := &wsutil.Reader{Source: s.r, State: ws.StateClientSide, CheckUTF8: true, OnIntermediate: s.control}
	for {
		// For each frame: a ping, too, is a sign of life.
		if err := s.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		h, err := r.NextFrame()
		if err != nil {
			return err
		}
		if h.OpCode.IsControl() {
			if err := s.control(h, r); err != nil {
				return err
			}
			continue
		}
		frame, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return json.Unmarshal(frame, v)
	}
}

// control answers a ping, and notes a close. The library's own handler takes
// 1013, by which the relay says where to resume, for a fault.
func (s *socket) control(h ws.Header, r io.Reader) error {
	payload := make([]byte, h.Length) // at most 125: the header was checked
	if _, err := io.ReadFull(r, payload); err != nil {
		return err
	}
	switch h.OpCode {
	case ws.OpPing:
		return s.write(ws.NewPongFrame(payload))
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(payload)
		_ = s.write(ws.NewCloseFrame(payload[:min(len(payload), 2)])) // out of courtesy
		return wsutil.ClosedError{Code: code, Reason: reason}
	}
	return nil
}

func (s *socket) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(ws.NewTextFrame(text))
}

// write sends a frame as one Write, so that goroutines may write side by side.
func (s *socket) write(f ws.Frame) error {
	frame, err := ws.CompileFrame(ws.MaskFrame(f))
	if err != nil {
		return err
	}
	if err := s.SetWriteDeadline(time.Now().Add(dialTimeout)); err != nil {
		return err
	}
	_, err = s.Write(frame)
	return err
}

func asError(err error, target **relay.Error) bool { return errors.As(err, target) }
