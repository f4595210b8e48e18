package db

import (
	"fmt"

	"relay/db/relay"
)

// table is the table of writes: what the store does with each kind of write, by its number
// (relay.KindOf).
type table [relay.Kinds]row

// row is a row of the table: a *kind.
type row interface {
	// job makes the job of a write. done gets the outcome; nil if the kind is silent.
	job(write relay.Write, done func(outcome any, err error)) job
	// caller returns the key whose turn in the queue a write takes, and the nonce that it uses
	// up; 0 and 0 for the relay's own.
	caller(write relay.Write) (relay.KeyNumber, relay.NonceHash)
	// act applies a write that an operator makes, and completes the note for the audit log.
	// noted is false if there is nothing to note.
	act(t *tx, write relay.Write, n *relay.NotedAct) (outcome any, noted bool, err error)
	// decidesKeys reports whether a write of the kind decides which keys work.
	decidesKeys() bool
}

// kind is what the store does with the writes of one type.
type kind[W relay.Write, O any] struct {
	// decide applies the write and returns its outcome, which depends on the store's state and
	// the write alone.
	decide func(*tx, W) (O, error)
	silent bool // the outcome is the store's own business: Apply returns nil
	// by returns the key and the nonce of a client's request; nil: no client makes such writes.
	by func(W) (relay.KeyNumber, relay.NonceHash)
	// note completes the note of the audit log, and reports whether there is something to note;
	// nil: no operator makes such writes.
	note func(W, O, *relay.NotedAct) bool
	keys bool // it decides which keys work
}

// newTable has a row for each kind of write.
func newTable(n nouns) *table {
	var all table
	add(&all, kind[*relay.SendMessage, relay.Sent]{decide: n.sending.send, note: noteSent,
		by: func(m *relay.SendMessage) (relay.KeyNumber, relay.NonceHash) { return m.Key, m.Nonce }})
	add(&all, kind[*relay.Acknowledge, relay.AckOutcome]{decide: n.progress.acknowledge,
		by: func(a *relay.Acknowledge) (relay.KeyNumber, relay.NonceHash) { return a.Key, a.Nonce }})
	add(&all, kind[*relay.MarkDelivered, relay.DeliveredOutcome]{decide: n.progress.markDelivered,
		by: func(m *relay.MarkDelivered) (relay.KeyNumber, relay.NonceHash) { return m.Key, m.Nonce }})
	add(&all, kind[*relay.ClaimMessages, []relay.ClaimedMessage]{decide: n.progress.claimMessages,
		by: func(c *relay.ClaimMessages) (relay.KeyNumber, relay.NonceHash) { return c.Key, c.Nonce }})
	add(&all, kind[*relay.PutProfile, none]{decide: n.directory.putProfile, silent: true, note: noteProfile,
		by: func(p *relay.PutProfile) (relay.KeyNumber, relay.NonceHash) { return p.Key, p.Nonce }})
	add(&all, kind[*relay.UseNonce, none]{decide: (*tx).useNonce, silent: true,
		by: func(u *relay.UseNonce) (relay.KeyNumber, relay.NonceHash) { return u.Key, u.Nonce }})
	add(&all, kind[*relay.NoteFull, none]{decide: n.sending.noteFull, silent: true,
		by: func(n *relay.NoteFull) (relay.KeyNumber, relay.NonceHash) { return n.Key, 0 }})

	add(&all, kind[*relay.IssueKey, *relay.Key]{decide: n.directory.issueKey, note: noteIssued, keys: true})
	add(&all, kind[*relay.RevokeKey, *relay.Key]{decide: n.directory.revokeKey, silent: true, note: noteRevoked, keys: true})
	add(&all, kind[*relay.RemoveMecha, none]{decide: n.directory.removeMecha, silent: true, note: noteRemoved, keys: true})
	add(&all, kind[*relay.ExpireMessage, none]{decide: n.progress.expireMessage, silent: true, note: noteExpired})
	add(&all, kind[*relay.ForgetLearned, none]{decide: n.learning.forget, silent: true, note: noteForgotten})
	add(&all, kind[*relay.Act, any]{decide: (*tx).act})

	add(&all, kind[*relay.ExpireDue, nextDue]{decide: n.progress.expireDue, silent: true})
	add(&all, kind[*relay.NoteOverdue, nextDue]{decide: n.progress.noteOverdue, silent: true})
	add(&all, kind[*relay.EndAttempts, nextDue]{decide: n.progress.endAttempts, silent: true})
	add(&all, kind[*relay.PruneMessages, relay.Pruned]{decide: n.retention.pruneMessages})
	add(&all, kind[*relay.PruneUnused, relay.PrunedUnused]{decide: n.retention.pruneUnused})
	add(&all, kind[*relay.CountExchanges, bool]{decide: n.learning.countExchanges, silent: true})
	add(&all, kind[*relay.Activate, none]{decide: (*tx).activate, silent: true})
	return &all
}

// add adds the row of a kind.
func add[W relay.Write, O any](all *table, k kind[W, O]) {
	var zero W
	all[relay.KindOf(zero)] = &k
}

// of returns the row of a write's kind. Error: Internal, for a kind that the store does not know.
func (all *table) of(write relay.Write) (row, error) {
	if r := all[relay.KindOf(write)]; r != nil {
		return r, nil
	}
	return nil, relay.Errorf(relay.Internal, "the store does not know writes of the type %T", write)
}

// jobOf makes the job of a write of any kind. done is called as then calls it, with nil for
// kinds that are silent. Error: Internal, for a kind that the store does not know.
func (all *table) jobOf(write relay.Write, done func(any, error)) (job, error) {
	r, err := all.of(write)
	if err != nil {
		return nil, err
	}
	return r.job(write, done), nil
}

// caller returns the key and the nonce of a write; 0 and 0 for nil.
func (all *table) caller(write relay.Write) (relay.KeyNumber, relay.NonceHash) {
	if write == nil {
		return 0, 0
	}
	if r, err := all.of(write); err == nil {
		return r.caller(write)
	}
	return 0, 0
}

// decidesKeys reports whether a write, or the one that an operator makes by it, decides which
// keys work.
func (all *table) decidesKeys(write relay.Write) bool {
	if a, ok := write.(*relay.Act); ok && a.Write != nil {
		write = a.Write
	}
	r, err := all.of(write)
	return err == nil && r.decidesKeys()
}

// taskOf makes the job of a write whose kind has outcomes of type O.
func taskOf[O any, W relay.Write](all *table, write W, done func(O, error)) *task[W, O] {
	return &task[W, O]{write: write, decide: all[relay.KindOf(write)].(*kind[W, O]).decide, done: done}
}

func (k *kind[W, O]) job(write relay.Write, done func(any, error)) job {
	return &task[W, O]{write: write.(W), decide: k.decide, done: func(o O, err error) {
		if k.silent {
			done(nil, err)
			return
		}
		done(o, err)
	}}
}

func (k *kind[W, O]) caller(write relay.Write) (relay.KeyNumber, relay.NonceHash) {
	if k.by == nil {
		return 0, 0
	}
	return k.by(write.(W))
}

func (k *kind[W, O]) act(t *tx, write relay.Write, n *relay.NotedAct) (outcome any, noted bool, err error) {
	if k.note == nil {
		return nil, false, relay.Errorf(relay.Internal, "an act cannot hold a write of the type %T", write)
	}
	o, err := k.decide(t, write.(W))
	if !k.silent {
		outcome = o
	}
	return outcome, err == nil && k.note(write.(W), o, n), err
}

func (k *kind[W, O]) decidesKeys() bool { return k.keys }

// What the audit log says of the writes that operators make:

func noteIssued(i *relay.IssueKey, k *relay.Key, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyIssued, k.Mecha.Address, k.ID, describeKey(k)
	if i.Replaces != "" {
		n.What, n.Detail = relay.ActKeyRotated, fmt.Sprintf("replaces %s, which ends after %s; %s", i.Replaces, i.Overlap, n.Detail)
	}
	return true
}

func noteRevoked(r *relay.RevokeKey, k *relay.Key, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyRevoked, k.Mecha.Address, k.ID, describeKey(k)
	return k.RevokedAt.IsZero() || k.RevokedAt.After(r.At) // else it was revoked before
}

func noteProfile(p *relay.PutProfile, _ none, n *relay.NotedAct) bool {
	n.What, n.Mecha = relay.ActProfileSet, p.Address
	return true
}

func noteRemoved(r *relay.RemoveMecha, _ none, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActMechaRemoved, r.Address, "with its keys and its profile"
	return true
}

func noteSent(m *relay.SendMessage, sent relay.Sent, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActMessageSent, m.To, string(sent.ID)
	if m.CorrelationID != "" {
		n.Detail += ", correlation id " + relay.Quote(m.CorrelationID)
	}
	return !sent.Replayed
}

func noteExpired(e *relay.ExpireMessage, _ none, n *relay.NotedAct) bool {
	n.What, n.Detail = relay.ActMessageExpired, string(e.ID)
	return true
}

func noteForgotten(f *relay.ForgetLearned, _ none, n *relay.NotedAct) bool {
	n.What, n.Mecha, n.Detail = relay.ActForgotten, f.Address, "what discovery had learned about it"
	return true
}

// describeKey says what people know a key by.
func describeKey(k *relay.Key) string {
	text := "no label"
	if k.Label != "" {
		text = "label " + relay.Quote(k.Label)
	}
	if k.Broadcast {
		text += ", may write to all crews"
	}
	if !k.ExpiresAt.IsZero() {
		text += ", ends " + relay.FormatTime(k.ExpiresAt)
	}
	return text
}
