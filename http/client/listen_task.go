package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"relay/db/relay"
)

// task is what a listener knows of a message that it has in hand.
type task struct {
	l      *listener
	ctx    context.Context // ends when nothing more may be done for the message
	leased bool            // ctx ends with the lease, too

	mu       sync.Mutex // one acknowledgement at a time
	ended    bool       // the handler itself has acknowledged or deferred the message
	progress string     // the detail of its last word of progress, which renewals repeat

	reserved bool // the breaker has counted one answer that is not sent
}

// abandoned is what Abandon makes.
type abandoned struct{ error }

func (e *abandoned) Unwrap() error { return e.error }

// Abandon makes the error by which a handler ends its listener: the message stays pending,
// and Listen returns err. With nil, Listen returns an error that says no more than that.
func Abandon(err error) error {
	if err == nil {
		err = errAbandoned
	}
	return &abandoned{err}
}

var errAbandoned = errors.New("its handler has abandoned it")

// abandonedBy finds what Abandon has made in a handler's error; nil if it is not there. The
// methods of an error may panic, as those of a nil pointer do.
func abandonedBy(err error) (stop *abandoned) {
	defer func() { _ = recover() }()
	errors.As(err, &stop)
	return stop
}

// work calls the handler, unless the message is an answer that Ask has taken, or the
// conversation has had too many answers.
func (l *listener) work(m *Message) error {
	t := m.task
	if l.takenByAsk(m) {
		t.mu.Lock()
		t.ended = true // Ask acknowledges it
		t.mu.Unlock()
		return nil
	}
	if m.Type != l.o.ReplyType {
		if !l.breaker.begin(m.ConversationID, l.now()) {
			return &TooManyReplies{ConversationID: m.ConversationID, Replies: l.breaker.limit}
		}
		t.mu.Lock()
		t.reserved = true
		t.mu.Unlock()
		defer func() {
			if t.takeReserved() {
				l.breaker.end(m.ConversationID, l.now(), false)
			}
		}()
	}
	if l.o.Quick {
		l.one.Lock()
		defer l.one.Unlock()
	}
	return l.call(m)
}

// settle acknowledges a message as the handler's error says. false: it stays pending.
func (l *listener) settle(m *Message, err error) bool {
	t, stop := m.task, abandonedBy(err)
	switch {
	case t.hasEnded():
		if stop != nil {
			l.giveUp(stop.error)
		}
		return true
	case l.alive.Err() != nil:
		err = fmt.Errorf("%s stays pending: %w", m.ID, context.Cause(l.alive))
	case t.lost() != nil:
		l.o.Report(Event{What: GivenUp, Message: m, Err: t.lost()})
		return false
	case stop != nil:
		err = fmt.Errorf("%s stays pending: %w", m.ID, stop.error)
	case err != nil:
		detail := clip(textOf(err, l.o.Explain))
		l.o.Report(Event{What: HandlerFailed, Message: m, Err: errors.New(detail)})
		return l.acknowledge(m, "failed", detail)
	default:
		return l.o.Ack == NoAck || l.acknowledge(m, l.o.Ack, "")
	}
	l.giveUp(err)
	return false
}

// acknowledge acks until the relay says that the message is acknowledged, or that it cannot
// be. false: the message stays pending.
func (l *listener) acknowledge(m *Message, status, detail string) bool {
	t := m.task
	err := t.persist(t.ctx, m, AckLate, func(ctx context.Context) error {
		_, err := l.c.ack(ctx, m.ID, acknowledgement{Status: status, Detail: detail})
		return err
	})
	switch {
	case err == nil:
		return true
	case Refused(err, noLongerPending...):
		l.o.Report(Event{What: NotAcknowledged, Message: m, Status: status, Err: err})
		return true // there is nothing left to do
	case t.lost() != nil:
		l.o.Report(Event{What: NotAcknowledged, Message: m, Status: status, Err: t.lost()})
		return false
	}
	l.giveUp(fmt.Errorf("%s is not acknowledged and will be redelivered: %w", m.ID, err))
	return false
}

// giveUp ends the listener for a fault that concerns more than one message. A listener that
// is ending already only reports it: its other tasks may still succeed.
func (l *listener) giveUp(err error) {
	switch {
	case l.stopping.Err() == nil:
		l.abort(err)
	case l.alive.Err() == nil:
		l.o.Report(Event{What: LeftPending, Err: err})
	}
}

// lost returns why the lease of the message is lost; nil if it is not, or without a lease.
func (t *task) lost() error {
	if !t.leased || t.l.alive.Err() != nil {
		return nil
	}
	return context.Cause(t.ctx)
}

func (t *task) hasEnded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// acknowledge is Message.Ack and Message.Defer in a handler.
func (t *task) acknowledge(ctx context.Context, m *Message, a acknowledgement) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.persist(ctx, m, AckLate, func(ctx context.Context) error {
		_, err := t.l.c.ack(ctx, m.ID, a)
		return err
	})
	if err != nil {
		return unlessKeyless(t.explain(m, err))
	}
	t.ended = t.ended || a.hasLastWord()
	t.progress = a.Detail
	return nil
}

// reply is Message.Reply in a handler.
func (t *task) reply(ctx context.Context, m *Message, payload any, o SendOptions) error {
	l := t.l
	if !t.takeReserved() && !l.breaker.begin(m.ConversationID, l.now()) {
		return &TooManyReplies{ConversationID: m.ConversationID, Replies: l.breaker.limit}
	}
	o.Type = cmp.Or(o.Type, l.o.ReplyType)
	err := m.answer(payload, o, func(out *outgoing) error {
		return t.persist(ctx, m, ReplyLate, func(ctx context.Context) error {
			_, _, err := out.post(ctx, -1)
			return err
		})
	})
	l.breaker.end(m.ConversationID, l.now(), err == nil)
	return unlessKeyless(t.explain(m, err))
}

// takeReserved reports whether an answer was reserved for the message, which then is used up.
func (t *task) takeReserved() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	reserved := t.reserved
	t.reserved = false
	return reserved
}

// unlessKeyless makes a refusal of the key the end of the listener: nothing can be
// acknowledged any more, and no message is at fault.
func unlessKeyless(err error) error {
	var refused *Refusal
	if errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
		return Abandon(err)
	}
	return err
}

// persist repeats a request for a message until it succeeds, fails for good, or may not be
// made any more. If that takes longer than quietTime, it reports that once. After the
// listener was told to stop it has graceTime left.
func (t *task) persist(ctx context.Context, m *Message, late EventKind, request func(context.Context) error) error {
	if t.ctx.Err() != nil {
		return t.ctx.Err()
	}
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.ctx, cancel)()
	defer context.AfterFunc(t.l.stopping, func() { Sleep(trying, graceTime); cancel() })()
	began, said := time.Now(), false
	for b := (Backoff{Most: maxPause}); ; {
		err := request(trying)
		if err == nil || !Temporary(err) || Refused(err, relay.MailboxFull) {
			return err
		}
		if !said && time.Since(began) >= quietTime && !Refused(err, relay.RateLimited) { // which is not a fault
			said = true
			t.l.o.Report(Event{What: late, Message: m, Err: err})
		}
		if !Sleep(trying, b.Pause(err)) {
			return err
		}
	}
}

const maxDetail = 1 << 10 // bytes (PROTOCOL §3)

// Detail makes of an error what the detail of an acknowledgement may be: its text on one
// line, cut to 1,024 bytes. If its Error method panics, the text is its type.
func Detail(err error) string { return clip(textOf(err, error.Error)) }

// textOf reads the text of a handler's error.
func textOf(err error, read func(error) string) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("an error of the type %T, whose text cannot be read", err)
		}
	}()
	return read(err)
}

func clip(s string) string {
	s = relay.Visible(strings.TrimSpace(strings.ToValidUTF8(s, "\uFFFD")))
	if len(s) <= maxDetail {
		return s
	}
	n := maxDetail - len("…")
	for !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
