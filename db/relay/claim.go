package relay

import (
	"strings"
	"time"
	"unicode/utf8"

	"relay/db/strict"
)

// Limits and defaults of a claim (PROTOCOL §3, Claim).
const (
	maxClaimed   = 100 // messages
	minLease     = 5 * time.Second
	maxLease     = time.Hour
	defaultLease = time.Minute
	maxWorker    = 64 // characters
)

// ClaimMessages is the write by which one of several workers of a Mecha leases pending
// messages: until its lease ends, no other claim returns them (PROTOCOL §3, Claim). Read
// must pass before the store takes it.
type ClaimMessages struct {
	At     time.Time
	Key    KeyNumber
	Limit  int
	Lease  time.Duration
	Worker string // a name for people; "" if the client gave none
	Nonce  NonceHash
}

func (c *ClaimMessages) When() time.Time { return c.At }

func (c *ClaimMessages) setTime(at time.Time) { c.At = at }

func (c *ClaimMessages) Size() int { return 256 + (c.Limit-1)*messageShare }

func (c *ClaimMessages) kind() byte { return kindClaimMessages }

func (c *ClaimMessages) fields(f *form) {
	f.time(&c.At)
	integer(f, &c.Key)
	integer(f, &c.Limit)
	integer(f, &c.Lease)
	text(f, &c.Worker)
	integer(f, &c.Nonce)
}

// A ClaimedMessage is a message that a claim has returned.
type ClaimedMessage struct {
	*Message
	LeaseUntil time.Time
}

var claimFields = []string{"limit", "lease_seconds", "worker", "wait"}

// Read reads the JSON body of a request (PROTOCOL §3, Claim), which may be empty, and
// validates it. wait is how long the client will wait for a message. Errors: InvalidJSON,
// InvalidLimit, InvalidRequest.
func (c *ClaimMessages) Read(body []byte) (wait time.Duration, err error) {
	limit, lease, seconds := int64(1), int64(defaultLease/time.Second), int64(0)
	if len(strings.TrimSpace(string(body))) > 0 {
		err = ReadObject(body, claimFields, func(name string, value []byte) error {
			switch name {
			case "limit":
				return readClaimed(value, &limit)
			case "lease_seconds":
				return readRange(name, value, "seconds ", int64(minLease/time.Second), int64(maxLease/time.Second), &lease)
			case "worker":
				return readText(name, value, &c.Worker)
			case "wait":
				return readRange(name, value, "seconds ", 0, 1<<31, &seconds)
			}
			return nil
		})
	}
	if err == nil && (utf8.RuneCountInString(c.Worker) > maxWorker ||
		c.Worker != "" && !isPrintable(c.Worker, maxWorker)) {
		err = FieldErrorf(InvalidRequest, "worker", "must be at most %d characters without control characters", maxWorker)
	}
	c.Limit, c.Lease = int(limit), time.Duration(lease)*time.Second
	return time.Duration(seconds) * time.Second, err
}

// readClaimed reads the limit of a claim; above maxClaimed it counts as maxClaimed.
func readClaimed(value []byte, limit *int64) error {
	if strict.IsNull(value) {
		return nil
	}
	n, ok := strict.Int(value)
	if !ok || n < 1 {
		return FieldErrorf(InvalidLimit, "limit", "must be a whole number from 1; above %d counts as %d",
			maxClaimed, maxClaimed)
	}
	*limit = min(n, maxClaimed)
	return nil
}

// EndAttempts is the write that frees the messages whose lease or deferral has ended at At:
// at most 500, the earliest first. A server makes it when one is due.
type EndAttempts struct {
	At          time.Time
	MaxAttempts int // decided beforehand: after so many attempts the message has failed; 0 means never
}

func (e *EndAttempts) When() time.Time { return e.At }

func (e *EndAttempts) setTime(at time.Time) { e.At = at }

func (e *EndAttempts) Size() int { return 0 }

func (e *EndAttempts) kind() byte { return kindEndAttempts }

func (e *EndAttempts) fields(f *form) {
	f.time(&e.At)
	integer(f, &e.MaxAttempts)
}
