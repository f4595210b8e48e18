package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"relay/db/relay"
)

// NoAnswer says that no answer came in time. The message stays with the relay. To ask again with the same
// IdempotencyKey continues to wait.
type NoAnswer struct {
	MessageID      string
	Within         time.Duration
	Verdict        Verdict // why there is no answer; empty if the relay has not said it
	IdempotencyKey string
}

func (e *NoAnswer) Error() string {
	s := fmt.Sprintf("no answer to %s within %v", e.MessageID, e.Within)
	if e.Verdict.Text != "" {
		s += ". " + relay.Visible(e.Verdict.Text)
	}
	return s
}

// Is tells that a NoAnswer is a time that is up, too.
func (e *NoAnswer) Is(target error) bool { return target == context.DeadlineExceeded }

// Failed says that nothing more is to be expected of a message: its recipient has
// acknowledged it as failed or rejected, or it has expired.
type Failed struct {
	MessageID string
	Status    string // failed, rejected or expired
	Detail    string // why, in the recipient's words; may be empty
}

func (e *Failed) Error() string {
	switch {
	case e.Status == relay.Expired.String():
		return e.MessageID + " expired before it was acknowledged"
	case e.Detail == "":
		return fmt.Sprintf("%s was acknowledged as %s", e.MessageID, e.Status)
	}
	return fmt.Sprintf("%s was acknowledged as %s: %s", e.MessageID, e.Status, relay.Visible(e.Detail))
}

// failed returns why the message of a record has failed. nil: it has not, or not yet.
func (m *Message) failed() error {
	switch {
	case m.State == relay.Expired.String():
		return &Failed{MessageID: m.ID, Status: m.State}
	case m.Status == "failed" || m.Status == "rejected":
		return &Failed{MessageID: m.ID, Status: m.Status, Detail: m.Detail}
	}
	return nil
}

const (
	firstHold      = time.Second      // of the first request that waits; each further one waits twice as long
	longestHold    = 60 * time.Second // that a relay holds a request
	verdictTimeout = AttemptSlack
	ackTimeout     = 5 * time.Second
)

// Ask sends a message as Send does, waits for the answer, acknowledges it as completed, and returns it. The
// answer is the first message from the recipient that names this one as the message that it answers, as
// Message.Reply does. Failing that, it is the first later message from the recipient in the same conversation,
// with the same correlation_id if the question has one (PROTOCOL §3, in_reply_to).
//
// A listener of the same Client does not see the answer that Ask has taken. It sees a second
// answer, and one that comes too late. A listener in another process leaves the answer to Ask
// as well, by the mark that SendOptions.Question describes.
//
// Ask keeps waiting while the relay is down. If there is no answer within Timeout, or until the deadline
// of ctx, the error is a *NoAnswer with the relay's verdict. To ask for the verdict takes AttemptSlack
// at most. If the message fails, is rejected or expires, the error is a *Failed; if it was never sent, a
// *SendError; if ctx is cancelled, context.Canceled and its cause.
func (c *Client) Ask(ctx context.Context, to string, payload any, options ...SendOptions) (*Message, error) {
	if relay.Address(to).IsCrew() {
		return nil, fmt.Errorf("Ask waits for one recipient, and %s is a crew", to)
	}
	o := single(options)
	o.Question = true
	m, err := c.outgoing(to, payload, o)
	if err != nil {
		return nil, err
	}
	reply, err := m.await(ctx, nil, cmp.Or(max(o.Timeout, 0), defaultTimeout))
	if err != nil {
		return nil, err
	}
	// The answer matters more than its acknowledgement: without it, the answer stays pending.
	_ = Retry(ctx, ackTimeout, func(ctx context.Context) error {
		_, err := c.Ack(ctx, reply.ID, "completed", "")
		return err
	})
	return reply, nil
}

// AwaitReply waits for the answer to the message, for at most so long, as Ask does, and
// acknowledges nothing. An Idempotency-Key holds for 24 hours, and so does the wait.
func (s *Sent) AwaitReply(ctx context.Context, limit time.Duration) (*Message, error) {
	return s.out.await(ctx, s, limit)
}

var errCannotWait = errors.New("the relay, or a proxy before it, does not know Prefer: " +
	"wait, by which an answer is waited for")

// await sends the message, unless it was sent, and waits for the reply. It sends the
// message again and again with the same Idempotency-Key: only the first time sends
// something, and the relay holds each request until the reply is there. Between two
// requests it looks whether the message has failed. The first are short, so that an early
// failure is noticed early.
func (m *outgoing) await(parent context.Context, sent *Sent, limit time.Duration) (*Message, error) {
	if deadline, has := parent.Deadline(); has && time.Until(deadline) < limit {
		limit = max(time.Until(deadline), 0).Round(10 * time.Millisecond) // it is told to people
	}
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	question := m.c.asks(m)
	defer question.end()
	if sent != nil {
		question.is(sent.MessageID, sent.ConversationID)
	}
	b := Backoff{Most: sendPause}
	unknown := false
	end := time.Now().Add(limit)
	for hold := firstHold; ; {
		left := max(time.Until(end), 0)
		hold = min(hold, left.Truncate(time.Second))
		asking, answered := ctx, func() {}
		if sent == nil { // the answer to the request that sends is worth a little more time
			asking, answered = context.WithTimeout(parent, left+AttemptSlack)
		}
		s, h, err := m.post(asking, hold)
		answered()
		if err == nil {
			sent = s
			question.is(s.MessageID, s.ConversationID)
		}
		unknown = unknown || err != nil && !NothingDone(err)
		switch {
		case h.reply != nil:
			return question.answer(h.reply), nil
		case ctx.Err() != nil:
			return nil, m.outOfTime(parent, sent, limit, &SendError{Unknown: unknown, IdempotencyKey: m.key, Err: err})
		case err != nil && !Temporary(err) && sent == nil:
			return nil, &SendError{Unknown: unknown, IdempotencyKey: m.key, Err: err}
		case err != nil && !Temporary(err):
			return nil, err
		case err == nil && !h.known:
			return nil, errCannotWait
		case err != nil || !h.asked:
			Sleep(ctx, b.Pause(err))
			continue
		}
		b.Reset()
		if hold == 0 {
			Sleep(ctx, firstPause)
		}
		hold = min(2*hold, longestHold)
		record, err := m.c.Record(ctx, sent.MessageID)
		if err != nil {
			continue // the next request that waits finds out what it means
		}
		if fault := record.failed(); fault != nil {
			if _, h, _ := m.post(ctx, 0); h.reply != nil { // an answer that was sent before the failure counts
				return question.answer(h.reply), nil
			}
			return nil, fault
		}
	}
}

// outOfTime says why there is no reply when the wait is over.
func (m *outgoing) outOfTime(parent context.Context, sent *Sent, limit time.Duration, unsent *SendError) error {
	switch {
	case errors.Is(parent.Err(), context.Canceled):
		if cause := context.Cause(parent); cause != context.Canceled {
			return fmt.Errorf("%w: %w", context.Canceled, cause)
		}
		return context.Canceled
	case sent == nil:
		return unsent
	}
	e := &NoAnswer{MessageID: sent.MessageID, Within: limit, IdempotencyKey: m.key}
	if deadline, has := parent.Deadline(); has && time.Until(deadline) < verdictTimeout {
		parent = context.WithoutCancel(parent) // the verdict is worth a little more time
	}
	ctx, cancel := context.WithTimeout(parent, verdictTimeout)
	defer cancel()
	if t, err := m.c.Trace(ctx, sent.MessageID); err == nil {
		e.Verdict = t.Verdict
	}
	return e
}
