package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"relay/db/relay"
)

const policyViolation = 1008 // the relay closes the sockets of a key that is no longer valid with it

// permanentError is a fault on this side, which another connection would not heal.
type permanentError struct{ error }

func (e permanentError) Unwrap() error { return e.error }

// errNextPage ends a connection on which the relay waits for acks, which this listener does not send. The next
// connection begins after the messages of this one, sooner than the relay would resume automatically
// (--sync-ack-wait).
var errNextPage = errors.New("next page")

// receiveAll reads one connection after the other, until ctx ends or an error that another
// connection would not heal.
func (l *listener) receiveAll(ctx context.Context) error {
	b := Backoff{Most: maxPause}
	for ctx.Err() == nil {
		err := l.connection(ctx, &b)
		if errors.Is(err, errNextPage) {
			continue
		}
		if withoutSockets(err) {
			return l.pollAll(ctx)
		}
		if err := l.reconnectAfter(ctx, err, &b); err != nil {
			return err
		}
	}
	return nil
}

// reconnectAfter waits until it is time for another attempt. An error is one that another
// attempt would not heal.
func (l *listener) reconnectAfter(ctx context.Context, err error, b *Backoff) error {
	var closed *Closed
	var own permanentError
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.As(err, &own):
		return own.error
	case Refused(err, relay.CursorNotFound) && l.mark != nil:
		return &StateError{l.mark.path,
			fmt.Sprintf("this relay does not know the message %s, where %s says that the last listener stopped. "+
				"If that file belongs to another relay,", l.taken, l.mark.path)}
	case !Temporary(err), errors.As(err, &closed) && closed.Code == policyViolation:
		return err
	}
	l.pause(ctx, err, b)
	return nil
}

// connection reads one connection to its end.
func (l *listener) connection(ctx context.Context, b *Backoff) error {
	query := fmt.Sprintf("sync_limit=%d&events=sync", syncLimit)
	if l.o.keepsPlace() && l.taken != "" {
		query += "&since_message_id=" + l.taken
	}
	s, err := l.c.Dial(ctx, l.own, query)
	if err != nil {
		return err
	}
	b.Reset()
	l.o.Report(Event{What: Connected, Address: l.own})
	beating, still := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { beat(beating, s) })
	defer wg.Wait()
	defer s.Close()
	defer still()
	for behind, n := true, 0; ; {
		if behind && n == syncLimit && l.o.Ack == NoAck {
			return errNextPage
		}
		var f frame
		if err := s.Receive(&f); err != nil {
			return err
		}
		switch {
		case f.Type == "sync" && f.Phase == "end":
			behind = false
		case f.Type == "message":
			n++
			m := l.c.message(&f)
			fresh, err := l.fresh(ctx, m)
			if fresh {
				err = l.take(ctx, m)
			}
			if err != nil && !Refused(err, relay.MessageNotFound) { // it was removed
				return err
			}
		}
	}
}

// beat keeps the connection alive while nothing is read because all tasks are busy.
func beat(ctx context.Context, s *Socket) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = s.Ping() // if this fails, reading fails too
		}
	}
}

// take waits until a task may run, and starts it. Meanwhile nothing is read from the
// connection: the relay keeps further messages. With Quick it handles the message
// itself, and the task only acknowledges. An answer to a question goes another way (sortOut).
func (l *listener) take(ctx context.Context, m *Message) error {
	t := &task{l: l, ctx: l.alive}
	m.task = t
	if l.isAside(m) {
		l.hold(m)
		l.tasks.Go(func() { l.release(m, l.sortOut(m)) })
		return nil
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	err := ctx.Err() // select takes either
	if err == nil {
		if err = l.o.Ready(ctx); err != nil && ctx.Err() == nil {
			err = permanentError{err}
		}
	}
	if err != nil {
		<-l.slots
		return err
	}
	var handled error
	if l.o.Quick {
		handled = l.work(m)
		if stop := abandonedBy(handled); stop != nil {
			<-l.slots
			return permanentError{stop.error}
		}
	}
	l.taken = m.ID
	l.hold(m)
	l.tasks.Go(func() {
		defer func() { <-l.slots }()
		if !l.o.Quick {
			handled = l.work(m)
		}
		settled := l.settle(m, handled)
		l.release(m, settled)
		if settled && l.mark != nil {
			l.mark.set(m.ID)
		}
	})
	return nil
}
