package client

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrListenerEnded is why the methods of a Message fail in a handler that still runs after its listener has
// ended.
var ErrListenerEnded = errors.New("the listener has ended, and another one may have the message now")

// errHandled ends the context of a claimed message whose handler has returned.
var errHandled = errors.New("its handler has returned, and its lease is not renewed any more")

const (
	graceTime  = 10 * time.Second // for what is under way when ctx ends
	returnTime = time.Second      // for a handler whose context has ended with its listener
)

var errTooSlow = fmt.Errorf("the messages that were still handled %v after the end stay pending", graceTime)

// errRunsOn is the error of a handler for which the listener does not wait any more.
var errRunsOn = errors.New("its handler has not returned")

// errNoResult is the error of a handler that ends its goroutine instead of returning.
var errNoResult = errors.New("the handler ended without a result")

// call runs the handler in a goroutine of its own: it may take no notice of its context, and then
// the listener must end without it.
func (l *listener) call(m *Message) error {
	returned := make(chan error, 1)
	go func() {
		err := errNoResult
		defer func() {
			if v := recover(); v != nil {
				panic(v) // and nothing is acknowledged meanwhile
			}
			returned <- err
		}()
		err = l.handle(m.task.ctx, m)
	}()
	select {
	case err := <-returned:
		return err
	case <-l.alive.Done():
	}
	late := time.NewTimer(returnTime)
	defer late.Stop()
	select {
	case err := <-returned:
		return err
	case <-late.C:
	}
	if !m.task.hasEnded() {
		l.o.Report(Event{What: LeftPending, Message: m, Err: fmt.Errorf("%s stays pending: %w, though its context has ended",
			m.ID, errRunsOn)})
	}
	return errRunsOn
}

// explain makes the error of a request for the message that was not made, or was cut off, because
// nothing more may be done for the message. Any other error stays as it is.
func (t *task) explain(m *Message, err error) error {
	switch {
	case err == nil || t.ctx.Err() == nil || errors.As(err, new(*Refusal)):
		return err
	case t.l.alive.Err() != nil:
		return fmt.Errorf("nothing is done for %s: %w", m.ID, ErrListenerEnded)
	}
	return fmt.Errorf("nothing is done for %s: %w", m.ID, context.Cause(t.ctx))
}
