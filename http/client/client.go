package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"relay/db/relay"
)

// Config says which relay to speak to, and as whom.
type Config struct {
	// URL is where the relay is, as in http://127.0.0.1:8080 or
	// https://relay.example.com. The paths of requests are appended to it.
	URL string
	// Key is the Mecha's key.
	Key string
	// SigningSecret signs the requests if the key was issued with a secret of
	// its own. Else it is empty, and the key signs.
	SigningSecret string
	// TLS is for https. nil: the relay's certificate must be signed by an
	// authority that this system trusts. New copies it.
	TLS *tls.Config
}

// ConfigError is a field of a Config or of options, or a header, that cannot be used. It does
// not repeat the value, which may be a secret.
type ConfigError struct {
	Field  string // as in URL, TTL or Idempotency-Key
	Reason string // as in "must begin with http:// or https://"
}

func (e *ConfigError) Error() string { return e.Field + " " + e.Reason }

// Client speaks to one relay as one Mecha. All its methods may be called
// concurrently.
type Client struct {
	url         string // without a slash at the end
	prefix      string // the path of url, which the relay behind it does not see
	key, secret string
	tls         *tls.Config
	http        *http.Client
	questions   questions
}

const (
	requestTimeout  = 90 * time.Second // more than the longest long-poll, which is 60 s
	idleConnections = 32               // a listener has that many acknowledgements under way
)

// New makes a client. It sends nothing. The error is a *ConfigError.
func New(config Config) (*Client, error) {
	u, err := url.Parse(config.URL)
	switch {
	case !strings.HasPrefix(config.URL, "http://") && !strings.HasPrefix(config.URL, "https://"):
		return nil, &ConfigError{"URL", "must begin with http:// or https://"}
	case err != nil || u.Host == "":
		return nil, &ConfigError{"URL",
			"is not a valid address; valid are http://127.0.0.1:8080 and https://relay.example.com"}
	}
	if _, err := NewSigner(config.Key, config.SigningSecret); err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = idleConnections
	transport.TLSClientConfig = config.TLS.Clone() // the transport changes it
	return &Client{
		url: strings.TrimSuffix(config.URL, "/"), prefix: strings.TrimSuffix(u.EscapedPath(), "/"), key: config.Key,
		secret: config.SigningSecret, tls: config.TLS.Clone(),
		http: &http.Client{
			Timeout: requestTimeout, Transport: transport,
			// A redirect would carry the key to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// URL returns where the relay is, without a slash at the end.
func (c *Client) URL() string { return c.url }

// Response is a whole answer of the relay.
type Response struct {
	Proto  string // as in HTTP/1.1
	Status int
	Header http.Header
	Body   []byte
}

// Err returns nil if the status is 2xx, else a *Refusal.
func (r *Response) Err() error {
	if r.Status/100 == 2 {
		return nil
	}
	return newRefusal(r)
}

// ErrInvalidRequest is the error of a method or path that HTTP does not allow.
// Nothing was sent.
var ErrInvalidRequest = errors.New("not a valid method or path")

// isHeader reports whether HTTP allows a header (RFC 9110 §5.1, §5.5).
func isHeader(name string, values []string) bool {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	control := func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }
	return name != "" && strings.Trim(name, token) == "" && !strings.ContainsFunc(strings.Join(values, ""), control)
}

// errNotSent is the error of a request whose context had ended before.
var errNotSent = errors.New("nothing was sent")

// Do sends one freshly signed request, and reads the whole answer, whatever its status is. path
// begins with a slash and may have a query. body is sent as it is; nil is none. header may be nil;
// it is added to the headers that authenticate the request, and wins over them.
//
// A header that HTTP does not allow is a *ConfigError, and nothing is sent. Any other
// error means that there is no whole answer: then NothingDone reports whether
// the relay can have received the request. A request takes at most 90 seconds.
// Redirects are not followed.
func (c *Client) Do(ctx context.Context, method, path string, body []byte, header http.Header) (*Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err) // New has checked the URL
	}
	req.Header = c.authentication(req, body)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		if !isHeader(name, values) {
			return nil, &ConfigError{relay.Visible(name),
				"is no header that HTTP allows; a value must have no control characters"}
		}
		req.Header[name] = values
	}
	if ctx.Err() != nil {
		return nil, &Unreachable{fmt.Errorf("%w: %w", errNotSent, context.Cause(ctx))}
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, explain(req.URL, err)
	}
	return readResponse(req.URL, resp)
}

// readResponse reads the body, and closes it.
func readResponse(asked *url.URL, resp *http.Response) (*Response, error) {
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	// First this: that server hangs up so soon that there may be an error too.
	if asked.Scheme == "http" && resp.StatusCode == http.StatusBadRequest && wantsTLS(body) {
		return nil, wrongScheme(asked, fmt.Errorf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode)))
	}
	if err != nil {
		return nil, &Unreachable{err}
	}
	return &Response{Proto: resp.Proto, Status: resp.StatusCode, Header: resp.Header, Body: body}, nil
}

// authentication makes the headers for a request with this body (PROTOCOL §2).
func (c *Client) authentication(req *http.Request, body []byte) http.Header {
	req.URL.RawQuery = strings.ReplaceAll(req.URL.RawQuery, "|", "%7C") // a bar would part the signed text
	target := strings.TrimPrefix(req.URL.RequestURI(), c.prefix)
	// one for each request: a Signer is not for concurrent use
	return newSigner(c.key, c.secret).RequestHeader(req.Method, target, body)
}

// Call is Do for an answer that is wanted as a value. in is sent as JSON, or as
// it is if it is a []byte, or not at all if it is nil. The answer's JSON is
// stored in out. An answer with another status than 2xx is a *Refusal.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	body, raw := in.([]byte)
	if in != nil && !raw {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	resp, err := c.Do(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	if err := resp.Err(); err != nil {
		return err
	}
	return json.Unmarshal(resp.Body, out)
}

// Address asks the relay for the address of the Mecha whose key this is.
func (c *Client) Address(ctx context.Context) (relay.Address, error) {
	var who struct {
		MechaID relay.Address `json:"mecha_id"`
	}
	err := c.Call(ctx, "GET", "/api/v1/whoami", nil, &who)
	return who.MechaID, err
}
