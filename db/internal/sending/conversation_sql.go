package sending

import (
	"math"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// A conversation outlives its messages for a while, so that a late answer finds it. The
// table `dormant` has a row for a conversation whose messages were all removed. A message
// wakes the conversation; without one, a PruneUnused ends it.

// LeaveConversations updates the conversations of removed messages. The rows of the
// messages are already deleted.
func (s *Sending) LeaveConversations(t *engine.Tx, removed []names.Message) error {
	left := map[int64]bool{}
	for _, m := range removed {
		if m.Conversation != 0 {
			left[m.Conversation] = true
			continue
		}
		if err := s.leaveFounded(t, m); err != nil {
			return err
		}
	}
	for _, m := range removed { // in their order, which a map does not keep
		if c := m.Conversation; left[c] {
			delete(left, c)
			if err := s.leaveConversation(t, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// leaveFounded keeps the parties of a founding message that was removed: as participants
// if the conversation has other messages, else in the row that says that it is dormant.
func (s *Sending) leaveFounded(t *engine.Tx, m names.Message) error {
	goesOn, err := s.hasMessages(t, int64(m.At))
	if err != nil {
		return err
	}
	if !goesOn {
		s.members.Drop(int64(m.At))
		return t.C.Exec("INSERT OR REPLACE INTO dormant (conversation, since, sender, recipient) VALUES (?, ?, ?, ?)",
			int64(m.At), t.Now.UnixMilli(), int64(m.Sender), int64(m.Recipient))
	}
	return s.addParticipants(t, int64(m.At), m.Sender, m.Recipient)
}

// leaveConversation notes that a conversation is dormant if it no longer has a message.
func (s *Sending) leaveConversation(t *engine.Tx, conversation int64) error {
	goesOn, err := s.hasMessages(t, conversation)
	if err != nil || goesOn {
		return err
	}
	if conversation > 0 {
		founded, err := t.C.Row(nil, "SELECT 1 FROM message WHERE position = ? AND conversation IS NULL", conversation)
		if err != nil || founded {
			return err
		}
	}
	s.members.Drop(conversation)
	return t.C.Exec("INSERT OR IGNORE INTO dormant (conversation, since) VALUES (?, ?)", conversation, t.Now.UnixMilli())
}

// hasMessages reports whether a conversation has messages besides its founding one.
func (s *Sending) hasMessages(t *engine.Tx, conversation int64) (bool, error) {
	indexed, err := t.C.Row(nil, "SELECT 1 FROM joined WHERE conversation = ? LIMIT 1", conversation)
	if indexed || err != nil {
		return indexed, err
	}
	u, err := mailbox.FindJoined(&t.Rx, conversation, 0, math.MaxInt64)
	if err != nil || u.None {
		return false, err
	}
	late, args := u.Query(relay.Both, true, true, 0, math.MaxInt64)
	return t.C.Row(nil, late+" LIMIT 1", args...)
}

func (s *Sending) addParticipants(t *engine.Tx, conversation int64, parties ...relay.MechaNumber) error {
	for _, id := range parties {
		if err := t.C.Exec("INSERT OR IGNORE INTO participant (conversation, mecha) VALUES (?, ?)",
			conversation, int64(id)); err != nil {
			return err
		}
	}
	return nil
}

// wakeConversation ends the dormancy of a conversation that gets a message; 0 is a new
// conversation.
func (s *Sending) wakeConversation(t *engine.Tx, conversation int64) error {
	if conversation == 0 {
		return nil
	}
	if _, awake := s.members.Find(conversation); awake {
		return nil
	}
	var parties []relay.MechaNumber
	dormant, err := t.C.Row(func(r *sqlite.Rows) {
		if !r.Null(0) {
			parties = []relay.MechaNumber{relay.MechaNumber(r.Int(0)), relay.MechaNumber(r.Int(1))}
		}
	}, "SELECT sender, recipient FROM dormant WHERE conversation = ?", conversation)
	if err != nil || !dormant {
		return err
	}
	if err := t.C.Exec("DELETE FROM dormant WHERE conversation = ?", conversation); err != nil {
		return err
	}
	return s.addParticipants(t, conversation, parties...)
}

// EndConversations removes dormant conversations whose last message was removed before a
// time, in Unix ms: at most limit rows. more says that there are others.
func (s *Sending) EndConversations(t *engine.Tx, before int64, limit int) (more bool, err error) {
	left := limit
	r := t.C.Query("SELECT conversation FROM dormant INDEXED BY dormant_since WHERE since < ? "+
		"ORDER BY since, conversation LIMIT ?", before, int64(left))
	ended, err := engine.All(r, func(r *sqlite.Rows) int64 { return r.Int(0) })
	if err != nil {
		return false, err
	}
	for _, c := range ended {
		if left--; left < 0 {
			return true, nil
		}
		before := t.C.Changes()
		err := t.C.Exec(`DELETE FROM participant WHERE conversation = ?1 AND mecha IN
			(SELECT mecha FROM participant WHERE conversation = ?1 ORDER BY mecha LIMIT ?2)`, c, int64(left)+1)
		if err != nil {
			return false, err
		}
		if left -= int(t.C.Changes() - before); left < 0 { // the conversation may have further participants
			return true, nil
		}
		for _, table := range []string{"dormant", "conversation_limit"} {
			if err := t.C.Exec("DELETE FROM "+table+" WHERE conversation = ?", c); err != nil {
				return false, err
			}
		}
	}
	return len(ended) == limit, nil
}
