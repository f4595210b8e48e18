package db

import (
	"strconv"

	"relay/db/internal/late"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// The tables `received`, `sent`, `joined` and `reply` are an index: they tell which messages
// a Mecha has received and sent, which have joined a conversation, and which answer a
// message. If every message were indexed with its own transaction, it would change up to
// four more pages, different ones for almost every message. With a thousand Mechas
// the log would grow to ten times the size of the messages. So a server updates these
// tables late (package late), up to the watermark `indexed_upto`.

const rowsPerMessage = 8 // rows inserted, at most, for every new message; a segment is then indexed when half of the next one has come, since no message has more than four

// These are variables, so that tests can have many segments of few messages.
var (
	segmentLength = 16384 // messages
	leastRows     = 256   // rows; fewer wait for the next transaction, unless they end a table
	scanRatio     = 32    // a scan is cheaper than a list if one of so many messages is wanted, or more
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

func newLateMessages() *late.Index[indexedMessage, relay.Position] {
	return late.New[indexedMessage](late.Options[relay.Position]{
		Tables:    []func(*sqlite.Conn, []indexRow) error{sentTable.insert, joinedTable.insert, replyTable.insert, insertReceived, inPending: nil},
		Watermark: setIndexed, Segment: segmentLength, PerItem: rowsPerMessage, Least: leastRows, ScanRatio: scanRatio,
	})
}

// wanted says which messages are looked for: those of a Mecha, those that have joined a
// conversation, or those that answer a question. One of the three is set.
type wanted struct {
	mecha        relay.MechaNumber
	pending      bool // of the Mecha's messages, received ones that are pending; others may be left out
	conversation int64
	question     relay.Position
}

// keys returns the keys by which the messages are found.
func (w wanted) keys() []late.Key {
	switch {
	case w.conversation != 0:
		return []late.Key{{Table: inJoined, Of: w.conversation}}
	case w.question != 0:
		return []late.Key{{Table: inReply, Of: int64(w.question)}}
	case w.pending:
		return []late.Key{{Table: inPending, Of: int64(w.mecha)}}
	}
	return []late.Key{{Table: inReceived, Of: int64(w.mecha)}, {Table: inSent, Of: int64(w.mecha)}}
}

// jsonList writes numbers as a JSON array, the form in which one argument of a
// statement can have many.
func jsonList[T any, N ~int64](all []T, number func(T) N) string {
	b := make([]byte, 0, 2+18*len(all))
	b = append(b, '[')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(number(v)), 10)
	}
	return string(append(b, ']'))
}
