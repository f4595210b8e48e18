package messages

import (
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// NewLabel is the number of a client's label that nobody has used yet.
const NewLabel = -1 << 62

// ConversationNumber returns the value of message.conversation for an id: 0 for "", the
// position of the founding message for an issued id, minus the number of the word for a
// label, NewLabel for a label that nobody has used. Error: ConversationNotFound.
func ConversationNumber(x *engine.Rx, id relay.ConversationID) (int64, error) {
	if id == "" {
		return 0, nil
	}
	if !id.Issued() {
		word, err := x.Words.Find(x.C, string(id))
		if err != nil || word != 0 {
			return -word, err
		}
		return NewLabel, nil
	}
	p, ok := x.IDs.ConversationPosition(id)
	if ok {
		known, err := x.C.Row(nil, "SELECT 1 FROM message WHERE position = ?", int64(p))
		// Without its founding message, a conversation has participants, or is dormant.
		for _, other := range [...]string{"SELECT 1 FROM participant WHERE conversation = ? LIMIT 1",
			"SELECT 1 FROM dormant WHERE conversation = ?"} {
			if !known && err == nil {
				known, err = x.C.Row(nil, other, int64(p))
			}
		}
		if err != nil || known {
			return int64(p), err
		}
	}
	return 0, relay.Errorf(relay.ConversationNotFound,
		"%s is not a conversation of this relay; leave the field out to start one", relay.Quote(string(id)))
}

// Participates reports whether a Mecha has sent or received in a conversation.
func Participates(x *engine.Rx, conversation int64, id relay.MechaNumber) (bool, error) {
	if conversation > 0 {
		in := false
		party := func(r *sqlite.Rows) { in = r.Int(0) == int64(id) || r.Int(1) == int64(id) }
		founded, err := x.C.Row(party, "SELECT sender, recipient FROM message WHERE position = ? AND conversation IS NULL",
			conversation)
		if !founded && err == nil {
			_, err = x.C.Row(party, "SELECT sender, recipient FROM dormant WHERE conversation = ?", conversation)
		}
		if in || err != nil {
			return in, err
		}
	}
	return x.C.Row(nil, "SELECT 1 FROM participant WHERE conversation = ? AND mecha = ?", conversation, int64(id))
}
