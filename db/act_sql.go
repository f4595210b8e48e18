package db

import (
	"context"
	"fmt"
	"time"

	"relay/db/file"
	"relay/db/relay"
)

// administer is do for a write that an operator makes. If Options.By says who that is,
// the audit log gets a row in the same transaction.
func administer[W relay.Write, O any](d *DB, write W, decide func(*tx, W) (O, error)) (O, error) {
	return administerBy(d, d.opts.By, write, decide)
}

// administerBy is administer for an operator who is not the one of Options.By.
func administerBy[W relay.Write, O any](d *DB, by relay.Actor, write W, decide func(*tx, W) (O, error)) (O, error) {
	o, err := doBy(d, by, write, decide)
	if err == nil {
		d.awaitNodes(context.Background(), write)
	}
	return o, err
}

func doBy[W relay.Write, O any](d *DB, by relay.Actor, write W, decide func(*tx, W) (O, error)) (O, error) {
	if by == (relay.Actor{}) {
		return do(d, write, decide)
	}
	outcome, err := do(d, &relay.Act{At: write.When(), By: by, Write: write}, (*tx).act)
	o, _ := outcome.(O)
	return o, err
}

// Note adds a row to the audit log for an act that is not a write of its own, such as a
// compaction, and returns once that is durable. what is one of the words of package
// relay, detail is for people. It does nothing unless Options.By says who acts. Errors:
// those of every write. Safe for concurrent use, but not for the writer's goroutine.
func (d *DB) Note(what, detail string) error {
	if d.opts.By == (relay.Actor{}) {
		return nil
	}
	_, err := do(d, &relay.Act{At: d.opts.Now(), By: d.opts.By, What: what, Detail: detail}, (*tx).act)
	return err
}

// act applies the write of an act and notes it. Its outcome is that of the write, nil if
// the write has none.
func (t *tx) act(a *relay.Act) (outcome any, err error) {
	n := relay.NotedAct{At: a.When(), By: a.By, What: a.What, Detail: a.Detail}
	switch w := a.Write.(type) {
	case nil:
	case *relay.IssueKey:
		k, err := t.issueKey(w)
		if err != nil {
			return nil, err
		}
		outcome = k
		n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyIssued, k.Mecha.Address, k.ID, describeKey(k)
		if w.Replaces != "" {
			n.What, n.Detail = relay.ActKeyRotated, fmt.Sprintf("replaces %s, which ends after %s; %s", w.Replaces, w.Overlap, n.Detail)
		}
	case *relay.RevokeKey:
		k, err := t.keyByID(w.ID)
		if err != nil {
			return nil, err
		}
		if _, err := t.revokeKey(w); err != nil {
			return nil, err
		}
		if !k.RevokedAt.IsZero() && !k.RevokedAt.After(w.At) { // it was revoked before
			return nil, nil
		}
		n.What, n.Mecha, n.Key, n.Detail = relay.ActKeyRevoked, k.Mecha.Address, k.ID, describeKey(k)
	case *relay.PutProfile:
		if _, err := t.putProfile(w); err != nil {
			return nil, err
		}
		n.What, n.Mecha = relay.ActProfileSet, w.Address
	case *relay.RemoveMecha:
		if _, err := t.removeMecha(w); err != nil {
			return nil, err
		}
		n.What, n.Mecha, n.Detail = relay.ActMechaRemoved, w.Address, "with its keys and its profile"
	case *relay.SendMessage:
		sent, err := t.send(w)
		if err != nil || sent.Replayed {
			return sent, err
		}
		outcome = sent
		n.What, n.Mecha, n.Detail = relay.ActMessageSent, w.To, string(sent.ID)
		if w.CorrelationID != "" {
			n.Detail += ", correlation id " + relay.Quote(w.CorrelationID)
		}
	case *relay.ExpireMessage:
		if _, err := t.expireMessage(w); err != nil {
			return nil, err
		}
		n.What, n.Detail = relay.ActMessageExpired, string(w.ID)
	case *relay.ForgetLearned:
		if _, err := t.forget(w); err != nil {
			return nil, err
		}
		n.What, n.Mecha, n.Detail = relay.ActForgotten, w.Address, "what discovery had learned about it"
	default:
		return nil, relay.Errorf(relay.Internal, "an act cannot hold a write of the type %T", w)
	}
	return outcome, file.AddAct(t.c, n)
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

// Acts reads the audit log from a time on, the oldest act first.
func (i *Inspector) Acts(since time.Time) (all []relay.NotedAct, err error) {
	err = i.view(func(x *rx) error {
		all, err = file.ReadActs(x.c, since)
		return err
	})
	return all, err
}
