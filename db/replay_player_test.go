package db

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/internal/progress"
	"relay/db/relay"
)

// player is one of several users of the store at the same time.
type player struct {
	*testing.T
	d      *DB
	random *rand.Rand
	keys   []*relay.Key
	issued *relay.IssueKey // one that was applied; nil: none yet
	sent   []relay.Sent
	found  relay.SearchID // the latest search, of any of the keys

	operatorKey *relay.Key // with which an operator sends; nil: none yet
}

func (p *player) key() *relay.Key { return p.keys[p.random.IntN(len(p.keys))] }

func (p *player) message() relay.MessageID {
	if len(p.sent) == 0 {
		return "msg_none"
	}
	return p.sent[max(0, len(p.sent)-1-p.random.IntN(30))].ID
}

func (p *player) send() {
	from, to := p.key(), p.key().Mecha.Address
	m := &relay.SendMessage{At: time.Now(), Key: from.Number, To: to, Payload: fmt.Appendf(nil, `{"n":%d}`, p.random.IntN(3)), Nonce: relay.NonceHash(p.random.Int64() | 1)}
	switch p.random.IntN(8) {
	case 0:
		m.Conversation = relay.ConversationID(fmt.Sprint("label-", p.random.IntN(4)))
	case 1, 2:
		if len(p.sent) > 0 {
			m.Conversation = p.sent[p.random.IntN(len(p.sent))].Conversation // perhaps not the sender's
		}
	case 3, 4:
		m.Idempotency = p.d.IdempotencyKey(from.Mecha.Number, fmt.Sprint("again-", p.random.IntN(5)), m.Payload)
		m.OnlyReplay = p.random.IntN(4) == 0
	case 5:
		m.To = "nobody^here"
	case 6:
		m.ExpiresAt = m.At.Add(time.Duration(1+p.random.IntN(40)) * time.Millisecond)
	case 7:
		m.InReplyTo = p.message()
		m.Trace.Keep("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b")
	}
	if p.random.IntN(6) == 0 {
		m.To = relay.Address("*^" + to.Crew())
	}
	if p.random.IntN(6) == 0 {
		m.AckBy = m.At.Add(time.Duration(1000+p.random.IntN(40)) * time.Millisecond)
	}
	if p.random.IntN(10) == 0 {
		m.MaxMessages = 1 + p.random.IntN(3)
	}
	if p.random.IntN(2) == 0 { // often a search of another Mecha, or one that listed others
		m.SearchID = p.found
	}
	if m.Validate() != nil {
		p.Error("invalid message")
	}
	if p.random.IntN(30) == 0 { // another machine had accepted it, whose disk was full
		m.DiskFull = true
		if _, err := p.d.Apply(m); relay.ErrorCode(err) == "" && m.Idempotency.Key == 0 {
			p.Error("a message for which there was no room was stored")
		}
		return
	}
	sent, err := p.d.Send(m)
	if err == nil {
		p.sent = append(p.sent, sent)
		for _, id := range sent.IDs {
			p.sent = append(p.sent, relay.Sent{ID: id, Conversation: sent.Conversation})
		}
	}
	p.fine(err)
}

// fine fails the test for errors that are not refusals.
func (p *player) fine(err error) {
	if code := relay.ErrorCode(err); code == relay.Internal || code == relay.StoreFailed {
		p.Error(err)
	}
}

// progress reports progress on one message until the store refuses more.
func (p *player) progress() {
	k, err := p.d.Issue(&relay.IssueKey{At: time.Now(), Address: relay.Address(fmt.Sprintf("worker%d^crew", p.random.IntN(1000)))}) // its mailbox is empty
	if err != nil {
		p.Error(err)
		return
	}
	m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: k.Mecha.Address, Payload: []byte("{}"), Nonce: relay.NonceHash(p.random.Int64() | 1)}
	if m.Validate() != nil {
		p.Error("invalid message")
	}
	sent, err := p.d.Send(m)
	if err != nil {
		p.Error(err)
		return
	}
	var refused atomic.Int32
	nonce := p.random.Int64()
	var all sync.WaitGroup
	for i := range 2 * progress.MaxAcks {
		all.Go(func() {
			_, err := p.d.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: k.Number, ID: sent.ID, Status: "processing",
				ClientTS: "2026-01-01T00:00:00Z", Detail: fmt.Sprint(i), Nonce: relay.NonceHash(nonce + 2*int64(i) | 1)})
			if p.fine(err); relay.ErrorCode(err) == relay.TooManyAcks {
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if refused.Load() != progress.MaxAcks {
		p.Errorf("%d acknowledgements were refused", refused.Load())
	}
}

// teach has Mechas of three crews find a worker by a search and write to it. The worker
// completes most of the messages, and fails some.
func (p *player) teach(life int) {
	worker := p.mustIssue(fmt.Sprintf("worker%d^taught", life))
	for i := range 12 {
		k := p.mustIssue(fmt.Sprintf("asker%d^crew%d", i%5, i%3))
		p.found = relay.NewSearchID()
		words := []string{"book", fmt.Sprint("flight", i%4), fmt.Sprint("word", i)}
		p.d.SaveSearch(&relay.SaveSearch{At: time.Now(), ID: p.found, Mecha: k.Mecha.Number, Answer: []byte("{}"), Nonce: 5, Words: words, Listed: []relay.MechaNumber{worker.Mecha.Number}}, p.fine)
		m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: worker.Mecha.Address, Payload: []byte("{}"), Nonce: relay.NonceHash(p.random.Int64() | 1), SearchID: p.found}
		if err := m.Validate(); err != nil {
			p.Fatal(err)
		}
		sent, err := p.d.Send(m)
		if err != nil {
			p.Fatal(err)
		}
		status := []string{"completed", "completed", "completed", "failed", "seen"}[i%5]
		_, err = p.d.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: worker.Number, ID: sent.ID, Status: status, ClientTS: "2026-01-01T00:00:00Z", Nonce: relay.NonceHash(p.random.Int64() | 1)})
		if err != nil {
			p.Fatal(err)
		}
	}
}

func (p *player) mustIssue(address string) *relay.Key {
	k, err := p.d.Issue(&relay.IssueKey{At: time.Now(), Address: relay.Address(address)})
	if err != nil {
		p.Fatal(err)
	}
	return k.Key
}

// search saves a search of a Mecha that lists some others, with words that recur.
func (p *player) search(now time.Time, k *relay.Key) {
	p.found = relay.NewSearchID()
	s := &relay.SaveSearch{At: now, ID: p.found, Mecha: k.Mecha.Number, Answer: []byte("{}"), Nonce: 5}
	for _, other := range p.keys {
		if p.random.IntN(3) > 0 {
			s.Listed = append(s.Listed, other.Mecha.Number)
		}
	}
	for i := range 8 {
		if p.random.IntN(2) == 0 {
			s.Words = append(s.Words, fmt.Sprint("word", i))
		}
	}
	p.d.SaveSearch(s, func(err error) { p.fine(err) })
}

func (p *player) play(rounds int) {
	statuses := []string{"received", "processing", "deferred", "seen", "completed", "failed"}
	for range rounds {
		now, k := time.Now(), p.key()
		var err error
		if p.random.IntN(8) == 0 { // a lease of some milliseconds
			_, err := p.d.ClaimMessages(p.Context(), &relay.ClaimMessages{At: now, Key: k.Number, Limit: 1 + p.random.IntN(3), Lease: time.Duration(1+p.random.IntN(400)) * time.Millisecond, Worker: "w", Nonce: relay.NonceHash(p.random.Int64() | 1)})
			p.fine(err)
		}
		switch p.random.IntN(24) {
		case 0, 1, 2, 3, 4:
			a := &relay.Acknowledge{At: now, Key: k.Number, ID: p.message(), Status: statuses[p.random.IntN(len(statuses))],
				ClientTS: "2026-01-01T00:00:00Z", Detail: "why", Nonce: relay.NonceHash(p.random.Int64() | 1)}
			if a.Status == relay.Deferred {
				a.RetryAfter = time.Duration(1+p.random.IntN(300)) * time.Millisecond
			}
			_, err = p.d.Acknowledge(a)
		case 5, 6:
			_, err = p.d.MarkDelivered(&relay.MarkDelivered{At: now, Key: k.Number, ID: p.message(), Nonce: relay.NonceHash(p.random.Int64() | 1)})
		case 7:
			profile := relay.Profile{Description: fmt.Sprint("number ", p.random.IntN(100)), Tags: []string{"a/b"}}
			if learn := p.random.IntN(4) > 0; !learn {
				profile.Learn = &learn
			}
			if p.random.IntN(3) == 0 {
				profile.AcceptFrom = relay.AcceptFrom{"*^crew0", string(p.key().Mecha.Address)}[:p.random.IntN(3)]
			}
			err = p.d.PutProfile(&relay.PutProfile{At: now, Key: k.Number, Address: k.Mecha.Address, Profile: profile.Stored(), Nonce: relay.NonceHash(p.random.Int64() | 1)})
		case 8:
			var made relay.IssuedKey
			i := &relay.IssueKey{At: now, Address: k.Mecha.Address, Label: "more", WithSecret: p.random.IntN(2) == 0, Broadcast: p.random.IntN(2) == 0, ExpiresAt: now.Add(time.Hour)}
			made, err = p.d.Issue(i)
			if err == nil {
				p.keys, p.issued = append(p.keys, made.Key), i
			}
		case 9:
			_, err = p.d.Issue(&relay.IssueKey{At: now, Replaces: k.ID, Overlap: time.Duration(p.random.IntN(20)) * time.Millisecond})
		case 10:
			switch p.random.IntN(4) {
			case 0:
				err = p.d.Revoke(&relay.RevokeKey{At: now, ID: k.ID})
			case 1:
				_, err = p.d.Act(operator, &relay.ExpireMessage{At: now, ID: p.message()})
			case 2:
				err = p.sendAsOperator(now, k.Mecha.Address)
			}
		case 11: // local writes, and a read
			p.d.Pushed(k.Number, now, []relay.Position{relay.PositionAt(now)})
			p.search(now, k)
			if _, err := p.d.Key(context.Background(), "mk_nothing"); relay.ErrorCode(err) != relay.MalformedKey {
				p.Error(err)
			}
		case 14:
			if p.random.IntN(8) == 0 {
				err = forgetLearned(p.d, now, k.Mecha.Address)
			}
		case 13: // of a clock that is ahead, so that some of it is due; but most Idempotency-Keys answer still
			if p.random.IntN(4) == 0 {
				err = p.prune(now.Add(p.ahead()))
			}
		case 12: // cannot be applied: there is such a key. Its neighbours are, everywhere
			if p.issued != nil {
				if _, again := p.d.Apply(p.issued); relay.ErrorCode(again) != relay.Internal {
					p.Errorf("a key that was issued twice: %v", again)
				}
			}
		default:
			p.send()
		}
		p.fine(err)
	}
}

// operator makes the acts of the player.
var operator = relay.Actor{UID: 7, User: "ops", Command: "console"}

// sendAsOperator sends a message by an act, with a key that an act has issued.
func (p *player) sendAsOperator(now time.Time, to relay.Address) error {
	if p.operatorKey == nil {
		issue := &relay.IssueKey{At: now, Address: "operator^crew1", Label: relay.OperatorLabel}
		if _, err := issue.Complete(); err != nil {
			return err
		}
		issued, err := p.d.Act(operator, issue)
		if err != nil {
			return err
		}
		p.operatorKey = issued.(*relay.Key)
	}
	body, once := fmt.Appendf(nil, `{"to":"%s","payload":{}}`, to), fmt.Sprint(p.random.IntN(1000))
	m := &relay.SendMessage{At: now}
	if err := m.Read(body, p.operatorKey.Mecha.Address); err != nil {
		return err
	}
	m.Key, m.Idempotency = p.operatorKey.Number, p.d.IdempotencyKey(p.operatorKey.Mecha.Number, once, body)
	_, err := p.d.Act(operator, m)
	switch relay.ErrorCode(err) {
	case relay.UnknownKey, relay.KeyRevoked, relay.KeyExpired:
		p.operatorKey = nil
	}
	return err
}
