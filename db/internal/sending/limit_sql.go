package sending

import (
	"cmp"
	"math"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// The founder or the server may limit the messages of a conversation (PROTOCOL §3, Send:
// max_messages). This loop limit stops two agents that answer each other endlessly. The
// table conversation_limit has a row for each such conversation.

// conversationLimit is a row of that table. The zero value means no limit.
type conversationLimit struct {
	conversation int64 // 0 or NewLabel if the present message founds it
	founder      int64 // likewise 0
	limit        int64 // 0 means the server's
	held         int64
	told         int64
	counts       bool // the row exists or is to be made
}

// conversationLimit finds the limit of the conversation of a message that goes to n Mechas,
// and refuses the message if the conversation has no room for n. Errors: ConversationFull;
// InvalidRequest, if the message asks for a limit and does not found the conversation.
func (s *Sending) conversationLimit(
	t *engine.Tx, m *relay.SendMessage, conversation int64, n int,
) (l conversationLimit, err error) {
	server := int64(m.ConversationLimit)
	if m.MaxMessages == 0 && server == 0 && !s.limited {
		return l, nil
	}
	begun, err := s.hasBegun(t, conversation)
	if err != nil {
		return l, err
	}
	if begun {
		l, err = s.readLimit(t, conversation)
		if err == nil && !l.counts && server != 0 {
			l, err = s.countConversation(t, conversation, server)
		}
	} else {
		l = conversationLimit{conversation: conversation, limit: int64(m.MaxMessages),
			counts: m.MaxMessages != 0 || server != 0}
	}
	limit := l.limitOf(m)
	switch {
	case err != nil:
	case m.MaxMessages != 0 && int64(m.MaxMessages) != l.limit:
		err = relay.FieldErrorf(relay.InvalidRequest, "max_messages",
			"is only for the message that starts a conversation, and this one has begun")
	case l.isFull(m):
		err = relay.Errorf(relay.ConversationFull, "the conversation holds %d messages, which is all that it may", l.held)
	case limit != 0 && l.held+int64(n) > limit:
		err = relay.Errorf(relay.ConversationFull,
			"the conversation holds %d messages and may hold %d, but the message goes to %d Mechas", l.held, limit, n)
	}
	return l, err
}

// limitOf returns how many messages the conversation may hold for a message to be accepted, or
// 0 without a limit.
func (l conversationLimit) limitOf(m *relay.SendMessage) int64 {
	if !l.counts {
		return 0
	}
	return cmp.Or(l.limit, int64(m.ConversationLimit))
}

// isFull reports whether the conversation has no room for another message.
func (l conversationLimit) isFull(m *relay.SendMessage) bool {
	limit := l.limitOf(m)
	return limit != 0 && l.held >= limit
}

// hasBegun reports whether a conversation has or had a message.
func (s *Sending) hasBegun(t *engine.Tx, conversation int64) (bool, error) {
	if conversation == 0 || conversation == messages.NewLabel {
		return false, nil
	}
	if conversation > 0 {
		return true, nil
	}
	// a label's conversation has them from its first message on
	begun, err := t.C.Row(nil, "SELECT 1 FROM participant WHERE conversation = ? LIMIT 1", conversation)
	if err == nil && !begun {
		begun, err = t.C.Row(nil, "SELECT 1 FROM dormant WHERE conversation = ?", conversation)
	}
	return begun, err
}

func (s *Sending) readLimit(t *engine.Tx, conversation int64) (l conversationLimit, err error) {
	l.counts, err = t.C.Row(func(r *sqlite.Rows) {
		l = conversationLimit{conversation: conversation, founder: r.Int(0), limit: r.Int(1), held: r.Int(2), told: r.Int(3)}
	}, "SELECT founder, most, held, told FROM conversation_limit WHERE conversation = ?", conversation)
	return l, err
}

// countConversation makes the row of a conversation that began without a limit. It counts
// up to limit.
func (s *Sending) countConversation(t *engine.Tx, conversation, limit int64) (conversationLimit, error) {
	l := conversationLimit{conversation: conversation, founder: conversation, counts: true}
	u, err := mailbox.FindJoined(&t.Rx, conversation, 0, math.MaxInt64)
	if err != nil {
		return l, err
	}
	positions, args := u.JoinedInOrder(0, math.MaxInt64, int(limit))
	_, err = t.C.Row(func(r *sqlite.Rows) {
		if l.held = r.Int(0); conversation < 0 {
			l.founder = r.Int(1)
		} else {
			l.held++ // the founding message, even after it was removed
		}
	}, "SELECT count(*), min(position) FROM ("+positions+")", args...)
	return l, err
}

// count counts n messages, of which p is the first, in the row of their conversation. The
// conversation now has a number.
func (s *Sending) count(t *engine.Tx, l conversationLimit, conversation int64, p relay.Position, n int) error {
	if !l.counts {
		return nil
	}
	if l.founder == 0 {
		l.founder = int64(p)
	}
	s.limited = true
	return t.C.Exec("INSERT OR REPLACE INTO conversation_limit (conversation, founder, most, held, told) "+
		"VALUES (?, ?, ?, ?, ?)",
		conversation, l.founder, sqlite.OrNull(l.limit), l.held+int64(n), l.told)
}

// tellFounder notifies the founder of a conversation that it is full, once. The refused
// message has written nothing, so this is a separate write.
func (s *Sending) tellFounder(m *relay.SendMessage, conversation int64) {
	if conversation != 0 {
		engine.Then(s.w, &relay.NoteFull{At: m.At, Key: m.Key, Conversation: conversation}, func(engine.None, error) {})
	}
}

// noteFull notifies the founder of a conversation that it is full, once, by a receipt of
// the founding message. If that message was removed, noteFull does nothing.
func (s *Sending) noteFull(t *engine.Tx, n *relay.NoteFull) (engine.None, error) {
	l, err := s.readLimit(t, n.Conversation)
	if err != nil || !l.counts || l.told != 0 {
		return engine.None{}, err
	}
	if err := t.C.Exec("UPDATE conversation_limit SET told = 1 WHERE conversation = ?", n.Conversation); err != nil {
		return engine.None{}, err
	}
	m, err := messages.At(&t.Rx, relay.Position(l.founder))
	if err != nil || m == nil {
		return engine.None{}, err
	}
	return engine.None{}, s.progress.Tell(t, m, relay.NoticeFull, t.Position(n.At))
}
