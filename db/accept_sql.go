package db

import (
	"encoding/json"
	"fmt"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// accepting leaves out of the recipients of a message those that do not accept it (PROTOCOL
// §3, Who may write to me). A Mecha accepts its own messages, and answers to them. Error:
// NotAccepted, if nobody is left.
func (s *sending) accepting(t *engine.Tx, m *relay.SendMessage, sender *relay.Key, a answered, to []addressee) ([]addressee, error) {
	left := to[:0]
	for _, r := range to {
		if r.number != sender.Mecha.Number && r.number != a.sender {
			from, err := s.directory.acceptFrom(t, r.number)
			if err != nil {
				return nil, err
			}
			if !from.Accepts(sender.Mecha.Address) {
				continue
			}
		}
		left = append(left, r)
	}
	switch {
	case len(left) > 0:
		return left, nil
	case m.To.IsCrew():
		return nil, relay.Errorf(relay.NotAccepted, "no Mecha of the crew %s accepts messages from %s", m.To.Crew(), sender.Mecha.Address)
	}
	return nil, relay.Errorf(relay.NotAccepted, "%s does not accept messages from %s", m.To, sender.Mecha.Address)
}

// acceptFrom gives the field of a Mecha's profile as it is now; nil if it has none.
func (d *directory) acceptFrom(t *engine.Tx, id relay.MechaNumber) (relay.AcceptFrom, error) {
	if from, known := d.accepts.Find(id); known {
		return from, nil
	}
	return d.readAcceptFrom(t, id)
}

func (d *directory) readAcceptFrom(t *engine.Tx, id relay.MechaNumber) (from relay.AcceptFrom, err error) {
	var text string
	_, err = t.C.Row(func(r *sqlite.Rows) { text = r.Text(0) }, "SELECT accept_from FROM profile WHERE mecha = ?", int64(id))
	if err != nil {
		return nil, err
	}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &from); err != nil || from == nil { // nil would let everybody write
			return nil, fmt.Errorf("%w: accept_from of Mecha %d cannot be read", sqlite.ErrDamaged, id)
		}
	}
	d.accepts.Put(id, from, 1+len(from))
	return from, nil
}

// maxAccepts is how much the writer remembers of accept_from: Mechas that got messages lately,
// and entries of their lists. A Mecha that accepts everybody has nil.
const maxAccepts = 1 << 17
