package http

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"relay/db/relay"

	"github.com/julienschmidt/httprouter"
)

// call is one authenticated request. It belongs to the request's goroutine.
type call struct {
	*http.Request
	w         http.ResponseWriter // for deadlines and upgrades; answers are returned
	params    httprouter.Params
	at        time.Time
	key       *relay.Key
	body      []byte // as sent
	nonce     string
	timestamp time.Time
	signed    bool // the signature has been verified
	claimed   relay.NonceHash

	idempotency relay.IdempotencyKey // of a send; zero: none
	replay      bool                 // the nonce came before: only the stored 201 will do
	release     func()
	held        int64 // bytes of Server.memory, for the body
	answered    int64 // … and for the answer
}

// done gives back what the request held.
func (c *call) done(s *Server) {
	c.release()
	if c.key != nil {
		s.memory.give(c.key.Number, c.held)
		s.memory.give(c.key.Number, c.answered)
	}
}

// authenticate establishes who sent a request, in the order of PROTOCOL §2:
// key, rate, encoding and size, header syntax and timestamp, signature, nonce.
// A failure of the credentials is counted against the client's address.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request, p httprouter.Params) (*call, error) {
	if s.draining.Load() {
		e := relay.Errorf(relay.ShuttingDown, "the relay is shutting down")
		e.RetryAfter = time.Second
		return nil, e
	}
	c := &call{Request: r, w: w, params: p, at: s.Now(), release: func() {}}
	err := s.verify(c)
	if err == nil {
		err = s.claim(c)
	}
	if err != nil {
		c.done(s)
		return nil, s.countFailure(r, err)
	}
	return c, nil
}

// verify does all but the nonce, so that what is refused here does not burn it.
func (s *Server) verify(c *call) error {
	text, err := header(c.Request, "X-Mecha-Key")
	if err != nil {
		return err
	}
	if c.key, err = s.DB.Key(c.Context(), text); err != nil {
		return err
	}
	vouch(c.Context())
	if !s.keys.allow(c.key.Number, c.at) {
		e := relay.Errorf(relay.RateLimited, "more than %g requests a second with this key", s.RateLimit)
		e.RetryAfter = time.Second
		return e
	}
	if err := s.readBody(c); err != nil {
		return err
	}
	// After the body, which may come slowly: a timestamp that is judged by an
	// older clock could outlive the memory of its nonce.
	c.at = s.Now()
	if c.nonce, err = header(c.Request, "X-Nonce"); err != nil {
		return err
	}
	if !isNonce(c.nonce) {
		return relay.Errorf(relay.MalformedHeader, "X-Nonce must be 1–128 of A–Z a–z 0–9 . _ ~ : + / = -")
	}
	timestamp, err := header(c.Request, "X-Request-Timestamp")
	if err != nil {
		return err
	}
	if c.timestamp, err = relay.ParseTime(timestamp); err != nil {
		return relay.Errorf(relay.MalformedHeader, "X-Request-Timestamp is no RFC 3339 time, as in %s", relay.FormatTime(c.at))
	}
	if d := c.at.Sub(c.timestamp); d > s.ClockSkew || -d > s.ClockSkew {
		e := relay.Errorf(relay.TimestampOutOfRange, "X-Request-Timestamp is more than %s off; the relay's clock says %s", s.ClockSkew, relay.FormatTime(c.at))
		e.ServerTime = c.at
		return e
	}
	return s.checkSignature(c, text, timestamp)
}

func (s *Server) checkSignature(c *call, keyText, timestamp string) error {
	values := c.Header["X-Signature"]
	if len(values) == 0 {
		if s.RequireSignature {
			return relay.Errorf(relay.SignatureRequired, "this relay takes signed requests only: send X-Signature")
		}
		return nil
	}
	text, err := header(c.Request, "X-Signature")
	if err != nil {
		return err
	}
	signature, ok := relay.DecodeSignature(text)
	if !ok {
		return relay.Errorf(relay.MalformedHeader, "X-Signature must be the Base64 of 32 bytes")
	}
	if !c.key.Verify(keyText, signature, c.body, c.nonce, timestamp) {
		return relay.Errorf(relay.InvalidSignature, "X-Signature does not sign body|nonce|timestamp under this key's signing secret")
	}
	c.signed = true
	return nil
}

// claim uses up the nonce. A send with an Idempotency-Key may come again with
// the nonce it had, for its stored 201 and nothing else: HTTP libraries resend
// such requests by themselves.
func (s *Server) claim(c *call) error {
	mayReplay, err := s.beginSend(c)
	if err != nil {
		return err
	}
	c.claimed, err = s.DB.Claim(c.key, c.nonce, c.timestamp)
	if mayReplay && relay.ErrorCode(err) == relay.NonceReused {
		_, known, fault := s.stored(c)
		if known || fault != nil && relay.ErrorCode(fault) != relay.IdempotencyKeyReused {
			c.replay, err = known, fault
		}
	}
	return err
}

// header reads a header that must be there once and not be empty.
func header(r *http.Request, name string) (string, error) {
	switch v := r.Header[name]; {
	case len(v) == 0 || len(v) == 1 && v[0] == "":
		return "", relay.Errorf(relay.MissingHeader, "%s is missing; every request carries X-Mecha-Key, X-Request-Timestamp and X-Nonce", name)
	case len(v) > 1:
		return "", relay.Errorf(relay.MalformedHeader, "%s must come once", name)
	default:
		return v[0], nil
	}
}

func isNonce(s string) bool {
	if len(s) < 1 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._~:+/=-", c) >= 0) {
			return false
		}
	}
	return true
}

// readBody reads the whole body, which is bounded, before anything looks at it.
func (s *Server) readBody(c *call) error {
	for _, e := range c.Header["Content-Encoding"] {
		if e != "" && !strings.EqualFold(e, "identity") {
			return relay.Errorf(relay.UnsupportedEncoding, "Content-Encoding is not supported: the signature covers the bytes as sent")
		}
	}
	if c.Body == nil || c.ContentLength == 0 {
		return nil
	}
	tooLarge := relay.Errorf(relay.PayloadTooLarge, "the request body is over the limit of %d bytes", s.MaxBody)
	if s.MaxBody > 0 && c.ContentLength > s.MaxBody {
		return tooLarge
	}
	room := c.ContentLength
	if room < 0 {
		room = s.MaxBody // it may become as much
	}
	err := s.memory.take(c.key.Number, room)
	if err != nil {
		return err
	}
	c.held = room
	if c.ContentLength > 0 && s.MaxBody > 0 { // what is announced, and not yet sent, is bounded
		c.body = make([]byte, c.ContentLength)
		_, err = io.ReadFull(c.Body, c.body)
	} else {
		limited := io.Reader(c.Body)
		if s.MaxBody > 0 {
			limited = io.LimitReader(c.Body, s.MaxBody+1)
		}
		c.body, err = io.ReadAll(limited)
		if err == nil && s.MaxBody > 0 && int64(len(c.body)) > s.MaxBody {
			return tooLarge
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return relay.Errorf(relay.RequestTimeout, "the request body did not arrive in time")
	}
	if err != nil {
		return relay.Errorf(relay.InvalidRequest, "the request body ended early")
	}
	return nil
}

// countFailure counts a failed authentication against the client's address.
// When too many came from there, failures are answered with 429; requests with
// good credentials are not affected, so nobody can lock out somebody else.
func (s *Server) countFailure(r *http.Request, err error) error {
	if statusOf(err) != http.StatusUnauthorized || s.failures.allow(customer(s.client(r)), s.Now()) {
		return err
	}
	s.tooMany.Do(func() {
		s.Logger.Warn("too many failed authentications", "client", s.client(r), "last", relay.ErrorCode(err))
	})
	e := relay.Errorf(relay.TooManyFailures, "too many failed authentications from this address; the last was %s", relay.ErrorCode(err))
	e.RetryAfter = time.Second
	return e
}
