package client

import (
	"errors"
	"fmt"
	"net/http"

	"relay/db/relay"
)

// Answers to questions do not go the way of other messages: while it is open for whom they are,
// they take no place in listener.slots, so that other messages are handled meanwhile.

const (
	maxAside   = 100 // messages that may answer an open question; each has its payload in memory
	lastPutOff = 3   // the attempt after which an answer for another process is handled here
)

// isAside reports whether a message must go through sortOut, because it may answer a question. A
// listener that saves its position handles one message after the other and cannot defer one: it
// waits until it is known for whom the message is.
func (l *listener) isAside(m *Message) bool {
	if l.o.keepsPlace() {
		return false
	}
	u, _ := l.c.questions.use(m)
	return u == undecided || u == forAsk || u == forOthers && m.Attempt <= lastPutOff
}

// takenByAsk reports whether Ask has taken the message. A listener that keeps its place waits until
// that is decided.
func (l *listener) takenByAsk(m *Message) bool {
	if l.o.keepsPlace() {
		return l.c.questions.awaits(m.task.ctx, m)
	}
	u, _ := l.c.questions.use(m)
	return u == forAsk
}

// sortOut leaves a message to Ask, defers it for another process, or handles it, when it is decided
// which. It has no place in l.slots when it begins. false: the message stays pending.
func (l *listener) sortOut(m *Message) (settled bool) {
	for kept := false; ; {
		u, decided := l.c.questions.use(m)
		switch {
		case u == forAsk:
			return true // Ask acknowledges it
		case u == forOthers && m.Attempt <= lastPutOff:
			return l.putOff(m, 1<<(m.Attempt-1))
		case u != undecided:
			return l.handleLater(m)
		}
		if !kept {
			select {
			case l.aside <- struct{}{}:
				kept = true
				defer func() { <-l.aside }()
			default:
				return l.putOff(m, 1)
			}
		}
		select {
		case <-decided:
		case <-l.stopping.Done():
			return false
		case <-m.task.ctx.Done():
			return l.settle(m, nil) // which says why it stays pending
		}
	}
}

// handleLater waits until a task may run, and is that task.
func (l *listener) handleLater(m *Message) (settled bool) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-l.stopping.Done():
	case <-m.task.ctx.Done():
		return l.settle(m, nil)
	}
	if l.stopping.Err() != nil { // select takes either
		return false
	}
	if err := l.o.Ready(l.stopping); err != nil {
		l.giveUp(err)
		return false
	}
	return l.settle(m, l.work(m))
}

// putOff has the message redelivered after so many seconds. The process that has asked can take it
// meanwhile: then it is no longer pending, and that is as good.
func (l *listener) putOff(m *Message, seconds int64) (settled bool) {
	err := m.task.acknowledge(m.task.ctx, m, acknowledgement{Status: relay.Deferred, RetryAfter: seconds})
	var refused *Refusal
	switch {
	case err == nil, Refused(err, noLongerPending...):
		return true
	case m.task.lost() != nil:
		return false
	case errors.As(err, &refused) && refused.Status != http.StatusUnauthorized:
		l.o.Report(Event{What: NotAcknowledged, Message: m, Status: relay.Deferred, Err: err})
		return false
	}
	l.giveUp(fmt.Errorf("cannot defer %s: %w", m.ID, err))
	return false
}
