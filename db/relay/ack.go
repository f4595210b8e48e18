package relay

import (
	"strings"
	"time"
)

// Acknowledge is the write by which a recipient says what became of a message
// (PROTOCOL §3, Ack). Read or Validate must pass before the store takes it.
type Acknowledge struct {
	At       time.Time
	Key      KeyNumber // the recipient's key
	ID       MessageID
	Status   string // in lower case after Validate
	ClientTS string // RFC 3339, kept as sent
	Detail   string // at most 1024 bytes; "" if the client sent none
	// RetryAfter is when the message is to be redelivered; only with the status deferred. 0
	// if the client did not say.
	RetryAfter time.Duration
	Nonce      NonceHash
	// Learns says that discovery learns from this final Status. The machine that accepted it decides that.
	Learns bool
}

func (a *Acknowledge) When() time.Time { return a.At }

func (a *Acknowledge) setTime(at time.Time) { a.At = at }

func (a *Acknowledge) Size() int { return 256 + len(a.Detail) }

func (a *Acknowledge) kind() byte { return kindAcknowledge }

func (a *Acknowledge) fields(f *form) {
	f.time(&a.At)
	integer(f, &a.Key)
	text(f, &a.ID)
	text(f, &a.Status)
	text(f, &a.ClientTS)
	text(f, &a.Detail)
	integer(f, &a.RetryAfter)
	integer(f, &a.Nonce)
	f.bool(&a.Learns)
}

// AckOutcome is the answer to an acknowledgement (PROTOCOL §3, Ack).
type AckOutcome struct {
	ID             MessageID
	State          State // of the message, after the acknowledgement
	Status         string
	ClientTS       string
	AcknowledgedAt time.Time // zero while only progress was reported
	// the message had this final status before, or this status and detail as its latest; nothing changed
	Duplicate bool
}

// Validate checks Status, ClientTS and Detail, and puts Status in lower case
// (PROTOCOL §3, Ack). Each error names the field: InvalidRequest, InvalidTime.
func (a *Acknowledge) Validate() error {
	if a.Status == "" {
		return FieldErrorf(InvalidRequest, "status", "is required, as in \"completed\"")
	}
	ascii := only(a.Status, "_") // checked before ToLower, which turns İ and the Kelvin sign into i and k
	a.Status = strings.ToLower(a.Status)
	if len(a.Status) > maxStatus || a.Status[0] < 'a' || a.Status[0] > 'z' || !ascii {
		return FieldErrorf(InvalidRequest, "status", "must be 1–32 of a–z 0–9 _ and start with a letter")
	}
	if a.ClientTS == "" {
		return FieldErrorf(InvalidTime, "client_ts", "is required: an RFC 3339 time")
	}
	if _, err := ParseTime(a.ClientTS); err != nil || len(a.ClientTS) > maxClientTS {
		return FieldErrorf(InvalidTime, "client_ts", "%s is not an RFC 3339 time", Quote(a.ClientTS))
	}
	if len(a.Detail) > maxDetail {
		return FieldErrorf(InvalidRequest, "detail", "must be at most 1024 bytes")
	}
	if a.RetryAfter != 0 && a.Status != Deferred {
		return FieldErrorf(InvalidRequest, "retry_after_seconds", "is only for the status %s", Deferred)
	}
	return nil
}

// ReportsProgress reports whether a status in lower case leaves the message pending.
// Every other status acknowledges the message (PROTOCOL §3, Ack).
func ReportsProgress(status string) bool {
	return status == "received" || status == Processing || status == Deferred
}

// The progress statuses that have an effect of their own: Processing renews the lease of the
// key, Deferred defers the message.
const (
	Processing = "processing"
	Deferred   = "deferred"
)

// maxDeferral is the longest time for which a message can be deferred (PROTOCOL §3, Ack).
const maxDeferral = 7 * 24 * time.Hour

// IsFinal reports whether no other status may follow this one, which is in lower case
// (PROTOCOL §3, Ack).
func IsFinal(status string) bool {
	return status == Completed || status == "failed" || status == "rejected"
}

// Completed is the final status of a message that was answered as its sender wished.
const Completed = "completed"

// MarkDelivered is the write by which a recipient says that a message has arrived
// (PROTOCOL §3, Mark Delivered).
type MarkDelivered struct {
	At    time.Time
	Key   KeyNumber // the recipient's key
	ID    MessageID
	Nonce NonceHash
}

func (m *MarkDelivered) When() time.Time { return m.At }

func (m *MarkDelivered) setTime(at time.Time) { m.At = at }

func (m *MarkDelivered) Size() int { return 128 }

func (m *MarkDelivered) kind() byte { return kindMarkDelivered }

func (m *MarkDelivered) fields(f *form) {
	f.time(&m.At)
	integer(f, &m.Key)
	text(f, &m.ID)
	integer(f, &m.Nonce)
}

// DeliveredOutcome is the answer to a MarkDelivered.
type DeliveredOutcome struct {
	ID          MessageID
	State       State // of the message, after the write
	DeliveredAt time.Time
}

// ExpireDue is the write that expires pending messages whose ExpiresAt has come at
// At: at most 500 of them, the earliest first. A server makes it when a message is due.
type ExpireDue struct{ At time.Time }

func (e *ExpireDue) When() time.Time { return e.At }

func (e *ExpireDue) setTime(at time.Time) { e.At = at }

func (e *ExpireDue) Size() int { return 0 }

func (e *ExpireDue) kind() byte     { return kindExpireDue }
func (e *ExpireDue) fields(f *form) { f.time(&e.At) }

// ExpireMessage is the write by which an operator expires a pending message: its ExpiresAt
// becomes At, whatever its sender asked for.
type ExpireMessage struct {
	At time.Time
	ID MessageID
}

func (e *ExpireMessage) When() time.Time { return e.At }

func (e *ExpireMessage) setTime(at time.Time) { e.At = at }

func (e *ExpireMessage) Size() int { return 256 }

func (e *ExpireMessage) kind() byte { return kindExpireMessage }

func (e *ExpireMessage) fields(f *form) {
	f.time(&e.At)
	text(f, &e.ID)
}
