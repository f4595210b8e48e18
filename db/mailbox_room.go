package db

import (
	"maps"

	"relay/db/internal/names"
	"relay/db/relay"
)

// mailbox is the room of the mailboxes: which messages a Mecha has received, has sent, and has
// not acknowledged. It indexes messages late (mailbox.go), and counts the pending ones.
type mailbox struct {
	quiet
	w       *writer
	pending map[relay.MechaNumber]int // how many messages are pending for a Mecha, if that was counted
	counted map[relay.MechaNumber]int // likewise, as the present transaction has counted or changed it

	// What the present transaction brings:

	settled []names.Row     // messages that are no longer pending
	removed []names.Message // messages that were removed
}

func newMailbox(w *writer) *mailbox {
	return &mailbox{w: w, pending: map[relay.MechaNumber]int{}, counted: map[relay.MechaNumber]int{}}
}

func (m *mailbox) Begin(*tx) {
	m.w.Lookups.Late.Begin()
	clear(m.counted)
	m.settled, m.removed = m.settled[:0], m.removed[:0]
}

func (m *mailbox) Board(t *tx) error { return t.Late.Board(t.c, m.removed) }

func (m *mailbox) Arrived(t *tx) {
	maps.Copy(m.pending, m.counted)
	t.Late.Arrived(names.InPending, m.settled, m.removed)
}

func (m *mailbox) Flush() { m.w.Lookups.Late.Flush(m.w.mayWrite, m.w.commitRows) }

// known returns the count of a Mecha's pending messages, if they were counted. Forget keeps
// the counts, because other processes do not send or acknowledge.
func (m *mailbox) known(id relay.MechaNumber) (n int, ok bool) {
	if n, ok = m.counted[id]; !ok {
		n, ok = m.pending[id]
	}
	return n, ok
}

// Unindexed returns how many messages the mailbox tables lack (mailbox.go). Safe for
// concurrent use.
func (m *mailbox) Unindexed() int { return m.w.Lookups.Late.Missing() }
