// Package progress is the room of what becomes of a message: acknowledgements, claims and leases,
// deferrals, expiry, notices to its sender, and notes of pushes.
//
// Due times are in an index of the file; dueTimes knows the earliest one and makes the write that
// acts on it. Each end of a message goes through setState, which writes its receipt and removes it
// from the pending messages. Lessons is called for final acknowledgements.
package progress

import (
	"time"

	"relay/db/cache"
	"relay/db/internal/dictionary"
	"relay/db/internal/directory"
	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/relay"
)

// Lessons is called when messages end.
type Lessons interface {
	// Learns reports whether the store learns.
	Learns() bool
	// Ended is called for the final acknowledgement of a message. p is the position of its receipt,
	// sought the words of the search that found the recipient, or "".
	Ended(t *engine.Tx, a *relay.Acknowledge, m *relay.Message, sought string, p relay.Position)
}

// Progress is the room of what becomes of a message: receipts, leases, and due times, such as
// its expiry. Times are due by the server's clock alone.
type Progress struct {
	engine.Quiet
	w          *engine.Store
	dictionary *dictionary.Dictionary
	directory  *directory.Directory
	lessons    Lessons
	mailbox    *mailbox.Mailbox
	expiry     dueTimes
	overdue    dueTimes
	returns    dueTimes
	pushes     pushNotes
	Claims     *cache.Cache[relay.MechaNumber, relay.Position] // see maxClaims
	attempts   bool                                            // the table attempt may have rows

	// Of the present transaction:

	claimFrom map[relay.MechaNumber]relay.Position // up to where its claims have come (Claims)
	claimed   int                                  // messages that workers got
	returned  int                                  // messages that were redelivered
	spent     int                                  // messages that the relay gave up
}

// New makes the room. maxAttempts is the maximum number of attempts at a message whose recipient
// has set none; 0 means no limit.
func New(
	w *engine.Store, words *dictionary.Dictionary, d *directory.Directory, m *mailbox.Mailbox, l Lessons, maxAttempts int,
) *Progress {
	return &Progress{w: w, dictionary: words, directory: d, mailbox: m, lessons: l,
		expiry: newExpiry(w), overdue: newOverdue(w), returns: newReturns(w, maxAttempts), pushes: pushNotes{w: w},
		Claims: cache.New[relay.MechaNumber, relay.Position](maxClaims), claimFrom: map[relay.MechaNumber]relay.Position{}}
}

func (p *Progress) Start() (err error) {
	for _, d := range [...]*dueTimes{&p.expiry, &p.overdue, &p.returns} {
		if err := d.start(); err != nil {
			return err
		}
	}
	p.attempts, err = p.w.C.Row(nil, "SELECT 1 FROM attempt LIMIT 1")
	return err
}

// Expect notes the times of a new message, in Unix ms, or 0.
func (p *Progress) Expect(expires, ackBy int64) {
	p.expiry.expect(expires)
	p.overdue.expect(ackBy)
}

func (p *Progress) Begin(*engine.Tx) {
	clear(p.claimFrom)
	p.claimed, p.returned, p.spent = 0, 0, 0
}

func (p *Progress) BeforeCommit(t *engine.Tx) error { return p.pushes.beforeCommit(t) }

func (p *Progress) AfterCommit(t *engine.Tx) {
	m := p.w.Measures
	m.Claimed.Add(int64(p.claimed))
	m.Returned.Add(int64(p.returned))
	m.Spent.Add(int64(p.spent))
	m.Committed(t)
	for id, at := range p.claimFrom {
		p.Claims.Put(id, at, 1)
	}
	p.pushes.afterCommit(t)
}

func (p *Progress) Due(time.Time) bool { return true }

func (p *Progress) Do(now time.Time) {
	if p.w.Opts.Serve {
		for _, d := range [...]*dueTimes{&p.expiry, &p.overdue, &p.returns} {
			if d.Due(now) {
				d.Do(now)
			}
		}
	}
	if p.w.Idle {
		p.pushes.flush()
	}
}

func (p *Progress) Flush() { p.pushes.flush() }

func (p *Progress) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.Acknowledge, relay.AckOutcome]{Decide: p.acknowledge,
		By: func(a *relay.Acknowledge) (relay.KeyNumber, relay.NonceHash) { return a.Key, a.Nonce }})
	engine.Add(all, engine.Kind[*relay.MarkDelivered, relay.DeliveredOutcome]{Decide: p.markDelivered,
		By: func(m *relay.MarkDelivered) (relay.KeyNumber, relay.NonceHash) { return m.Key, m.Nonce }})
	engine.Add(all, engine.Kind[*relay.ClaimMessages, []relay.ClaimedMessage]{Decide: p.DecideClaim,
		By: func(c *relay.ClaimMessages) (relay.KeyNumber, relay.NonceHash) { return c.Key, c.Nonce }})
	engine.Add(all, engine.Kind[*relay.ExpireMessage,
		engine.None]{Decide: p.expireMessage, Silent: true, Note: noteExpired})
	engine.Add(all, engine.Kind[*relay.ExpireDue, NextDue]{Decide: p.expireDue, Silent: true})
	engine.Add(all, engine.Kind[*relay.NoteOverdue, NextDue]{Decide: p.noteOverdue, Silent: true})
	engine.Add(all, engine.Kind[*relay.EndAttempts, NextDue]{Decide: p.endAttempts, Silent: true})
}

func noteExpired(e *relay.ExpireMessage, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Detail = relay.ActMessageExpired, string(e.ID)
	return true
}
