package sending

import (
	"context"
	"errors"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// A message to a crew is one message for each of its Mechas except the sender (PROTOCOL §3,
// To a crew). One write makes them all, or none. Their positions follow each other, in the
// order of the Mechas' numbers.

// maxBroadcastBytes bounds the payloads of a message to a crew together, so that one job
// does not keep the writer longer than a full transaction would.
const maxBroadcastBytes = engine.MaxBatchBytes

// An addressee is a Mecha to which a message goes.
type addressee struct {
	number  relay.MechaNumber
	address relay.Address
}

// addressees returns the Mechas to which a message goes, in an array that the next message
// reuses. Errors: RecipientNotFound; for a crew BroadcastNotAllowed, TooManyRecipients,
// PayloadTooLarge.
func (room *Sending) addressees(t *engine.Tx, m *relay.SendMessage, sender *relay.Key) ([]addressee, error) {
	s := room
	s.to = s.to[:0]
	if !m.To.IsCrew() {
		id, err := room.directory.Recipient(t, m.To)
		s.to = append(s.to, addressee{id, m.To})
		return s.to, err
	}
	switch {
	case m.MaxBroadcast == 0:
		return nil, relay.Errorf(relay.BroadcastNotAllowed, "crew messages are disabled on this relay")
	case !sender.Broadcast && sender.Mecha.Address.Crew() != m.To.Crew():
		return nil, relay.Errorf(relay.BroadcastNotAllowed,
			"only Mechas of the crew %s, and keys made with relay key create --broadcast, may write to all of it", m.To.Crew())
	}
	err := room.crew(t, m.To.Crew(), sender.Mecha.Number, m.MaxBroadcast+1)
	switch to := s.to; {
	case err != nil:
		return nil, err
	case len(to) == 0:
		return nil, relay.Errorf(relay.RecipientNotFound, "the crew %s has no Mecha besides you", m.To.Crew())
	case len(to) > m.MaxBroadcast:
		return nil, relay.Errorf(relay.TooManyRecipients,
			"the crew %s has more than %d Mechas besides you, which is the most that one message may go to",
			m.To.Crew(), m.MaxBroadcast)
	case int64(len(to))*int64(len(m.Payload)) > int64(m.MaxBroadcastBytes):
		return nil, relay.Errorf(relay.PayloadTooLarge,
			"the payload goes to %d Mechas; together that is more than the limit of %d bytes", len(to), m.MaxBroadcastBytes)
	}
	return s.to, nil
}

// The Mechas of a crew except one are read from the index mecha_crew, which has them in
// order. So a crew beyond the limit costs no more.
const (
	ofCrew = "FROM mecha INDEXED BY mecha_crew WHERE substr(address, instr(address, '^') + 1) = ? " +
		"AND removed_at IS NULL AND id <> "
	ReadCrew  = "SELECT id, address " + ofCrew + "? ORDER BY id LIMIT ?"
	CountCrew = "SELECT count(*) FROM (SELECT 1 " + ofCrew + "(SELECT mecha FROM mecha_key WHERE id = ?) LIMIT ?)"
)

// crew adds to the addressees the Mechas of a crew except one, by their numbers, up to a limit.
func (s *Sending) crew(t *engine.Tx, name string, except relay.MechaNumber, limit int) error {
	r := t.C.Query(ReadCrew, name, int64(except), int64(limit))
	for r.Next() {
		s.to = append(s.to, addressee{relay.MechaNumber(r.Int(0)), relay.Address(r.Text(1))})
	}
	return r.Close()
}

// maxCounted is how many Mechas of a crew are counted for a refusal.
const maxCounted = 10_000

// countCrew adds to a TooManyRecipients error how many Mechas the crew has besides the
// sender. It runs in the goroutine of Send, because counting is too slow for the writer. If
// a scan of the caller already waits, the error is unchanged.
func (room *Sending) countCrew(err error, m *relay.SendMessage) error {
	var e *relay.Error
	if !errors.As(err, &e) || e.Code != relay.TooManyRecipients {
		return err
	}
	n := int64(0)
	s := room.w.Readers.Scan(room.w.MechaOf(m.Key))
	s.MaxWaiting = 1
	failed := room.w.ReadIn(context.Background(), s, func(x *engine.Rx) error {
		_, err := x.C.Row(func(r *sqlite.Rows) { n = r.Int(0) }, CountCrew, m.To.Crew(), int64(m.Key), int64(maxCounted+1))
		return err
	})
	if failed != nil || n <= int64(m.MaxBroadcast) { // some are gone since
		return e
	}
	e.Looked = int(n)
	more := ""
	if n > maxCounted {
		n, more = maxCounted, "more than "
	}
	e.Detail = relay.Errorf(e.Code, "the crew %s has %s%d Mechas besides you; one message may go to at most %d",
		m.To.Crew(), more, n, m.MaxBroadcast).Detail
	return e
}
