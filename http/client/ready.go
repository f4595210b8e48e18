package client

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Readiness is what a relay says of itself (PROTOCOL §9, /readyz).
type Readiness struct {
	Ready     bool
	Accepting bool // messages are accepted; false if the disk is nearly full
	Parts     []ReadyPart
	Detail    string          // why the relay is not ready
	Answer    json.RawMessage // the whole answer
}

// ReadyPart is a part of a relay.
type ReadyPart struct {
	Name   string `json:"name"`
	Ready  bool   `json:"ready"`
	Needed bool   `json:"needed"` // the relay is ready only if the part is
	Detail string `json:"detail"`
}

const maxReadiness = 64 << 10 // bytes of an answer

// AskReady asks the relay at base whether it is ready. It needs no key. config is as in Config.TLS. The
// error is a *ConfigError, or tells that nobody answered, or that the server is not a relay.
func AskReady(ctx context.Context, base string, config *tls.Config) (Readiness, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Readiness{}, &ConfigError{"URL",
			"is not a valid address; valid are http://127.0.0.1:8080 and https://relay.example.com"}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+"/readyz", nil)
	if err != nil {
		return Readiness{}, &ConfigError{"URL", "is not a valid address"}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.DisableKeepAlives = config.Clone(), true
	response, err := transport.RoundTrip(request) // so that no redirect is followed
	if err != nil {
		return Readiness{}, explain(u, err)
	}
	response.Body = http.MaxBytesReader(nil, response.Body, maxReadiness)
	whole, err := readResponse(u, response)
	if err != nil {
		return Readiness{}, err
	}
	var answer struct {
		Status    any         `json:"status"` // a word, or the number of a problem document
		Accepting bool        `json:"accepting_messages"`
		Parts     []ReadyPart `json:"parts"`
		Detail    string      `json:"detail"`
	}
	if err := json.Unmarshal(whole.Body, &answer); err != nil || answer.Status == nil {
		return Readiness{}, fmt.Errorf("%s answers with status %d, and not as a relay does", u.Redacted(), whole.Status)
	}
	return Readiness{Ready: whole.Status == http.StatusOK, Accepting: answer.Accepting, Parts: answer.Parts,
		Detail: answer.Detail, Answer: whole.Body}, nil
}
