package messages

import (
	"context"
	"math"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// Reply looks for the reply to a message: the first one that names it, else the first other
// one (relay.Message.IsReplyTo). It reads 10,000 messages of the conversation at most, in
// pieces, each of which sees the file as of its turn. Of the messages that name the
// question, which only its two parties can send, it reads the first 1,000. Errors:
// RateLimited, if too many reads of the sender wait; Internal; the error of ctx. Any
// goroutine may call it.
func (m *Messages) Reply(ctx context.Context, q relay.ReplyQuery) (relay.ReplyFound, error) {
	return ReadReply(ctx, m.w.As(q.Question.Sender), q)
}

// ReadReply is Reply for a viewer. Most replies are among the first rows, so it begins with a point.
func ReadReply(ctx context.Context, v engine.Viewer, q relay.ReplyQuery) (relay.ReplyFound, error) {
	s := replySearch{ReplyQuery: q}
	for in := v.Point; ; in = v.Scan {
		if err := in(ctx, s.goOn); err != nil || s.done {
			return s.found, err
		}
	}
}

// A replySearch is a running search for a reply.
type replySearch struct {
	relay.ReplyQuery
	conversation int64 // the number of the question's conversation; 0 if it is still to be read
	found        relay.ReplyFound
	done         bool
}

const maxNaming = 1000 // messages that name the question

// goOn reads the messages that name the question, and then, with each call, the next
// PieceRows of its conversation. The search is done when it has a reply.
func (s *replySearch) goOn(x *engine.Rx) error {
	q := s.Question
	if s.conversation == 0 {
		s.found.Upto = max(s.After, q.Position)
		if err := s.begin(x); err != nil || s.done {
			return err
		}
	}
	// The same rule as IsReplyTo: SQLite skips other messages without reading them completely.
	u, err := mailbox.FindJoined(x, s.conversation, s.found.Upto+1, math.MaxInt64)
	if err != nil {
		return err
	}
	positions, of := u.JoinedInOrder(s.found.Upto+1, math.MaxInt64, PieceRows)
	n, err := s.look(x, positions, of,
		" AND m.in_reply_to IS NULL AND (? = '' OR m.correlation_id = ?)", q.CorrelationID, q.CorrelationID)
	s.found.More = n == PieceRows && s.found.Reply == nil
	s.done = s.done || !s.found.More || s.found.Looked >= pageScan
	return err
}

// begin reads the messages that name the question, and finds its conversation.
func (s *replySearch) begin(x *engine.Rx) error {
	question := s.Question.Position
	u, err := mailbox.FindReplies(x, question, question)
	if err != nil {
		return err
	}
	naming, of := u.RepliesInOrder(question, maxNaming)
	if _, err := s.look(x, naming, of, ""); err != nil || s.done {
		return err
	}
	s.found.Upto = max(s.After, s.Question.Position)
	kept, err := x.C.Row(func(r *sqlite.Rows) { s.conversation = r.Int(0) },
		"SELECT coalesce(conversation, position) FROM message WHERE position = ?", int64(question))
	s.done = !kept // the question was removed, so its conversation is unknown
	return err
}

// look looks for a reply among the messages at some positions. It returns how many they are.
func (s *replySearch) look(x *engine.Rx, positions string, of []any, where string, more ...any) (n int, err error) {
	args := append(append(append([]any(nil), of...), int64(s.Question.Recipient), int64(s.Question.Sender)), more...)
	found, _, err := Read(x, 1, AllAt(positions)+" WHERE m.sender = ? AND m.recipient = ?"+where, args)
	if err != nil {
		return 0, err
	}
	if len(found) > 0 {
		s.found.Reply, s.done = found[0], true
		s.found.Reply.Payload, err = payload(x, found[0].Position)
		return 0, err
	}
	_, err = x.C.Row(func(r *sqlite.Rows) { n, s.found.Upto = int(r.Int(0)), max(s.found.Upto, relay.Position(r.Int(1))) },
		"SELECT count(*), max(position) FROM ("+positions+")", of...)
	s.found.Looked += n
	return n, err
}

// AnswersOf reads the first messages that name a message as their question.
func AnswersOf(x *engine.Rx, question relay.Position, limit int) ([]*relay.Message, error) {
	u, err := mailbox.FindReplies(x, question, question)
	if err != nil {
		return nil, err
	}
	positions, args := u.RepliesInOrder(question, limit)
	list, _, err := Read(x, limit, AllAt(positions), args)
	return list, err
}
