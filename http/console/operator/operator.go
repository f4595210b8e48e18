// Package operator has the writes of the person at a console: messages of a Mecha of their
// own, and what no Mecha may do. It makes them by DB.Act, which notes each in the audit log.
// Package console knows it by an interface, and so has no way to the store's other writes.
package operator

import (
	"context"
	"sync"
	"time"

	"relay/db"
	"relay/db/relay"
)

// An Operator acts for a person. It is safe for concurrent use.
type Operator struct {
	db      *db.DB
	by      relay.Actor
	address relay.Address
	mu      sync.Mutex
	key     *relay.Key // with which the Mecha sends; nil: none yet
}

// New returns the operator who is by, and whose messages come from a Mecha. The Mecha is
// registered with the first message, if it is new.
func New(store *db.DB, by relay.Actor, address relay.Address) *Operator {
	return &Operator{db: store, by: by, address: address}
}

// Address is the Mecha from which the messages come.
func (o *Operator) Address() relay.Address { return o.address }

// sender returns the key with which the Mecha sends: that of the message before, unless it is
// the one that was refused, that of an earlier start, or a new one.
func (o *Operator) sender(now time.Time, refused *relay.Key) (*relay.Key, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.key != nil && o.key != refused {
		return o.key, nil
	}
	all, err := o.db.Keys(context.Background(), o.address)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if k.Label == relay.OperatorLabel && k.ExpiresAt.IsZero() && k.Check(now) == nil {
			o.key = k
			return k, nil
		}
	}
	issue := &relay.IssueKey{At: now, Address: o.address, Label: relay.OperatorLabel}
	if _, err := issue.Complete(); err != nil {
		return nil, err
	}
	issued, err := o.db.Act(o.by, issue)
	if err != nil {
		return nil, err
	}
	o.key = issued.(*relay.Key)
	return o.key, nil
}

// Send sends a message: body is what a POST would carry (PROTOCOL §3, Send). once is a text
// that the same message has when it is sent again; the second time gives the answer of the
// first. Errors: those of relay.SendMessage.Read and of DB.Send.
func (o *Operator) Send(body []byte, once string) (relay.MessageID, error) {
	now := time.Now()
	m := &relay.SendMessage{At: now}
	if err := m.Read(body, o.address); err != nil {
		return "", err
	}
	var k *relay.Key
	for range 2 { // the key of the message before may have ended
		var err error
		if k, err = o.sender(now, k); err != nil {
			return "", err
		}
		m.Key, m.Idempotency = k.Number, o.db.IdempotencyKey(k.Mecha.Number, once, body)
		sent, err := o.db.Act(o.by, m)
		switch relay.ErrorCode(err) {
		case "":
			return sent.(relay.Sent).ID, err
		case relay.UnknownKey, relay.KeyRevoked, relay.KeyExpired:
		default:
			return "", err
		}
	}
	return "", relay.Errorf(relay.KeyRevoked, "the key that was issued for this message has been revoked meanwhile")
}

// Expire expires a pending message now: its sender gets the receipt, and its recipient gets
// it no more. Errors: MessageNotFound, AlreadyAcknowledged, MessageExpired, and those of every
// write.
func (o *Operator) Expire(id relay.MessageID) error {
	_, err := o.db.Act(o.by, &relay.ExpireMessage{At: time.Now(), ID: id})
	return err
}

// Revoke is DB.Revoke.
func (o *Operator) Revoke(id relay.KeyID) error {
	_, err := o.db.Act(o.by, &relay.RevokeKey{At: time.Now(), ID: id})
	return err
}
