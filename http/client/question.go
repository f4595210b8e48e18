package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
)

// An agent may ask while it listens. Then the answer comes to both, and the listener must leave
// it to Ask: its handler would take it for a question. The listener may also belong to another
// process of the same Mecha, which does not know the question. It knows the answer by the
// question's mark, which is in the message's conversation_id or correlation_id.

const (
	markStart  = "ask-"
	markDigits = 24
)

// markFor makes the mark of a question to an address. The same Idempotency-Key gives the same
// mark, so that a question which is repeated has the same bytes.
func markFor(to, key string) string {
	sum := sha256.Sum256([]byte(key))
	return markTo(to) + hex.EncodeToString(sum[:markDigits/2])
}

// markTo is the beginning of the marks of all questions to an address.
func markTo(to string) string {
	sum := sha256.Sum256([]byte(to))
	return markStart + hex.EncodeToString(sum[:4]) + "-"
}

// isMark reports whether a text is the mark of a question to an address.
func isMark(text, to string) bool {
	if !strings.HasPrefix(text, markStart) { // as nearly all do not
		return false
	}
	rest, ok := strings.CutPrefix(text, markTo(to))
	return ok && len(rest) == markDigits && strings.Trim(rest, "0123456789abcdef") == ""
}

// mark returns the mark of the question to its sender that a message may answer; "" if it has
// none. Of two marks, that of the conversation is the older one.
func (m *Message) mark() string {
	switch {
	case m.Sender == m.To && m.InReplyTo == "": // a question to oneself has the mark, too
		return ""
	case isMark(m.CorrelationID, m.Sender):
		return m.CorrelationID
	case isMark(m.ConversationID, m.Sender):
		return m.ConversationID
	}
	return ""
}

// questions are the questions to which a Client waits for an answer. Safe for concurrent use.
type questions struct {
	mu       sync.Mutex
	open     []*question
	answered recent // the answers that were waited for
	marks    recent // those of the questions
}

type question struct {
	of                            *questions
	to, conversation, correlation string        // conversation is "" until it is known
	id                            string        // "" until the relay has told it
	known                         chan struct{} // closed when id is known, or nobody waits any more
	over                          chan struct{} // closed when nobody waits any more
}

// asks notes that an answer to a message is waited for. end must follow.
func (c *Client) asks(m *outgoing) *question {
	q := &question{of: &c.questions, to: m.to, conversation: m.conversation, correlation: m.correlation,
		known: make(chan struct{}), over: make(chan struct{})}
	c.questions.mu.Lock()
	defer c.questions.mu.Unlock()
	c.questions.open = append(c.questions.open, q)
	for _, text := range []string{m.conversation, m.correlation} {
		if isMark(text, m.to) {
			c.questions.marks.add(text, 1)
		}
	}
	return q
}

// is says which message the question is, and in which conversation.
func (q *question) is(id, conversation string) {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	if q.id == "" {
		q.id, q.conversation = id, conversation
		close(q.known)
	}
}

// answer notes which message is the answer: it may come to a listener later. It returns it.
func (q *question) answer(m *Message) *Message {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.of.answered.add(m.ID, m.Attempt)
	return m
}

func (q *question) end() {
	q.is("nothing", "nowhere")
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	q.of.open = slices.DeleteFunc(q.of.open, func(o *question) bool { return o == q })
	close(q.over)
}

// use says for whom a message is.
type use int

const (
	forHandler use = iota // of a listener
	forAsk                // an Ask of this Client has taken it
	undecided             // an Ask of this Client waits, and may take it
	forOthers             // it answers a question which this Client has not asked
)

// use says for whom a message is. If it is undecided, it also gives what to wait for: Ask takes
// one answer, and further ones are for the handler.
func (qs *questions) use(m *Message) (u use, decided <-chan struct{}) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.answered.attempt(m.ID) > 0 {
		return forAsk, nil
	}
	for _, q := range qs.open {
		switch may, must := q.answeredBy(m); {
		case must:
			return undecided, q.over
		case may:
			decided = q.known
		}
	}
	if decided != nil {
		return undecided, decided
	}
	if mark := m.mark(); mark != "" && qs.marks.attempt(mark) == 0 {
		return forOthers, nil
	}
	return forHandler, nil
}

// answeredBy reports whether a message is an answer to the question (PROTOCOL §3, in_reply_to),
// or may be one: that shows when the relay has told the id of the question.
func (q *question) answeredBy(m *Message) (may, is bool) {
	switch {
	case q.to != m.Sender, q.conversation != "" && q.conversation != m.ConversationID:
		return false, false
	case m.InReplyTo == "" && q.correlation != "" && q.correlation != m.CorrelationID:
		return false, false
	case q.id == "":
		return true, false
	case m.InReplyTo == "":
		is = m.ID > q.id // the order of ids is the order of the messages (PROTOCOL §1)
	default:
		is = m.InReplyTo == q.id
	}
	return is, is
}

// awaits reports whether Ask has taken a message, and waits until that is decided.
func (qs *questions) awaits(ctx context.Context, m *Message) bool {
	for {
		u, decided := qs.use(m)
		if u != undecided {
			return u == forAsk
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return false
		}
	}
}
