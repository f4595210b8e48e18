package cmd

import (
	"context"
	"fmt"
	"maps"
	"time"

	"relay/db/relay"
)

// What a listener does with a message after it was taken from the connection.

func (l *listener) hold(id string, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.inHand, id); held {
		l.inHand[id] = true
	}
}

// unfinished gives what is in hand. A connection that is opened afterwards may
// bring it again, and nothing else that was taken before: that is acknowledged,
// unless the relay has lost the acknowledgement, as after relay restore, and
// then it is to be done again.
func (l *listener) unfinished() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.inHand)
}

// finish does what is to be done with a message besides printing it.
func (l *listener) finish(ctx context.Context, e *envelope) {
	status, detail := l.o.ack, ""
	if l.o.exec != "" {
		var err error
		if status, detail, err = l.execute(ctx, e); err != nil {
			l.giveUp(ctx, fmt.Errorf("%s stays pending: %w", e.MessageID, err))
			return
		}
	}
	if status != "" && !l.acknowledge(ctx, e.MessageID, status, detail) {
		return
	}
	if l.mark != nil {
		l.mark.set(e.MessageID)
	}
}

// acknowledge acks until the relay says that it is done, or that it cannot be.
func (l *listener) acknowledge(ctx context.Context, id, status, detail string) bool {
	err := l.persist(ctx, id+" is not acknowledged yet", func(ctx context.Context) error { return l.c.ack(ctx, id, status, detail, nil) })
	switch {
	case err == nil:
		return true
	case refusedWith(err, relay.AlreadyAcknowledged, relay.MessageExpired, relay.MessageNotFound):
		fmt.Fprintf(l.stderr, "relay: %s is not acknowledged as %s: %v\n", id, status, err)
		return true // there is nothing left to be done about it
	}
	l.giveUp(ctx, fmt.Errorf("%s is not acknowledged, and will come again: %w", id, err))
	return false
}

// giveUp ends the listener for a fault that concerns more than one message, or
// only says so if it is ending anyway: what else is under way may still succeed.
func (l *listener) giveUp(ctx context.Context, err error) {
	switch {
	case ctx.Err() == nil:
		l.abort(err)
	case l.alive.Err() == nil:
		fmt.Fprintln(l.stderr, "relay:", err)
	}
}

const (
	lastEffort = 10 * time.Second // to finish what is under way, after the signal to stop
	quietly    = 3 * time.Second  // for which a fault need not be told
)

// persist repeats a request until it succeeds, or fails for good, and says so
// once if that takes long. After the signal to stop it has lastEffort.
func (l *listener) persist(ctx context.Context, what string, request func(context.Context) error) error {
	trying, cancel := context.WithCancel(l.alive)
	defer cancel()
	defer context.AfterFunc(ctx, func() { sleep(trying, lastEffort); cancel() })()
	began, said := time.Now(), false
	for b := (backoff{most: longestWait}); ; {
		err := request(trying)
		if err == nil || !transient(err) || refusedWith(err, relay.MailboxFull) {
			return err
		}
		if !said && time.Since(began) >= quietly && !refusedWith(err, relay.RateLimited) { // that is no fault
			said = true
			fmt.Fprintf(l.stderr, "relay: %s: %v; trying on\n", what, advice(err))
		}
		if !sleep(trying, b.pause(err)) {
			return err
		}
	}
}
