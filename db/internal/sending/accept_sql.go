package sending

import (
	"relay/db/internal/engine"
	"relay/db/relay"
)

// accepting drops the recipients that do not accept a message (PROTOCOL §3, Who may write
// to me). A Mecha accepts its own messages, and answers to them. Error: NotAccepted, if
// nobody is left.
func (s *Sending) accepting(
	t *engine.Tx, m *relay.SendMessage, sender *relay.Key, a answered, to []addressee,
) ([]addressee, error) {
	left := to[:0]
	for _, r := range to {
		if r.number != sender.Mecha.Number && r.number != a.sender {
			from, err := s.directory.AcceptFrom(t, r.number)
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
		return nil, relay.Errorf(relay.NotAccepted, "no Mecha of the crew %s accepts messages from %s",
			m.To.Crew(), sender.Mecha.Address)
	}
	return nil, relay.Errorf(relay.NotAccepted, "%s does not accept messages from %s", m.To, sender.Mecha.Address)
}
