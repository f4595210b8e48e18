package db

import (
	"context"
	"sync"
	"time"

	"relay/db/relay"
)

// An Operator makes the writes of the person who runs the relay: messages of a Mecha of
// their own, and what no Mecha may do. Each is noted in the audit log, in the same
// transaction. It is safe for concurrent use.
type Operator struct {
	d       *DB
	by      relay.Actor
	address relay.Address
	mu      sync.Mutex
	key     *relay.Key // with which the Mecha sends; nil: none yet
}

// Operator gives the operator who is by, and whose messages come from a Mecha. That is
// registered with the first message, if it is new.
func (d *DB) Operator(by relay.Actor, address relay.Address) *Operator {
	return &Operator{d: d, by: by, address: address}
}

// Address is the Mecha from which the messages come.
func (o *Operator) Address() relay.Address { return o.address }

// operatorLabel is the label of the key with which an operator sends. Nobody knows its text.
const operatorLabel = "console"

// sender gives the key with which the Mecha sends: that of the message before, unless it is
// the one that was refused, that of an earlier start, or a new one.
func (o *Operator) sender(now time.Time, refused *relay.Key) (*relay.Key, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.key != nil && o.key != refused {
		return o.key, nil
	}
	all, err := o.d.Keys(context.Background(), o.address)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if k.Label == operatorLabel && k.ExpiresAt.IsZero() && k.Check(now) == nil {
			o.key = k
			return k, nil
		}
	}
	issue := &relay.IssueKey{At: now, Address: o.address, Label: operatorLabel}
	if _, err := issue.Complete(); err != nil {
		return nil, err
	}
	k, err := administerBy[*relay.Key](o.d, o.by, issue)
	if err == nil {
		o.key = k
	}
	return k, err
}

// Send sends a message: body is what a POST would carry (PROTOCOL §3, Send). once is a text
// that the same message has when it is sent again; the second time gives the answer of the
// first. Errors: those of relay.SendMessage.Read and of DB.Send.
func (o *Operator) Send(body []byte, once string) (relay.MessageID, error) {
	now := o.d.opts.Now()
	m := &relay.SendMessage{At: now}
	if err := m.Read(body, o.address); err != nil {
		return "", err
	}
	o.d.judge(m)
	var k *relay.Key
	for range 2 { // the key of the message before may have ended
		var err error
		if k, err = o.sender(now, k); err != nil {
			return "", err
		}
		m.Key, m.Idempotency = k.Number, o.d.IdempotencyKey(k.Mecha.Number, once, body)
		sent, err := administerBy[relay.Sent](o.d, o.by, m)
		switch relay.ErrorCode(err) {
		case relay.UnknownKey, relay.KeyRevoked, relay.KeyExpired:
		default:
			return sent.ID, o.d.suggest(err, m.To, m.Key)
		}
	}
	return "", relay.Errorf(relay.KeyRevoked, "the key that was issued for this message has been revoked meanwhile")
}

// Expire expires a pending message now: its sender gets the receipt, and its recipient gets
// it no more. Errors: MessageNotFound, AlreadyAcknowledged, MessageExpired, and those of every
// write.
func (o *Operator) Expire(id relay.MessageID) error {
	_, err := administerBy[none](o.d, o.by, &relay.ExpireMessage{At: o.d.opts.Now(), ID: id})
	return err
}

// Revoke is DB.Revoke.
func (o *Operator) Revoke(id relay.KeyID) error {
	_, err := administerBy[*relay.Key](o.d, o.by, &relay.RevokeKey{At: o.d.opts.Now(), ID: id})
	return err
}
