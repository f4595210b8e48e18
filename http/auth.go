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
	w      http.ResponseWriter // for deadlines and upgrades; endpoints return their answers
	conn   *guarded            // nil if nothing bounds the connections
	params httprouter.Params
	input

	large       bool  // it has a turn for its large body
	bodyBytes   int64 // counted in Server.memory
	answerBytes int64 // counted in Server.memory
}

// input is what a client has sent, in a request or in a frame of a socket, and what
// proves that it comes from the client.
type input struct {
	at        time.Time
	key       *relay.Key
	body      []byte // of the request, or the message in the frame; as sent
	nonce     string
	timestamp time.Time
	signed    bool // it carried a signature, which verified
	claimed   relay.NonceHash

	idempotency relay.IdempotencyKey // of a send; zero: none
	replay      bool                 // the nonce was used before: only a stored 201 may answer
	endSend     func()               // lets the next send with this Idempotency-Key begin; nil without one
}

// done lets the next send with the same Idempotency-Key begin. It may be called again.
func (in *input) done() {
	if in.endSend != nil {
		in.endSend()
		in.endSend = nil
	}
}

// done releases what the request held.
func (c *call) done(s *Server) {
	c.release(s)
	if c.key != nil {
		s.memory.give(c.key.Mecha.Number, c.answerBytes)
	}
	c.conn.endWork()
}

// release releases what the request held for the sake of its body, which nobody reads
// from here on. It may be called again.
func (c *call) release(s *Server) {
	s.endLarge(c)
	c.input.done()
	if c.key != nil {
		s.memory.give(c.key.Mecha.Number, c.bodyBytes)
	}
	c.body, c.bodyBytes = nil, 0
}

// authenticate establishes who sent a request. It checks in the order of
// PROTOCOL §2: key, rate, encoding and size, header syntax and timestamp,
// signature, nonce. Bad credentials count as a failure of the client's address.
// The caller must call done on the result.
func (s *Server) authenticate(w http.ResponseWriter, r *http.Request, p httprouter.Params) (*call, error) {
	if err := s.refuseDraining(); err != nil {
		return nil, err
	}
	c := &call{Request: r, w: w, conn: connection(r.Context()), params: p, input: input{at: s.config.Now()}}
	err := s.verify(c)
	noteKey(w, c.key)
	if err == nil {
		err = s.claim(c)
	}
	if err != nil {
		c.done(s)
		return nil, s.countFailure(r, err)
	}
	return c, nil
}

// refuseDraining refuses all requests once the server stops.
func (s *Server) refuseDraining() error {
	if !s.draining.Load() {
		return nil
	}
	e := relay.Errorf(relay.ShuttingDown, "the relay is shutting down")
	e.RetryAfter = time.Second
	return e
}

// allow takes a token of the key's rate: RateLimited if none is left.
func (s *Server) allow(c *call) error {
	if s.keys.allow(c.key.Number, c.at) {
		return nil
	}
	e := relay.Errorf(relay.RateLimited, "more than %g requests a second with this key; "+
		"each %d rows that a page looks through count as one", s.config.RateLimit, rowsPerRequest)
	e.RetryAfter = s.keys.wait(c.key.Number, c.at)
	return e
}

// verify checks everything but the nonce, so that a request that is refused here
// does not use its nonce up.
func (s *Server) verify(c *call) error {
	text, err := header(c.Request, "X-Mecha-Key")
	if err != nil {
		return err
	}
	if c.key, err = s.config.DB.Key(c.Context(), text); err != nil {
		return err
	}
	c.conn.vouch(c.key.Mecha.Number)
	if err := s.allow(c); err != nil {
		return err
	}
	if err := s.readBody(c); err != nil {
		return err
	}
	if err := s.beginLarge(c); err != nil {
		return err
	}
	if !c.conn.beginWork() {
		return errEvicted
	}
	// Read the clock again, since the body may have come slowly: a timestamp
	// accepted by an older clock could stay valid after its nonce is forgotten.
	c.at = s.config.Now()
	if c.nonce, err = header(c.Request, "X-Nonce"); err != nil {
		return err
	}
	if err := checkNonce("X-Nonce", c.nonce); err != nil {
		return err
	}
	timestamp, err := header(c.Request, "X-Request-Timestamp")
	if err != nil {
		return err
	}
	if err := s.checkTimestamp("X-Request-Timestamp", &c.input, timestamp); err != nil {
		return err
	}
	return s.checkSignatures(c, timestamp)
}

// checkNonce refuses a nonce that has not the form of one. name is the name of its header or field.
func checkNonce(name, nonce string) error {
	if !relay.IsNonce(nonce) {
		return relay.Errorf(relay.MalformedHeader, "%s must be 1–128 characters of A–Z a–z 0–9 . _ ~ : + / = -", name)
	}
	return nil
}

// checkTimestamp reads a timestamp into in. It refuses one that is too far from the relay's clock.
// name is the name of its header or field.
func (s *Server) checkTimestamp(name string, in *input, text string) (err error) {
	if in.timestamp, err = relay.ParseTime(text); err != nil {
		return relay.Errorf(relay.MalformedHeader, "%s is not an RFC 3339 time such as %s", name, relay.FormatTime(in.at))
	}
	if d := in.at.Sub(in.timestamp); d > s.config.ClockSkew || -d > s.config.ClockSkew {
		return errTimestamp(in.at, "%s differs from the relay's clock by more than %s; the clock says %s",
			name, s.config.ClockSkew, relay.FormatTime(in.at))
	}
	if in.timestamp.Before(s.config.DB.EarliestTimestamp(in.at)) {
		return errTimestamp(in.at, "%s lies before the relay's start, at which it may have lost used nonces; "+
			"the clock says %s: sign the request again", name, relay.FormatTime(in.at))
	}
	return nil
}

func errTimestamp(now time.Time, format string, args ...any) error {
	e := relay.Errorf(relay.TimestampOutOfRange, format, args...)
	e.ServerTime = now
	return e
}

// claim uses the nonce up.
func (s *Server) claim(c *call) error {
	mayReplay, err := s.beginSend(c)
	if err != nil {
		return err
	}
	return s.claimNonce(&c.input, mayReplay)
}

// claimNonce uses the nonce up. A send with an Idempotency-Key may be repeated with the same nonce, since HTTP
// libraries resend such requests automatically. It then gets its stored 201 and can do nothing else.
func (s *Server) claimNonce(in *input, mayReplay bool) (err error) {
	in.claimed, err = s.config.DB.Claim(in.key, in.nonce, in.timestamp)
	if mayReplay && relay.ErrorCode(err) == relay.NonceReused {
		// If the store cannot be read, the client learns that, and may try again.
		_, known, fault := s.stored(in)
		if known || fault != nil && relay.ErrorCode(fault) != relay.IdempotencyKeyReused {
			in.replay, err = known, fault
		}
	}
	return err
}

// header reads a header that must be sent once, with a value.
func header(r *http.Request, name string) (string, error) {
	switch v := r.Header[name]; {
	case len(v) == 0:
		return "", relay.Errorf(relay.MissingHeader,
			"%s is missing; every request carries X-Mecha-Key, X-Request-Timestamp and X-Nonce", name)
	case len(v) > 1:
		return "", relay.Errorf(relay.MalformedHeader, "%s must be sent once, not %d times", name, len(v))
	case v[0] == "":
		return "", relay.Errorf(relay.MissingHeader, "%s is empty; it must have a value", name)
	default:
		return v[0], nil
	}
}

// readBody reads the whole body before anything looks at it, for the signature
// covers all of it. MaxBody and the server's memory bound its length.
func (s *Server) readBody(c *call) error {
	for _, e := range c.Header["Content-Encoding"] {
		if e != "" && !strings.EqualFold(e, "identity") {
			return relay.Errorf(relay.UnsupportedEncoding,
				"Content-Encoding is not supported: the signature covers the bytes as sent")
		}
	}
	if c.Body == nil || c.ContentLength == 0 {
		return nil
	}
	limit := s.config.MaxBody
	if limit > 0 && c.ContentLength > limit {
		return errTooLarge(limit)
	}
	room := c.ContentLength
	if room < 0 { // chunked: it may become as long as is allowed
		room = limit
	}
	if !c.conn.beginBody() {
		c.w.Header().Set("Connection", "close") // the rest of the body is not waited for
		e := relay.Errorf(relay.RateLimited, "the bodies of %d requests of this Mecha are arriving already",
			c.conn.listener.maxBodies())
		e.RetryAfter = time.Second
		return e
	}
	defer c.conn.endBody()
	err := s.memory.take(c.key.Mecha.Number, room)
	if err != nil {
		return err
	}
	c.bodyBytes = room
	if c.ContentLength > 0 && limit > 0 { // without a limit, an announced length is not to be trusted
		c.body = make([]byte, c.ContentLength)
		_, err = io.ReadFull(c.Body, c.body)
	} else {
		limited := io.Reader(c.Body)
		if limit > 0 {
			limited = io.LimitReader(c.Body, limit+1)
		}
		c.body, err = io.ReadAll(limited)
		if err == nil && limit > 0 && int64(len(c.body)) > limit {
			return errTooLarge(limit)
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

// errEvicted reaches no client, since the connection has been closed.
var errEvicted = relay.Errorf(relay.Overloaded, "the connection was closed to make room")

func errTooLarge(limit int64) error {
	return relay.Errorf(relay.PayloadTooLarge, "the request body is longer than the limit of %d bytes", limit)
}

// countFailure counts a failed authentication against the client's address. Once
// there are too many, it replaces each further failure by 429. Requests with good
// credentials are not affected, so nobody can lock out anybody else.
func (s *Server) countFailure(r *http.Request, err error) error {
	if statusOf(err) != http.StatusUnauthorized {
		return err
	}
	client, code := s.client(r), relay.ErrorCode(err)
	if s.failures.allow(customer(client), s.config.Now()) {
		return err
	}
	s.failuresWarn.Do(func() {
		s.config.Logger.Warn("too many failed authentications", "client", client, "last", code)
	})
	e := relay.Errorf(relay.TooManyFailures, "too many failed authentications from this address; the last was %s", code)
	e.RetryAfter = time.Second
	return e
}
