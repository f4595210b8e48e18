// Package mailbox is the room of the mailboxes: which messages a Mecha has received and sent, which
// it has not acknowledged, which have joined a conversation, and which answer a message.
//
// A server writes these index tables late, up to a watermark (package late). So a read asks
// FindUnindexed, FindJoined or FindReplies, which say where the messages behind the watermark are
// found, and makes its query from both. Rows of removed messages go later, many at a time
// (MailboxCleaner); reads pass over them. The counts of pending messages are in memory.
package mailbox

import (
	"maps"

	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/relay"
)

// Mailbox is the room of the mailboxes: which messages a Mecha has received, has sent, and has
// not acknowledged. It indexes messages late (package late), and counts the pending ones.
type Mailbox struct {
	engine.Quiet
	w       *engine.Store
	pending map[relay.MechaNumber]int // how many messages are pending for a Mecha, if that was counted
	counted map[relay.MechaNumber]int // likewise, as the present transaction has counted or changed it

	// Of the present transaction:

	settled []names.Row     // messages that are no longer pending
	Removed []names.Message // messages that were removed
}

func New(w *engine.Store) *Mailbox {
	return &Mailbox{w: w, pending: map[relay.MechaNumber]int{}, counted: map[relay.MechaNumber]int{}}
}

func (m *Mailbox) Begin(*engine.Tx) {
	m.w.Caches.TailIndex.Begin()
	clear(m.counted)
	m.settled, m.Removed = m.settled[:0], m.Removed[:0]
}

func (m *Mailbox) BeforeCommit(t *engine.Tx) error { return t.TailIndex.BeforeCommit(t.C, m.Removed) }

func (m *Mailbox) AfterCommit(t *engine.Tx) {
	maps.Copy(m.pending, m.counted)
	t.TailIndex.AfterCommit(names.InPending, m.settled, m.Removed)
}

func (m *Mailbox) Flush() { m.w.Caches.TailIndex.Flush(m.w.MayWrite, m.w.CommitRows) }

// known returns the count of a Mecha's pending messages, if they were counted. Forget keeps
// the counts, because other processes do not send or acknowledge.
func (m *Mailbox) known(id relay.MechaNumber) (n int, ok bool) {
	if n, ok = m.counted[id]; !ok {
		n, ok = m.pending[id]
	}
	return n, ok
}

// Unindexed returns how many messages the mailbox tables lack (package late). Safe for
// concurrent use.
func (m *Mailbox) Unindexed() int { return m.w.Caches.TailIndex.Missing() }
