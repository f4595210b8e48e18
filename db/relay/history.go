package relay

import "time"

// Direction is a filter by direction, seen from a Mecha.
type Direction int8

// The directions.
const (
	Both Direction = iota
	In             // messages that the Mecha received
	Out            // messages that the Mecha sent
)

// StateFilter is a filter by state. The zero value matches all.
type StateFilter int8

// The filters.
const (
	AnyState    StateFilter = iota
	OnlyPending             // queued or delivered
	OnlyQueued
	OnlyDelivered
	OnlyAcknowledged
	OnlyExpired
	OnlyDead    // expired, or acknowledged as failed or rejected
	OnlyOverdue // pending although the AckBy has come
)

// PageBytes bounds the payloads on a page of a history, or of one claim. A single message may have
// more.
const PageBytes = 4 << 20

// HistoryQuery asks for a page of one Mecha's messages (PROTOCOL §3, History). Only Mecha
// and Limit are required. With an Inspector, Mecha may be 0, for the messages of all
// Mechas.
type HistoryQuery struct {
	Mecha        MechaNumber
	Limit        int            // messages on the page
	Since        time.Time      // messages created at this time or later; zero: from the first
	Until        time.Time      // messages created before this time; zero: to the last
	After        MessageID      // messages later than this one in the commit order; "": from the first
	Later        Position       // only messages at later positions; 0: from the first
	Before       MessageID      // messages earlier than this one in the commit order; "": to the last
	Direction    Direction      // relative to Mecha
	State        StateFilter    // as of the time of the query
	Conversation ConversationID // "": of all conversations
	MustTakePart bool           // refuse a conversation in which Mecha has neither sent nor received
	Peer         Address        // messages exchanged with this Mecha; "": with all
	Type         string         // "": of all types
	Priority     string         // "": of all priorities
	Descending   bool           // newest first
	Payload      bool           // records of received messages carry their payload
}

// Page is the answer to a HistoryQuery.
type Page struct {
	Messages []*Message
	More     bool // there may be further messages
	// Next is the cursor of the next page. On an empty page it is the cursor of the
	// query, "" if that had none.
	Next MessageID
	// Looked is how many rows were read for the page, including those that did not match. It
	// is also set if the page comes with an error, because the work has been done.
	Looked int
}

// StreamQuery asks for a piece of a Mecha's incoming stream, in commit order.
// Expired messages are never part of it.
type StreamQuery struct {
	Mecha       MechaNumber
	After       Position // the piece begins after this position
	PendingOnly bool     // leave out acknowledged messages
	Limit       int      // messages
	MaxBytes    int      // of payload; a first message that is longer is still returned
	NoPayload   bool     // return records without payloads, and ignore MaxBytes
}

// StreamPage is the answer to a StreamQuery.
type StreamPage struct {
	Messages []*Message
	Upto     Position // every message up to this position is in Messages or was not wanted
	End      bool     // no further message had been committed
}

// ReceiptQuery asks for a piece of the changes of the messages that a Mecha has sent, in
// commit order.
type ReceiptQuery struct {
	Sender MechaNumber
	After  Position // the piece begins after the receipt at this position
	Limit  int      // receipts to read, including those of other Mechas
}

// ReceiptPage is the answer to a ReceiptQuery. All its changes have New set, and Freed not.
type ReceiptPage struct {
	Changes []Change
	Upto    Position // every receipt up to this position is in Changes or is another Mecha's
	End     bool     // no further receipt had been committed
}

// ReturnQuery asks for a piece of the messages that are free again after a deferral.
type ReturnQuery struct {
	Mecha  MechaNumber
	After  Position // the piece begins after the message that was freed at this position
	Before Position // only messages up to this position
	Limit  int      // messages
}

// ReturnPage is the answer to a ReturnQuery. The messages have their payloads.
type ReturnPage struct {
	Messages []*Message
	Upto     Position // every message freed up to this position is in Messages or was not wanted
	End      bool     // no further message had been freed
}

// Inbox counts the pending messages of a Mecha (PROTOCOL §3, Inbox count).
type Inbox struct {
	Pending    int
	Oldest     MessageID // "" if no message is pending
	Newest     MessageID // "" if no message is pending
	ByPriority map[string]int
	Looked     int // how many rows were read; also set with an error
}
