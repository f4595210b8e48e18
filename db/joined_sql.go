package db

import (
	"math"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// The messages of a conversation, besides its founding one, and those that answer a message,
// are found by the tables `joined` and `reply`, and behind the watermark as those of a Mecha
// are (mailbox.go).

const (
	joinedRange = "SELECT position FROM joined WHERE conversation = ? AND position >= ? AND position < ?"
	replyRange  = "SELECT position FROM reply WHERE question = ? AND position >= ? AND position < ?"
)

// findJoined looks for the messages in [from, to) that have joined a conversation, and that
// the index may lack.
func findJoined(x *engine.Rx, conversation int64, from, to relay.Position) (unindexed, error) {
	return findLate(x, wanted{conversation: conversation}, from, to)
}

// findReplies looks for the messages after a position that answer a question, and that the
// index may lack.
func findReplies(x *engine.Rx, question, after relay.Position) (unindexed, error) {
	return findLate(x, wanted{question: question}, after+1, math.MaxInt64)
}

func findLate(x *engine.Rx, w wanted, from, to relay.Position) (unindexed, error) {
	after, err := indexedUpto(x)
	u := unindexed{wanted: w, after: after}
	if err == nil {
		u.find(x.Late, from, to)
	}
	return u, err
}

// joinedInOrder makes a query for the positions in [from, to) of the messages that have joined
// the conversation, in order, up to limit.
func (u unindexed) joinedInOrder(from, to relay.Position, limit int) (text string, args []any) {
	return u.inOrder(joinedRange, u.conversation, from, to, limit)
}

// repliesInOrder makes a query for the positions of the messages after a position that answer
// the question, in order, up to limit.
func (u unindexed) repliesInOrder(after relay.Position, limit int) (text string, args []any) {
	return u.inOrder(replyRange, int64(u.question), after+1, math.MaxInt64, limit)
}

func (u unindexed) inOrder(indexed string, of int64, from, to relay.Position, limit int) (text string, args []any) {
	text, args = indexed, []any{of, int64(from), int64(to)}
	if late, more := u.query(relay.Both, true, true, from, to); late != "" {
		text, args = text+" UNION "+late, append(args, more...)
	}
	return text + " ORDER BY position LIMIT ?", append(args, int64(limit))
}
