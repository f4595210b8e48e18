package db

import (
	"maps"

	"relay/db/relay"
)

// mailbox is the room of the mailboxes: which messages a Mecha has received, has sent, and has
// not acknowledged. It indexes messages late (mailbox.go), and counts the pending ones.
type mailbox struct {
	quiet
	w        *writer
	segments segmentWriter
	pending  map[relay.MechaNumber]int // how many messages are pending for a Mecha, if that was counted
	counted  map[relay.MechaNumber]int // likewise, as the present transaction has counted or changed it

	// What the present transaction brings:

	settled  []indexRow       // messages that are no longer pending
	inserted []indexedMessage // messages that were written; the slice is given away
	removed  []indexedMessage // messages that were removed
}

func newMailbox(w *writer) *mailbox {
	m := &mailbox{w: w, pending: map[relay.MechaNumber]int{}, counted: map[relay.MechaNumber]int{}}
	m.segments = segmentWriter{box: m, w: w, index: w.lookups.late}
	return m
}

func (m *mailbox) Begin(*tx) {
	clear(m.counted)
	m.settled, m.inserted, m.removed = m.settled[:0], nil, m.removed[:0]
}

func (m *mailbox) Board(t *tx) error { return m.segments.board(t) }

func (m *mailbox) Arrived(t *tx) {
	maps.Copy(m.pending, m.counted)
	m.segments.arrived(t)
}

func (m *mailbox) Flush() { m.segments.flush() }

// known returns the count of a Mecha's pending messages, if they were counted. Forget keeps
// the counts, because other processes do not send or acknowledge.
func (m *mailbox) known(id relay.MechaNumber) (n int, ok bool) {
	if n, ok = m.counted[id]; !ok {
		n, ok = m.pending[id]
	}
	return n, ok
}

// Unindexed tells how many messages the mailbox tables lack (mailbox.go). Safe for
// concurrent use.
func (m *mailbox) Unindexed() (messages int) {
	l := m.w.lookups.late
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range []*segment{l.indexing, l.collecting} {
		if s != nil {
			messages += s.count
		}
	}
	return messages
}
