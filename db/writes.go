package db

import (
	"fmt"

	"relay/db/relay"
)

// newTable has a row for each kind of write.
func newTable(n nouns, l *replication) *table {
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
	add(&all, kind[*relay.UseNonce, none]{decide: n.directory.useNonce, silent: true,
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
	add(&all, kind[*relay.Activate, none]{decide: l.activate, silent: true})
	return &all
}

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
