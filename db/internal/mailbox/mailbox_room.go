// Package mailbox is the room of the mailboxes: which messages a Mecha has received and sent, which
// it has not acknowledged, which have joined a conversation, and which answer a message.
//
// A server writes these index tables behind, up to a watermark (package late). So a read calls
// FindUnindexed, FindJoined or FindReplies, which say where the messages after the watermark are
// found, and makes its query from both. Rows of removed messages are deleted later, many at a time
// (MailboxCleaner); reads skip them. The counts of pending messages are in memory.
package mailbox

import (
	"maps"

	"relay/db/internal/engine"
	"relay/db/internal/names"
	"relay/db/relay"
)

// Mailbox is the room of the mailboxes. It indexes messages behind (package late), and counts
// the pending ones.
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
// the counts, because other processes neither send nor acknowledge.
func (m *Mailbox) known(id relay.MechaNumber) (n int, ok bool) {
	if n, ok = m.counted[id]; !ok {
		n, ok = m.pending[id]
	}
	return n, ok
}

// Unindexed returns how many messages are missing from the mailbox tables (package late).
// Any goroutine may call it.
func (m *Mailbox) Unindexed() int { return m.w.Caches.TailIndex.Missing() }
