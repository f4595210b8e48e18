package names

import (
	"relay/db/internal/late"
	"relay/db/relay"
)

// The tables by which messages are found, in the order in which they are written. received
// comes last: a message that is acknowledged before that needs no second change. Its pending
// messages are a table in memory.
const (
	InSent = iota
	InJoined
	InReply
	InReceived
	InPending
)

// A Message has the columns of a message that the index tables and the conversations use.
type Message struct {
	At                relay.Position
	Recipient, Sender relay.MechaNumber
	Conversation      int64          // message.conversation; 0 if the message founded its conversation
	Question          relay.Position // message.in_reply_to, or 0
	Done              bool           // it was not pending when a start read it
}

// Position implements late.Item.
func (m Message) Position() relay.Position { return m.At }

// Key implements late.Item.
func (m Message) Key(table int) (of int64, is bool) {
	switch table {
	case InSent:
		return int64(m.Sender), true
	case InJoined:
		return m.Conversation, m.Conversation != 0
	case InReply:
		return int64(m.Question), m.Question != 0
	case InReceived:
		return int64(m.Recipient), true
	}
	return int64(m.Recipient), !m.Done
}

// A Row is a row of an index table, of a Mecha, a conversation or a question.
type Row = late.Row[relay.Position]

// MinRows is the minimum number of rows that a transaction inserts, unless they end a
// table. It is a variable, so that tests can have many segments of few messages.
var MinRows = 256
