package db

import (
	"crypto/sha256"
	"strings"
	"time"
)

// State is where a message is in its life (PROTOCOL §3, States). It only grows.
type State int8

// queued → delivered → acknowledged, or expired from the first two.
const (
	Queued State = iota
	Delivered
	Acknowledged
	Expired
)

var stateNames = [...]string{"queued", "delivered", "acknowledged", "expired"}

func (s State) String() string { return stateNames[s] }

// pending tells whether the message still waits for its recipient.
func (s State) pending() bool { return s <= Delivered }

// Ack is the latest word of the recipient on a message.
type Ack struct {
	Status   string
	ClientTS string // as the client sent it
	At       time.Time
	Detail   string // "" if none
}

// Message is the record of a message. Whoever gets a *Message from the store
// may share it between goroutines, and must not change it.
type Message struct {
	Position       Position
	ID             MessageID
	Conversation   ConversationID
	Version        string
	Sender         MechaID
	Recipient      MechaID
	From           Address
	To             Address
	Type           string
	Priority       string
	CorrelationID  string // "" if none
	State          State  // with expiry already reckoned in
	CreatedAt      time.Time
	DeliveredAt    time.Time // zero: not yet
	AcknowledgedAt time.Time // zero: not yet
	ExpiresAt      time.Time // zero: never
	Ack            *Ack      // nil: none
	PayloadBytes   int
	PayloadSHA256  [sha256.Size]byte
	Signed         bool
	Payload        []byte // nil unless asked for
}

// Change is a step in a message's life that has been committed.
type Change struct {
	Position  Position
	ID        MessageID
	Sender    MechaID
	Recipient MechaID
	State     State
	Status    string // of an acknowledgement
	Detail    string
	At        time.Time
	// Freed: the recipient has answered for the message, or it has expired, so
	// that it is no longer in flight on any connection.
	Freed bool
	// New: something changed (a repeated final acknowledgement changes nothing).
	New bool
}

// A Commit is what one transaction brought, in commit order.
type Commit struct {
	Messages []*Message // with payload
	Changes  []Change
}

// Defaults and bounds of the fields of a message (PROTOCOL §3).
const (
	DefaultVersion  = "1.0"
	DefaultType     = "message"
	DefaultPriority = "normal"

	maxVersion     = 32
	maxPriority    = 32
	maxCorrelation = 256
	maxLabel       = 128
	maxDetail      = 1 << 10
	maxStatus      = 32
	maxClientTS    = 64
)

// SendMessage is the write that accepts a message. Validate it, then DB.Send.
type SendMessage struct {
	At            time.Time
	Key           *Key // of the sender
	To            Address
	Version       string
	Type          string
	Priority      string
	Conversation  ConversationID // "": a new one
	CorrelationID string
	ExpiresAt     time.Time // zero: never
	Payload       []byte    // a JSON object, kept byte for byte
	Signed        bool
	Nonce         NonceHash
	Idempotency   IdempotencyKey // zero: none
	OnlyReplay    bool           // the nonce was seen before: only a stored 201 will do
	payloadSHA256 [sha256.Size]byte
	sent          *Message
	replayed      bool
}

// IdempotencyKey is an Idempotency-Key of a sender with the body it came with,
// both as keyed hashes; DB.IdempotencyKey makes it.
type IdempotencyKey struct{ Key, Body int64 }

// Validate fills in the defaults and checks every field but the addressee's
// existence. The errors name the field: InvalidRequest, InvalidTime.
func (m *SendMessage) Validate() error {
	setDefault(&m.Version, DefaultVersion)
	setDefault(&m.Type, DefaultType)
	setDefault(&m.Priority, DefaultPriority)
	switch {
	case runes(m.Version) > maxVersion:
		return FieldErrorf(InvalidRequest, "version", "must be 1–32 characters")
	case len(m.Type) > maxWord || !only(m.Type, "._:/-"):
		return FieldErrorf(InvalidRequest, "message_type", "must be 1–64 of A–Z a–z 0–9 . _ : / -")
	case len(m.Priority) > maxPriority || !only(m.Priority, "._-"):
		return FieldErrorf(InvalidRequest, "priority", "must be 1–32 of A–Z a–z 0–9 . _ -")
	case len(m.CorrelationID) > maxCorrelation:
		return FieldErrorf(InvalidRequest, "correlation_id", "must be at most 256 bytes")
	case !m.ExpiresAt.IsZero() && !m.ExpiresAt.After(m.At):
		return FieldErrorf(InvalidTime, "expires_at", "lies in the past: the relay's clock says %s", FormatTime(m.At))
	}
	return m.Conversation.Check("conversation_id")
}

// Check refuses an id that no conversation can have, as InvalidRequest of the field. "" passes.
func (c ConversationID) Check(field string) error {
	if len(c) > maxLabel || !only(string(c), "._:~-") {
		return FieldErrorf(InvalidRequest, field, "must be 1–128 of A–Z a–z 0–9 . _ : ~ -")
	}
	return nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func runes(s string) int {
	n := 0
	for range s {
		n++
	}
	return n
}

// Acknowledge is the write by which a recipient says what became of a message.
type Acknowledge struct {
	At       time.Time
	Key      *Key
	ID       MessageID
	Status   string // lower case after Validate
	ClientTS string // RFC 3339, kept as sent
	Detail   string
	Nonce    NonceHash
	outcome  AckOutcome
}

// AckOutcome is what a recipient is told of its acknowledgement.
type AckOutcome struct {
	ID             MessageID
	State          State
	Status         string
	ClientTS       string
	AcknowledgedAt time.Time // zero: not yet (progress only)
	Duplicate      bool
}

// Validate checks the words of an acknowledgement and lowers the case of the
// status (PROTOCOL §3, Ack). The errors name the field: InvalidRequest, InvalidTime.
func (a *Acknowledge) Validate() error {
	if a.Status == "" {
		return FieldErrorf(InvalidRequest, "status", "is required, as in \"completed\"")
	}
	ascii := only(a.Status, "_") // before the case is lowered: İ and the Kelvin sign become i and k
	a.Status = strings.ToLower(a.Status)
	if len(a.Status) > maxStatus || a.Status[0] < 'a' || a.Status[0] > 'z' || !ascii {
		return FieldErrorf(InvalidRequest, "status", "must be 1–32 of a–z 0–9 _ and start with a letter")
	}
	if a.ClientTS == "" {
		return FieldErrorf(InvalidTime, "client_ts", "is required: an RFC 3339 time")
	}
	if _, err := ParseTime(a.ClientTS); err != nil || len(a.ClientTS) > maxClientTS {
		return FieldErrorf(InvalidTime, "client_ts", "%s is no RFC 3339 time", quote(a.ClientTS))
	}
	if len(a.Detail) > maxDetail {
		return FieldErrorf(InvalidRequest, "detail", "must be at most 1024 bytes")
	}
	return nil
}

// reportsProgress: these words leave the message pending; every other one acknowledges it.
func reportsProgress(status string) bool { return status == "received" || status == "processing" }

// isFinal: nothing else may follow these words.
func isFinal(status string) bool {
	return status == "completed" || status == "failed" || status == "rejected"
}

// MarkDelivered is the write by which a recipient says that a message has arrived.
type MarkDelivered struct {
	At      time.Time
	Key     *Key
	ID      MessageID
	Nonce   NonceHash
	outcome DeliveredOutcome
}

// DeliveredOutcome is what a recipient is told of its delivery mark.
type DeliveredOutcome struct {
	ID          MessageID
	State       State
	DeliveredAt time.Time
}
