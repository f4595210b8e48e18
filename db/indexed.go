package db

import (
	"relay/db/internal/late"
	"relay/db/relay"
)

// The tables by which messages are found, in the order in which they are written. received
// comes last: what is acknowledged before that needs no second change. Those of its messages
// that are pending are a table in memory.
const (
	inSent = iota
	inJoined
	inReply
	inReceived
	inPending
)

// An indexedMessage is what the index tables, and the conversations, need to know of a
// message.
type indexedMessage struct {
	position          relay.Position
	recipient, sender relay.MechaNumber
	conversation      int64          // message.conversation; 0: the message founded its conversation
	question          relay.Position // message.in_reply_to; 0: it answers none
	done              bool           // it was not pending when a start read it
}

// Position implements late.Item.
func (m indexedMessage) Position() relay.Position { return m.position }

// Key implements late.Item.
func (m indexedMessage) Key(table int) (of int64, is bool) {
	switch table {
	case inSent:
		return int64(m.sender), true
	case inJoined:
		return m.conversation, m.conversation != 0
	case inReply:
		return int64(m.question), m.question != 0
	case inReceived:
		return int64(m.recipient), true
	}
	return int64(m.recipient), !m.done
}

// An indexRow is a row of an index table, of a Mecha, a conversation or a question.
type indexRow = late.Row[relay.Position]

// leastRows is how many rows a transaction inserts at least, unless they end a table. It is a
// variable, so that tests can have many segments of few messages.
var leastRows = 256
