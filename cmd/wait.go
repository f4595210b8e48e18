package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// relay send waits for an ack by asking the relay for the message's record. A socket
// only tells when to ask. Nothing is missed while the socket is lost or the relay is
// away: the next request finds it.

const (
	askAgain  = 2 * time.Second // without a word from the socket
	waitPause = 2 * time.Second // at most, between attempts to connect
)

// sentRecord is what the sender reads of a message that it has sent.
type sentRecord struct {
	From  relay.Address
	State string
	Ack   *struct{ Status, Detail string }

	json json.RawMessage // all of it
}

func readRecord(ctx context.Context, c *client.Client, id string) (r sentRecord, err error) {
	if err = c.Call(ctx, "GET", "/api/v1/messages/"+id, nil, &r.json); err == nil {
		err = json.Unmarshal(r.json, &r)
	}
	return r, err
}

// failed returns why a message has failed: it has expired, or its ack says so.
// nil: it has not, or not yet.
func (r *sentRecord) failed(id string) error {
	switch {
	case r.State == relay.Expired.String():
		return fmt.Errorf("%s expired before it was acknowledged", id)
	case r.Ack == nil || r.Ack.Status != "failed" && r.Ack.Status != "rejected":
		return nil
	case r.Ack.Detail == "":
		return fmt.Errorf("%s was acknowledged as %s", id, r.Ack.Status)
	}
	return fmt.Errorf("%s was acknowledged as %s: %s", id, r.Ack.Status, relay.Visible(r.Ack.Detail))
}

// waitForAck waits for the final ack of a message. Any but completed is an error.
func (a *app) waitForAck(ctx context.Context, c *client.Client, sent sentMessage, most time.Duration) error {
	var last sentRecord
	err := askUntil(ctx, c, sent, most, func(ctx context.Context) (done bool, err error) {
		r, err := readRecord(ctx, c, sent.MessageID)
		if err != nil {
			return false, err
		}
		last = r
		if err := last.failed(sent.MessageID); err != nil {
			return false, final{err}
		}
		return last.Ack != nil && last.Ack.Status == "completed", nil
	})
	if a.json && last.json != nil {
		fmt.Fprintf(a.stdout, "%s\n", last.json)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no final ack within %v: %s is %s. The message stays with the relay", most, sent.MessageID, dash(last.State))
	case err == nil:
		fmt.Fprintln(a.stderr, "completed")
	}
	return err
}

func interrupted(sent sentMessage) error {
	return fmt.Errorf("interrupted. %s was sent, and stays with the relay", sent.MessageID)
}

// final marks an error after which there is no use in asking again.
type final struct{ error }

// askUntil calls ask until it is done: at once, whenever the socket tells of
// something, and every two seconds. While the relay is away, it goes on asking.
// After most it returns context.DeadlineExceeded.
func askUntil(ctx context.Context, c *client.Client, sent sentMessage, most time.Duration, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	wake := make(chan struct{}, 1)
	watched := make(chan struct{}) // closed when watch has returned
	go func() { defer close(watched); watch(ctx, c, sent, wake) }()
	defer func() { cancel(); <-watched }()
	for {
		done, err := ask(ctx)
		var end final
		switch {
		case errors.As(err, &end):
			return end.error
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !client.Temporary(err):
			return err
		case err == nil && done:
			return nil
		}
		again := time.NewTimer(askAgain)
		select {
		case <-wake:
		case <-again.C:
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// watch sends to wake whenever something happens to a message or in its
// conversation, and when a socket has been opened: something may have happened
// before.
func watch(ctx context.Context, c *client.Client, sent sentMessage, wake chan<- struct{}) {
	b := client.Backoff{Most: waitPause}
	for ctx.Err() == nil {
		own, err := c.Address(ctx)
		if err == nil {
			err = watchSocket(ctx, c, own, sent, func() {
				b.Reset()
				select {
				case wake <- struct{}{}:
				default: // one is waiting
				}
			})
		}
		sleep(ctx, b.Pause(err))
	}
}

// watchSocket watches by one socket until that is lost.
func watchSocket(ctx context.Context, c *client.Client, own relay.Address, sent sentMessage, wake func()) error {
	s, err := c.Dial(ctx, own, "sync_limit=0&events=receipts")
	if err != nil {
		return err
	}
	defer s.Close()
	wake()
	for {
		var e envelope
		if err := s.Receive(&e); err != nil {
			return err
		}
		if e.MessageID == sent.MessageID || e.ConversationID == sent.ConversationID {
			wake()
		}
	}
}
