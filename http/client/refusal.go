package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"relay/db/relay"
)

// Refusal is an answer with another status than 2xx, read from its problem
// document (RFC 9457, PROTOCOL §6).
type Refusal struct {
	Status     int
	Code       relay.Code      // to branch on; "" if the body is not a problem document: a proxy may have answered
	Detail     string          // a sentence for people
	DidYouMean []relay.Address // with recipient_not_found: addresses that are close
	RetryAfter time.Duration   // how long the relay asks to wait; 0 if it does not
	RequestID  string          // names the request in the relay's log
}

func newRefusal(resp *Response) *Refusal {
	r := &Refusal{Status: resp.Status, RequestID: resp.Header.Get("X-Request-Id")}
	var problem struct {
		Code       relay.Code
		Detail     string
		DidYouMean []relay.Address `json:"did_you_mean"`
	}
	if json.Unmarshal(resp.Body, &problem) == nil {
		r.Code, r.Detail, r.DidYouMean = problem.Code, problem.Detail, problem.DidYouMean
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		r.RetryAfter = time.Duration(seconds) * time.Second
	}
	return r
}

// Error returns one line: control characters in the answer are escaped.
func (r *Refusal) Error() string {
	if r.Code == "" {
		return fmt.Sprintf("the relay answered %d %s", r.Status, http.StatusText(r.Status))
	}
	return fmt.Sprintf("%s (%d %s)", relay.Visible(r.Detail), r.Status, relay.Visible(string(r.Code)))
}

// APICode returns Code, for those who do not know this package.
func (r *Refusal) APICode() relay.Code { return r.Code }

// Is compares by the code, for errors.Is with ErrRecipientNotFound and its like.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code != "" && t.Code == r.Code
}

// Unreachable is the error of a request to which no whole answer came, and of a WebSocket that
// could not be opened: the relay or the network is away. Its text is Err's.
type Unreachable struct{ Err error }

func (e *Unreachable) Error() string { return e.Err.Error() }

// Unwrap returns what failed; also the error of a context that has ended.
func (e *Unreachable) Unwrap() error { return e.Err }

// Refused reports whether err is, or wraps, a *Refusal with one of these codes.
func Refused(err error, codes ...relay.Code) bool {
	var r *Refusal
	return errors.As(err, &r) && slices.Contains(codes, r.Code)
}
