package client

import (
	"fmt"
	"sync"
	"time"
)

const breakerWindow = 10 * time.Minute

// TooManyReplies says that a listener has sent as many answers in a conversation as it may
// within ten minutes (ListenOptions.MaxReplies).
type TooManyReplies struct {
	ConversationID string
	Replies        int
}

func (e *TooManyReplies) Error() string {
	return fmt.Sprintf("not answered: this conversation has had %d answers in %v", e.Replies, breakerWindow)
}

// A breaker stops two agents that answer each other without end: in breakerWindow, it lets a
// listener send only so many answers in a conversation. It is safe for concurrent use. It remembers
// the answers of the last breakerWindow.
type breaker struct {
	limit int // answers; 0: no bound

	mu   sync.Mutex
	sent []sentReply    // of the last breakerWindow, oldest first
	of   map[string]int // by conversation: the answers in sent, and those under way
}

type sentReply struct {
	at           time.Time
	conversation string
}

// begin reports whether one more answer may be sent in a conversation. If so, end must follow.
func (b *breaker) begin(conversation string, now time.Time) bool {
	if b.limit == 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.sent) > 0 && now.Sub(b.sent[0].at) >= breakerWindow {
		b.forget(b.sent[0].conversation)
		b.sent = b.sent[1:]
	}
	if b.of[conversation] >= b.limit {
		return false
	}
	if b.of == nil {
		b.of = map[string]int{}
	}
	b.of[conversation]++
	return true
}

// end notes whether the answer was sent.
func (b *breaker) end(conversation string, now time.Time, sent bool) {
	if b.limit == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if sent {
		b.sent = append(b.sent, sentReply{now, conversation})
	} else {
		b.forget(conversation)
	}
}

func (b *breaker) forget(conversation string) {
	if b.of[conversation]--; b.of[conversation] == 0 {
		delete(b.of, conversation)
	}
}
