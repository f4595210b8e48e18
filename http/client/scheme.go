package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
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

// answerToHTTP is how a TLS server of net/http, as a relay is, answers a
// request without TLS.
const answerToHTTP = "Client sent an HTTP request to an HTTPS server"

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
		errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return wrongScheme(asked, err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w (is the relay running at %s?)", err, asked.Scheme+"://"+asked.Host)
	}
	return err
}
