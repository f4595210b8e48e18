package relay

import (
	"crypto/sha256"
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

// Pending tells whether the message still waits for its recipient.
func (s State) Pending() bool { return s <= Delivered }

// Ack is the latest word of the recipient on a message.
type Ack struct {
	Status   string
	ClientTS string // as the client sent it
	At       time.Time
	Detail   string // "" if none
}

// Message is the record of a message. A *Message from the store may be shared
// between goroutines and must not be changed.
type Message struct {
	Position       Position
	ID             MessageID
	Conversation   ConversationID
	Version        string
	Sender         MechaNumber
	Recipient      MechaNumber
	From           Address
	To             Address
	Type           string
	Priority       string
	CorrelationID  string // "" if none
	State          State  // Expired as soon as ExpiresAt has come
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
	Sender    MechaNumber
	Recipient MechaNumber
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
