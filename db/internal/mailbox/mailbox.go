package mailbox

import (
	"strconv"

	"relay/db/internal/late"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// The tables `received`, `sent`, `joined` and `reply` are an index of which messages a Mecha
// has received and sent, which have joined a conversation, and which answer a message. If
// every message were indexed with its own transaction, it would change up to four more
// pages, different ones for almost every message. With a thousand Mechas the log would grow
// to ten times the size of the messages. So a server writes these tables behind (package
// late), up to the watermark `indexed_upto`.

// rows inserted, at most, for every new message; a segment is then indexed when half of the next one has come, since no
// message has more than four
const rowsPerMessage = 8

// These are variables, so that tests can have many segments of few messages.
var (
	SegmentLength = 16384 // messages
	ScanRatio     = 32    // a scan is cheaper than a list if one of so many messages is wanted, or more
)

func NewTailMessages() *late.Index[names.Message, relay.Position] {
	return late.New[names.Message](late.Options[relay.Position]{
		Tables: []func(*sqlite.Conn, []names.Row) error{sentTable.insert, joinedTable.insert, replyTable.insert,
			insertReceived, names.InPending: nil},
		Watermark: setIndexed, Segment: SegmentLength, PerItem: rowsPerMessage, MinRows: names.MinRows, ScanRatio: ScanRatio,
	})
}

// Wanted selects the messages of a Mecha, the messages that have joined a conversation,
// or the messages that answer a question. One of the three is set.
type Wanted struct {
	Mecha        relay.MechaNumber
	pending      bool // only received messages that are pending are needed
	Conversation int64
	Question     relay.Position
}

// keys returns the keys by which the messages are found.
func (w Wanted) keys() []late.Key {
	switch {
	case w.Conversation != 0:
		return []late.Key{{Table: names.InJoined, Of: w.Conversation}}
	case w.Question != 0:
		return []late.Key{{Table: names.InReply, Of: int64(w.Question)}}
	case w.pending:
		return []late.Key{{Table: names.InPending, Of: int64(w.Mecha)}}
	}
	return []late.Key{{Table: names.InReceived, Of: int64(w.Mecha)}, {Table: names.InSent, Of: int64(w.Mecha)}}
}

// JSONList writes numbers as a JSON array, so that one argument of a statement can have
// many.
func JSONList[T any, N ~int64](all []T, number func(T) N) string {
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
