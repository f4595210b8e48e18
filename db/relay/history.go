package relay

import "time"

// Direction says which of a Mecha's messages are meant.
type Direction int8

// All messages, those received, those sent.
const (
	Both Direction = iota
	In
	Out
)

// StateFilter is a state to look for; the zero value looks for none.
type StateFilter int8

// AnyState matches every message, OnlyPending those queued or delivered.
const (
	AnyState StateFilter = iota
	OnlyPending
	OnlyQueued
	OnlyDelivered
	OnlyAcknowledged
	OnlyExpired
)

// Matches tells whether a message in state s is wanted.
func (f StateFilter) Matches(s State) bool {
	switch f {
	case AnyState:
		return true
	case OnlyPending:
		return s.Pending()
	}
	return State(f-OnlyQueued) == s
}

// HistoryQuery asks for a page of one Mecha's messages (PROTOCOL §3, History).
// Only Mecha and Limit are required; an inspection may leave Mecha out, for all
// messages.
type HistoryQuery struct {
	Mecha        MechaNumber
	Limit        int
	Since        time.Time // inclusive
	Until        time.Time // exclusive
	After        MessageID // exclusive: messages later in the commit order
	Before       MessageID // exclusive: messages earlier
	Direction    Direction
	State        StateFilter
	Conversation ConversationID
	MustTakePart bool // refuse a conversation in which Mecha has neither sent nor received
	Peer         Address
	Type         string
	Priority     string
	Descending   bool
	Payload      bool // records of messages received carry their payload
}

// Page is an answer to a HistoryQuery.
type Page struct {
	Messages []*Message
	More     bool
	Next     MessageID // where to go on: the cursor given if there was nothing, "" if none was
}

// StreamQuery asks for what follows a position in a Mecha's incoming stream.
type StreamQuery struct {
	Mecha       MechaNumber
	After       Position // exclusive
	PendingOnly bool     // leave out what has been acknowledged; expired messages always are
	Limit       int      // messages
	MaxBytes    int      // of payload; at least one message comes
	NoPayload   bool     // only see whether there is something
}

// StreamPage is a piece of a Mecha's incoming stream.
type StreamPage struct {
	Messages []*Message // with payload
	Upto     Position   // everything up to here has been looked at
	End      bool       // nothing more had been committed
}

// Inbox is what waits for a Mecha.
type Inbox struct {
	Pending    int
	Oldest     MessageID // "" if nothing waits
	Newest     MessageID
	ByPriority map[string]int
}
