package cmd

import (
	"context"
	"fmt"
	"maps"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// This file has what a listener does with a message that it has taken from the
// connection.

// hold notes that a message is in hand, or no longer is.
func (l *listener) hold(id string, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.inHand, id); held {
		l.inHand[id] = true
	}
}

// unfinished returns the messages in hand. The next connection may bring them
// again. It brings no message that is finished: those are acknowledged. If it
// does, the relay has lost the acknowledgement, as after relay restore, and the
// message is to be done again.
func (l *listener) unfinished() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.inHand)
}

// finish executes the command for a message, acknowledges the message and moves
// the place, as the flags say.
func (l *listener) finish(ctx context.Context, e *envelope) {
	status, detail := l.f.ack, ""
	if l.f.exec != "" {
		var err error
		if status, detail, err = l.execute(ctx, e); err != nil {
			l.giveUp(ctx, fmt.Errorf("%s stays pending: %w", e.MessageID, err))
			return
		}
	}
	if status != "" && !l.acknowledge(ctx, e, status, detail) {
		return
	}
	if l.mark != nil {
		l.mark.set(e.MessageID)
	}
}

// acknowledge acks until the relay says that the message is acknowledged, or that
// it cannot be. false: the message stays pending.
func (l *listener) acknowledge(ctx context.Context, e *envelope, status, detail string) bool {
	id := e.MessageID
	err := l.persist(ctx, e, id+" is not acknowledged yet", func(ctx context.Context) error { return ack(ctx, l.c, id, status, detail, nil) })
	switch {
	case err == nil:
		return true
	case client.Refused(err, noLongerPending...):
		fmt.Fprintf(l.stderr, "relay: %s is not acknowledged as %s: %v\n", id, status, err)
		return true // there is nothing left to do
	case l.lost(e) != nil:
		fmt.Fprintf(l.stderr, "relay: %s is not acknowledged as %s: %v\n", id, status, l.lost(e))
		return false
	}
	l.giveUp(ctx, fmt.Errorf("%s is not acknowledged, and will come again: %w", id, err))
	return false
}

// giveUp aborts the listener for a fault that concerns more than one message. A
// listener that is ending already only says so: its other jobs may still
// succeed.
func (l *listener) giveUp(ctx context.Context, err error) {
	switch {
	case ctx.Err() == nil:
		l.abort(err)
	case l.alive.Err() == nil:
		fmt.Fprintln(l.stderr, "relay:", err)
	}
}

const (
	graceTime = 10 * time.Second // for requests that fail after the signal to stop
	quietTime = 3 * time.Second  // for which a fault is not reported
)

// persist repeats a request for a message until it succeeds, or fails for good. If that
// takes longer than quietTime, it says so once. After the signal to stop it has
// graceTime left.
func (l *listener) persist(ctx context.Context, e *envelope, what string, request func(context.Context) error) error {
	trying, cancel := context.WithCancel(l.working(e))
	defer cancel()
	defer context.AfterFunc(ctx, func() { sleep(trying, graceTime); cancel() })()
	began, said := time.Now(), false
	for b := (client.Backoff{Most: mostPause}); ; {
		err := request(trying)
		if err == nil || !client.Temporary(err) || client.Refused(err, relay.MailboxFull) {
			return err
		}
		if !said && time.Since(began) >= quietTime && !client.Refused(err, relay.RateLimited) { // which is no fault
			said = true
			fmt.Fprintf(l.stderr, "relay: %s: %v; trying on\n", what, advice(err))
		}
		if !sleep(trying, b.Pause(err)) {
			return err
		}
	}
}
