package console

import (
	"context"
	"fmt"
	"slices"

	"relay/db/look/browse"
	"relay/db/relay"
)

// lookedQuestions is among how many of a Mecha's newest messages its question is looked for.
const lookedQuestions = 20

// questionOf finds the question to which a message may be meant as the answer, though it neither names
// the question nor is in its conversation, or nil. It is the newest message of the other direction, if
// that was acknowledged without an answer at about the time of the message.
func (c *Console) questionOf(ctx context.Context, m *relay.Message) (*relay.Message, error) {
	if m.InReplyTo != "" {
		return nil, nil
	}
	asked, _, err := c.config.Store.Messages(ctx,
		browse.ListQuery{Mecha: m.To, Direction: relay.Out, Before: m.ID, Limit: lookedQuestions})
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(asked, func(q *relay.Message) bool { return q.To == m.From })
	if n < 0 {
		return nil, nil
	}
	q := asked[n]
	if q.Conversation == m.Conversation || q.State != relay.Acknowledged || isFailure(q.Ack.Status) || !atAbout(q.Ack, m) {
		return nil, nil
	}
	t, err := c.config.Store.Why(ctx, q.ID)
	if relay.ErrorCode(err) == relay.MessageNotFound {
		return nil, nil // removed since
	}
	if err != nil || c.verdict(t).Code != relay.VerdictAcknowledged {
		return nil, err
	}
	return q, nil
}

// atAbout tells that a message was sent at about the time of an acknowledgement.
func atAbout(ack *relay.Ack, m *relay.Message) bool {
	return ack.At.Sub(m.CreatedAt).Abs() <= lateAfter
}

// mayAnswer says that the oldest message of a box may be an answer; "" if no question is known.
func (b *mailboxRow) mayAnswer() string {
	if b.Question == nil {
		return ""
	}
	which := "The message"
	if b.Pending > 1 {
		which = "The oldest message"
	}
	return fmt.Sprintf("%s, from %s, may be an answer that was sent in another conversation.", which, b.About.Message.From)
}

// question tells of the question, likewise.
func (b *mailboxRow) question() string {
	q := b.Question
	if q == nil {
		return ""
	}
	m := b.About.Message
	return fmt.Sprintf("%s acknowledged %s from %s as %s, and no answer to that is recorded; "+
		"but at about that time it sent %s in the conversation %s.",
		q.To, shorten(string(q.ID)), q.From, relay.Visible(q.Ack.Status), shorten(string(m.ID)),
		relay.Visible(string(m.Conversation)))
}

// nameQuestion is the advice for a Mecha whose answers cannot be told from other messages.
func nameQuestion(who relay.Address) advice {
	return do("Make %s name the message that it answers, by in_reply_to.", who)
}

// unread tells, if a message that may be an answer waits, how it is with whom it is for; else text is "".
// level and next are that message's.
func (c *Console) unread(ctx context.Context, m *relay.Message) (text string, level int, next []advice, err error) {
	if !m.State.Pending() {
		return "", 0, nil, nil
	}
	t, err := c.config.Store.Why(ctx, m.ID)
	if relay.ErrorCode(err) == relay.MessageNotFound {
		return "", 0, nil, nil
	}
	if err != nil {
		return "", 0, nil, err
	}
	now := c.config.Now()
	v := c.verdict(t)
	r, err := c.reason(t, v.Code, now)
	if err != nil {
		return "", 0, nil, err
	}
	seen, err := c.seen(ctx, t)
	text = fmt.Sprintf("%s has not acknowledged %s, which has waited %s. %s: %s.",
		m.To, shorten(string(m.ID)), age(now.Sub(m.CreatedAt)), m.To, seen)
	return text, levelOf(t, v.Code, now), r.next(), err
}

// lost returns what is known of the newest message that has expired in the last hour, or nil.
func (c *Console) lost(ctx context.Context, dead []row) (*reason, error) {
	for _, d := range dead {
		if d.What != "expired" {
			continue
		}
		t, err := c.config.Store.Why(ctx, d.ID)
		if relay.ErrorCode(err) == relay.MessageNotFound {
			return nil, nil // removed since
		}
		if err != nil {
			return nil, err
		}
		return c.reason(t, c.verdict(t).Code, c.config.Now())
	}
	return nil, nil
}

// why says, as the end of a sentence, how far a message came that has expired.
func (r *reason) why() string {
	if r == nil {
		return ""
	}
	return ": " + humane(relay.WhyExpired(r.about), r.now)
}
