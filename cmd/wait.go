package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	"relay/db/relay"
)

// What relay send waits for is asked of the relay by plain requests. A socket
// is only the bell that says when to ask: what it missed, while it was lost or
// the relay was away, is found by asking.

const (
	lookAgain = 2 * time.Second // without a bell
	waitPause = 2 * time.Second // at most, between attempts to connect
)

// fate is what a sender sees of its message.
type fate struct {
	From  relay.Address
	State string
	Ack   *struct{ Status, Detail string }

	record json.RawMessage
}

// failed says why nothing more is to be expected of a message; nil: it is still open, or well.
func (f *fate) failed(id string) error {
	switch {
	case f.State == relay.Expired.String():
		return fmt.Errorf("%s expired before it was acknowledged", id)
	case f.Ack == nil || f.Ack.Status != "failed" && f.Ack.Status != "rejected":
		return nil
	case f.Ack.Detail == "":
		return fmt.Errorf("%s was acknowledged as %s", id, f.Ack.Status)
	}
	return fmt.Errorf("%s was acknowledged as %s: %s", id, f.Ack.Status, harmless(f.Ack.Detail))
}

func (c *client) fate(ctx context.Context, id string) (f fate, err error) {
	if err = c.call(ctx, "GET", "/api/v1/messages/"+id, nil, &f.record); err == nil {
		err = json.Unmarshal(f.record, &f)
	}
	return f, err
}

// waitForAck waits for the final ack of a message. Any but completed is an error.
func (a *app) waitForAck(ctx context.Context, c *client, sent sentMessage, most time.Duration) error {
	var last fate
	err := c.until(ctx, sent, most, func(ctx context.Context) (done bool, err error) {
		f, err := c.fate(ctx, sent.MessageID)
		if err != nil {
			return false, err
		}
		last, err = f, f.failed(sent.MessageID)
		return err != nil || last.Ack != nil && last.Ack.Status == "completed", permanent(err)
	})
	if a.json && last.record != nil {
		fmt.Fprintf(a.stdout, "%s\n", last.record)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no final ack within %v: %s is %s. It stays with the relay", most, sent.MessageID, dash(last.State))
	case err == nil:
		fmt.Fprintln(a.stderr, "completed")
	}
	return err
}

// waitForReply waits for the answer to a message, prints and acknowledges it.
func (a *app) waitForReply(ctx context.Context, c *client, m *outgoing, sent sentMessage, o sendOptions) error {
	var reply *envelope
	cursor := sent.MessageID
	err := c.until(ctx, sent, o.waitReply, func(ctx context.Context) (done bool, err error) {
		f, err := c.fate(ctx, sent.MessageID)
		if err != nil {
			return false, err
		}
		// After the fate: an answer that was sent before a failure counts.
		if reply, cursor, err = c.findReply(ctx, f.From, m, sent, cursor); err != nil || reply != nil {
			return reply != nil, err
		}
		err = f.failed(sent.MessageID)
		return err != nil, permanent(err)
	})
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer to %s within %v. It may still come: see relay inbox", sent.MessageID, o.waitReply)
	case err != nil:
		return err
	}
	line := append(reply.payload(), '\n')
	if a.json {
		if line, err = reply.line(); err != nil {
			return err
		}
	}
	if _, err := a.stdout.Write(line); err != nil || o.noAck {
		return err
	}
	if err := c.ack(ctx, reply.MessageID, "completed", "", nil); err != nil {
		fmt.Fprintf(a.stderr, "relay: the answer %s is not acknowledged: %v\n", reply.MessageID, err)
	}
	return nil
}

func interrupted(sent sentMessage) error {
	return fmt.Errorf("interrupted. %s was sent, and stays with the relay", sent.MessageID)
}

// findReply looks behind the cursor for the answer, and gives the next cursor.
func (c *client) findReply(ctx context.Context, own relay.Address, m *outgoing, sent sentMessage, cursor string) (*envelope, string, error) {
	q := url.Values{"direction": {"in"}, "include": {"payload"}, "peer": {m.To}, "conversation_id": {sent.ConversationID}}
	for {
		q.Set("since_message_id", cursor)
		p, err := c.history(ctx, own, q)
		if err != nil {
			return nil, cursor, err
		}
		for _, e := range p.Messages {
			if e.CorrelationID == m.CorrelationID || e.CorrelationID == "" && m.ConversationID == "" {
				return &e, cursor, nil
			}
		}
		if cursor = p.Next; !p.More {
			return nil, cursor, nil
		}
	}
}

// historyPage is an answer of GET /api/v1/mecha/{mechaId}/messages.
type historyPage struct {
	Messages []envelope
	More     bool   `json:"has_more"`
	Next     string `json:"next_cursor"`
}

func (c *client) history(ctx context.Context, own relay.Address, q url.Values) (p historyPage, err error) {
	err = c.call(ctx, "GET", "/api/v1/mecha/"+string(own)+"/messages?"+q.Encode(), nil, &p)
	return p, err
}

// final marks an error after which asking again is of no use.
type final struct{ error }

func permanent(err error) error {
	if err == nil {
		return nil
	}
	return final{err}
}

// until looks until it is done: at once, whenever the bell rings, and now and
// then. A relay that is away is waited for. After most it gives
// context.DeadlineExceeded.
func (c *client) until(ctx context.Context, sent sentMessage, most time.Duration, look func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	bell := make(chan struct{}, 1)
	rung := make(chan struct{}) // closed when nobody rings any more
	go func() { defer close(rung); c.ring(ctx, sent, bell) }()
	defer func() { cancel(); <-rung }()
	for {
		done, err := look(ctx)
		var end final
		switch {
		case errors.As(err, &end):
			return end.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !transient(err):
			return advice(err)
		case err == nil && done:
			return nil
		}
		again := time.NewTimer(lookAgain)
		select {
		case <-bell:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// ring rings whenever something happens to a message or in its conversation,
// and after every gap in which it did not listen.
func (c *client) ring(ctx context.Context, sent sentMessage, bell chan<- struct{}) {
	var who struct {
		MechaID relay.Address `json:"mecha_id"`
	}
	for b := (backoff{most: waitPause}); ctx.Err() == nil; {
		err := c.call(ctx, "GET", "/api/v1/whoami", nil, &who)
		if err == nil {
			err = c.listenTo(ctx, who.MechaID, sent, func() {
				b.reset()
				select {
				case bell <- struct{}{}:
				default: // it is ringing
				}
			})
		}
		sleep(ctx, b.pause(err))
	}
}

// listenTo rings for one connection, until it is lost.
func (c *client) listenTo(ctx context.Context, own relay.Address, sent sentMessage, ring func()) error {
	s, err := c.dial(ctx, own, "?sync_limit=0&events=receipts")
	if err != nil {
		return err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	ring()
	for {
		var e envelope
		if err := s.receive(&e); err != nil {
			return err
		}
		if e.MessageID == sent.MessageID || e.ConversationID == sent.ConversationID {
			ring()
		}
	}
}
