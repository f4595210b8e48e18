package mailbox

import (
	"math"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// The messages of a conversation, besides its founding one, and those that answer a message,
// are found by the tables `joined` and `reply`, and after the watermark like the messages of
// a Mecha (package late).

const (
	JoinedRange = "SELECT position FROM joined WHERE conversation = ? AND position >= ? AND position < ?"
	replyRange  = "SELECT position FROM reply WHERE question = ? AND position >= ? AND position < ?"
)

// FindJoined looks for the messages in [from, to) that have joined a conversation, and that
// may be missing from the index.
func FindJoined(x *engine.Rx, conversation int64, from, to relay.Position) (Unindexed, error) {
	return findInTail(x, Wanted{Conversation: conversation}, from, to)
}

// FindReplies looks for the messages after a position that answer a question, and that may
// be missing from the index.
func FindReplies(x *engine.Rx, question, after relay.Position) (Unindexed, error) {
	return findInTail(x, Wanted{Question: question}, after+1, math.MaxInt64)
}

func findInTail(x *engine.Rx, w Wanted, from, to relay.Position) (Unindexed, error) {
	after, err := IndexedUpto(x)
	u := Unindexed{Wanted: w, after: after}
	if err == nil {
		u.find(x.TailIndex, from, to)
	}
	return u, err
}

// JoinedInOrder makes a query for the positions in [from, to) of the messages that have joined
// the conversation, in order, up to limit.
func (u Unindexed) JoinedInOrder(from, to relay.Position, limit int) (text string, args []any) {
	return u.inOrder(JoinedRange, u.Conversation, from, to, limit)
}

// RepliesInOrder makes a query for the positions of the messages after a position that answer
// the question, in order, up to limit.
func (u Unindexed) RepliesInOrder(after relay.Position, limit int) (text string, args []any) {
	return u.inOrder(replyRange, int64(u.Question), after+1, math.MaxInt64, limit)
}

func (u Unindexed) inOrder(indexed string, of int64, from, to relay.Position, limit int) (text string, args []any) {
	text, args = indexed, []any{of, int64(from), int64(to)}
	if late, more := u.Query(relay.Both, true, true, from, to); late != "" {
		text, args = text+" UNION "+late, append(args, more...)
	}
	return text + " ORDER BY position LIMIT ?", append(args, int64(limit))
}
