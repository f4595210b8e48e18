package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// WrongScheme is the error of a URL that begins with https:// where the relay
// speaks HTTP without TLS, or with http:// where it speaks HTTPS.
type WrongScheme struct {
	Speaks string // what the relay speaks: http or https
	URL    string // where to ask instead, without a password
	Err    error
}

func (e *WrongScheme) Error() string {
	other := "http"
	if e.Speaks == other {
		other = "https"
	}
	return fmt.Sprintf("the relay speaks %s here, not %s: use %s", e.Speaks, other, e.URL)
}

// Unwrap returns what the connection failed with.
func (e *WrongScheme) Unwrap() error { return e.Err }

// answersToHTTP are words with which TLS servers answer a request without TLS. The first are from net/http,
// which a relay and Caddy use, the second those of nginx, the third those of Apache. Each of these servers may
// be in front of a relay.
var answersToHTTP = [][]byte{
	[]byte("Client sent an HTTP request to an HTTPS server"),
	[]byte("The plain HTTP request was sent to HTTPS port"),
	[]byte("speaking plain HTTP to an SSL-enabled server port"),
}

// wantsTLS reports whether the body of a 400 says that the server speaks HTTPS. The
// relay's own refusals are JSON, and may repeat the words of a client.
func wantsTLS(body []byte) bool {
	return !bytes.HasPrefix(body, []byte("{")) &&
		slices.ContainsFunc(answersToHTTP, func(says []byte) bool { return bytes.Contains(body, says) })
}

// tlsAlert is in the error of net/http when a server answers with an alert of TLS
// (RFC 8446 §6) instead of HTTP.
const tlsAlert = `malformed HTTP response "\x15\x03`

// wrongScheme makes the error for a URL that was asked in vain.
func wrongScheme(asked *url.URL, err error) error {
	use := &url.URL{Scheme: "https", Host: asked.Host}
	if asked.Scheme == "https" {
		use.Scheme = "http"
	}
	return &WrongScheme{Speaks: use.Scheme, URL: use.String(), Err: err}
}

// explain adds to the error of a connection what its text does not say.
func explain(asked *url.URL, err error) error {
	var dial *net.OpError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, http.ErrSchemeMismatch),
		asked.Scheme == "http" && strings.Contains(err.Error(), tlsAlert),
		errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return wrongScheme(asked, err)
	case errors.As(err, &dial) && dial.Op == "dial":
		err = fmt.Errorf("%w (is the relay running at %s?)", err, asked.Scheme+"://"+asked.Host)
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%s does not answer in time: %w", asked.Scheme+"://"+asked.Host, err)
	}
	return &Unreachable{err}
}
