package client

import (
	"context"
	"slices"
	"sync"
)

// An agent may ask while it listens. Then the answer comes to both, and the listener must leave
// it to Ask: its handler would take it for a question.

// questions are the questions to which a Client waits for an answer. Safe for concurrent use.
type questions struct {
	mu       sync.Mutex
	open     []*question
	answered recent // the answers that were waited for
}

type question struct {
	of               *questions
	to, correlation  string
	id, conversation string        // "" until the relay has told them
	known            chan struct{} // closed when they are known, or nobody waits any more
	over             chan struct{} // closed when nobody waits any more
}

// asks notes that an answer to a message with this correlation id is waited for. end must follow.
func (c *Client) asks(to, correlation string) *question {
	q := &question{of: &c.questions, to: to, correlation: correlation, known: make(chan struct{}), over: make(chan struct{})}
	c.questions.mu.Lock()
	defer c.questions.mu.Unlock()
	c.questions.open = append(c.questions.open, q)
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

// awaits tells whether a message is an answer that Ask has taken. If it answers a question
// that is open, or may do so because the relay has not told Ask the id of the question yet,
// awaits waits until that is decided: Ask takes one answer, and further ones are the
// listener's.
func (qs *questions) awaits(ctx context.Context, m *Message) bool {
	for {
		taken, decided := qs.look(m)
		if decided == nil {
			return taken
		}
		select {
		case <-decided:
		case <-ctx.Done():
			return false
		}
	}
}

// look tells whether Ask has taken a message. If that is not decided, it gives what to wait for.
func (qs *questions) look(m *Message) (taken bool, decided <-chan struct{}) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.answered.attempt(m.ID) > 0 {
		return true, nil
	}
	for _, q := range qs.open {
		switch {
		case q.to != m.Sender || m.InReplyTo == "" && m.CorrelationID != q.correlation:
		case q.id == "":
			decided = q.known
		case m.InReplyTo == q.id, m.InReplyTo == "" && m.ConversationID == q.conversation:
			return false, q.over
		}
	}
	return false, decided
}
