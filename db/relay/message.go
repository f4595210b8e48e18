package relay

import (
	"crypto/sha256"
	"time"
)

// State is the state of a message (PROTOCOL §3, States). It only grows.
type State int8

// The states. A message goes from Queued to Delivered to Acknowledged. From the
// first two, it can go to Expired.
const (
	Queued State = iota
	Delivered
	Acknowledged
	Expired
)

var stateNames = [...]string{"queued", "delivered", "acknowledged", "expired"}

// String returns the state's name in the protocol.
func (s State) String() string { return stateNames[s] }

// Pending reports whether the message is still to be acknowledged: it is queued or
// delivered (PROTOCOL §1).
func (s State) Pending() bool { return s <= Delivered }

// Ack is the latest acknowledgement of a message, or report of progress.
type Ack struct {
	Status   string
	ClientTS string // as the client sent it
	At       time.Time
	Detail   string // "" if none
}

// Message is the record of a message (PROTOCOL §3, Get Message). A *Message from the
// store may be shared between goroutines and must not be changed.
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
	State          State  // Expired as soon as ExpiresAt has come, even before the write ExpireDue
	CreatedAt      time.Time
	DeliveredAt    time.Time // zero: not yet
	AcknowledgedAt time.Time // zero: not yet
	ExpiresAt      time.Time // zero: never
	InReplyTo      MessageID // the message that this one answers; "": none
	AckBy          time.Time // the sender wants a receipt if it is not acknowledged by then, unless zero
	Overdue        bool      // AckBy has come, and the message is pending
	Trace          Trace
	Ack            *Ack // nil: none
	PayloadBytes   int
	PayloadSHA256  [sha256.Size]byte
	Attempt        int    // how many times it was delivered, if it was claimed or redelivered; else 0
	Signed         bool   // the relay verified the sender's signature
	Payload        []byte // the exact bytes; nil unless the caller asked for them
}

// Change is a committed change of a message's state, or a report of progress.
type Change struct {
	Position  Position // of the message
	Receipt   Position // of the receipt of the change, in the same order; 0 unless New
	ID        MessageID
	Sender    MechaNumber
	Recipient MechaNumber
	State     State
	Status    string // of the latest acknowledgement, or ""
	Detail    string // of the latest acknowledgement
	At        time.Time
	// Freed says that the recipient has answered for the message, or that the
	// message has expired. It no longer takes a place in the window of a connection
	// (PROTOCOL §4, The sync window).
	Freed bool
	// New is false for an acknowledgement that is repeated or refused, which changes nothing.
	New bool
	// Notice is set if the relay itself notifies the sender; then the state and the latest
	// acknowledgement are unchanged.
	Notice Notice
	// Returned says that the message is redelivered to the recipient's sockets, because a
	// deferral is over.
	Returned bool
}

// A Notice is a message of the relay itself to the sender, as a receipt that changes
// nothing (PROTOCOL §3, Send).
type Notice int8

// The notices.
const (
	NoNotice       Notice = iota
	NoticeOverdue         // the message was not acknowledged by its AckBy
	NoticeFull            // the conversation that the message founded is full
	NoticeClaimed         // a worker of the recipient has a lease of it; without a receipt for the sender
	NoticeReturned        // a lease has run out, or a deferral is over; without a receipt for the sender
	NoticeSpent           // the relay has acknowledged it as failed, because its attempts are spent
)

var noticeNames = [...]string{"", "overdue", "conversation_full", "claimed", "returned", "attempts_spent"}

// String returns the notice's name in the protocol, or "" for NoNotice.
func (n Notice) String() string { return noticeNames[n] }

// Known reports whether this program knows the notice; NoNotice is known.
func (n Notice) Known() bool { return n >= NoNotice && n <= NoticeSpent }

// ForSender reports whether the sender gets a receipt of it.
func (n Notice) ForSender() bool { return n != NoticeClaimed && n != NoticeReturned }

// A Commit has the messages and changes of one transaction, each in commit order.
type Commit struct {
	Messages []*Message // with their payloads
	Changes  []Change
}
