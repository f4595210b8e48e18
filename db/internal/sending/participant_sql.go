package sending

import (
	"relay/db/cache"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/internal/names"
	"relay/db/relay"
)

// members is the writer's cache of conversations that have had messages lately. A
// conversation in it is not dormant, and the Mechas, at most two, are participants; 0 means
// none. It equals the file, with the changes of the present transaction.
type members struct {
	*cache.Cache[int64, [2]relay.MechaNumber]
}

// memberBytes is roughly the room of a conversation in the cache.
const memberBytes = 16 + names.PairOverhead

// has reports whether the cache knows that a Mecha takes part in a conversation.
func (m members) has(conversation int64, id relay.MechaNumber) bool {
	two, known := m.Find(conversation)
	return known && (two[0] == id || two[1] == id)
}

// joined notes that a Mecha takes part in a conversation, which is not dormant.
func (m members) joined(conversation int64, id relay.MechaNumber) {
	two, _ := m.Find(conversation)
	if two[0] != id {
		m.Put(conversation, [2]relay.MechaNumber{id, two[0]}, memberBytes)
	}
}

// join adds a party of a message to the participants of its conversation. The founding
// message of a conversation, whose number is 0, needs no such rows.
func (s *Sending) join(t *engine.Tx, conversation int64, id relay.MechaNumber) error {
	if conversation == 0 || s.members.has(conversation, id) {
		return nil
	}
	in, err := messages.Participates(&t.Rx, conversation, id)
	if err == nil && !in {
		err = t.C.Exec("INSERT INTO participant (conversation, mecha) VALUES (?, ?)", conversation, int64(id))
	}
	if err == nil {
		s.members.joined(conversation, id)
	}
	return err
}
