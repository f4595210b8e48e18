package db

import (
	"fmt"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// newTable has a row for each kind of write.
func newTable(n nouns, l *replication) *engine.Table {
	var all engine.Table
	engine.Add(&all, engine.Kind[*relay.SendMessage, relay.Sent]{Decide: n.sending.send, Note: noteSent,
		By: func(m *relay.SendMessage) (relay.KeyNumber, relay.NonceHash) { return m.Key, m.Nonce }})
	engine.Add(&all, engine.Kind[*relay.Acknowledge, relay.AckOutcome]{Decide: n.progress.acknowledge,
		By: func(a *relay.Acknowledge) (relay.KeyNumber, relay.NonceHash) { return a.Key, a.Nonce }})
	engine.Add(&all, engine.Kind[*relay.MarkDelivered, relay.DeliveredOutcome]{Decide: n.progress.markDelivered,
		By: func(m *relay.MarkDelivered) (relay.KeyNumber, relay.NonceHash) { return m.Key, m.Nonce }})
	engine.Add(&all, engine.Kind[*relay.ClaimMessages, []relay.ClaimedMessage]{Decide: n.progress.claimMessages,
		By: func(c *relay.ClaimMessages) (relay.KeyNumber, relay.NonceHash) { return c.Key, c.Nonce }})
	engine.Add(&all, engine.Kind[*relay.PutProfile, engine.None]{Decide: n.directory.putProfile, Silent: true, Note: noteProfile,
		By: func(p *relay.PutProfile) (relay.KeyNumber, relay.NonceHash) { return p.Key, p.Nonce }})
	engine.Add(&all, engine.Kind[*relay.UseNonce, engine.None]{Decide: n.directory.useNonce, Silent: true,
		By: func(u *relay.UseNonce) (relay.KeyNumber, relay.NonceHash) { return u.Key, u.Nonce }})
	engine.Add(&all, engine.Kind[*relay.NoteFull, engine.None]{Decide: n.sending.noteFull, Silent: true,
		By: func(n *relay.NoteFull) (relay.KeyNumber, relay.NonceHash) { return n.Key, 0 }})

	engine.Add(&all, engine.Kind[*relay.IssueKey, *relay.Key]{Decide: n.directory.issueKey, Note: noteIssued, Keys: true})
	engine.Add(&all, engine.Kind[*relay.RevokeKey, *relay.Key]{Decide: n.directory.revokeKey, Silent: true, Note: noteRevoked, Keys: true})
	engine.Add(&all, engine.Kind[*relay.RemoveMecha, engine.None]{Decide: n.directory.removeMecha, Silent: true, Note: noteRemoved, Keys: true})
	engine.Add(&all, engine.Kind[*relay.ExpireMessage, engine.None]{Decide: n.progress.expireMessage, Silent: true, Note: noteExpired})
	engine.Add(&all, engine.Kind[*relay.ForgetLearned, engine.None]{Decide: n.learning.forget, Silent: true, Note: noteForgotten})
	engine.Add(&all, engine.Kind[*relay.Act, any]{Decide: (*engine.Tx).Act})

	engine.Add(&all, engine.Kind[*relay.ExpireDue, nextDue]{Decide: n.progress.expireDue, Silent: true})
	engine.Add(&all, engine.Kind[*relay.NoteOverdue, nextDue]{Decide: n.progress.noteOverdue, Silent: true})
	engine.Add(&all, engine.Kind[*relay.EndAttempts, nextDue]{Decide: n.progress.endAttempts, Silent: true})
	engine.Add(&all, engine.Kind[*relay.PruneMessages, relay.Pruned]{Decide: n.retention.pruneMessages})
	engine.Add(&all, engine.Kind[*relay.PruneUnused, relay.PrunedUnused]{Decide: n.retention.pruneUnused})
	engine.Add(&all, engine.Kind[*relay.CountExchanges, bool]{Decide: n.learning.countExchanges, Silent: true})
	engine.Add(&all, engine.Kind[*relay.Activate, engine.None]{Decide: l.activate, Silent: true})
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

func noteProfile(p *relay.PutProfile, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Mecha = relay.ActProfileSet, p.Address
	return true
}

func noteRemoved(r *relay.RemoveMecha, _ engine.None, n *relay.NotedAct) bool {
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

func noteExpired(e *relay.ExpireMessage, _ engine.None, n *relay.NotedAct) bool {
	n.What, n.Detail = relay.ActMessageExpired, string(e.ID)
	return true
}

func noteForgotten(f *relay.ForgetLearned, _ engine.None, n *relay.NotedAct) bool {
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
