package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"relay/db/relay"
)

// With Claim a listener is one of several workers that share the messages of a Mecha. The
// relay gives each message to one of them, for the time of a lease (PROTOCOL §3, Claim).
//
// A worker counts its lease from before the request that began it. So the lease ends for the worker
// before it ends for the relay, and before another worker can get the message. The relay knows a
// lease by its key, which workers may share: it does not tell a worker that the lease now belongs
// to another one. The worker must notice this without help.

// ErrLeaseLost is why the context of a handler ends whose worker could not renew the lease
// in time.
var ErrLeaseLost = errors.New("its lease could not be renewed in time, and another worker may have it now")

var errNotPending = errors.New("it is no longer pending")

// noLongerPending are the refusals by which a worker learns that its message is no longer
// pending: another worker has finished it, it has expired, or it was removed.
var noLongerPending = []relay.Code{relay.AlreadyAcknowledged, relay.MessageExpired, relay.MessageNotFound}

// claimAll claims messages and starts a task for each, until ctx ends or an error that
// another request would not heal. It claims as many as there are free tasks: a message that
// waits here could be done elsewhere.
func (l *listener) claimAll(ctx context.Context) error {
	l.o.Report(Event{What: Connected, Address: l.own, Worker: l.o.Worker})
	b := Backoff{Most: maxPause}
	for {
		n := l.freeSlots(ctx)
		if n == 0 {
			return nil // ctx has ended
		}
		if err := l.o.Ready(ctx); err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			return err
		}
		asked := l.now()
		claimed, err := l.claim(ctx, n)
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case err != nil && !Temporary(err):
			return err
		case err != nil:
			l.pause(ctx, err, &b)
			continue
		}
		b.Reset()
		for _, m := range claimed {
			hasSlot := false
			select {
			case l.slots <- struct{}{}:
				hasSlot = true
			default: // an answer that was kept back has taken it meanwhile
			}
			l.tasks.Go(func() { l.handleClaimed(ctx, m, asked.Add(l.o.Lease), hasSlot) })
		}
	}
}

// freeSlots waits until a task may run, and returns how many may. 0: ctx has ended.
func (l *listener) freeSlots(ctx context.Context) (n int) {
	select {
	case l.slots <- struct{}{}:
		n++
	case <-ctx.Done():
		return 0
	}
	for ; n < maxClaimed; n++ {
		select {
		case l.slots <- struct{}{}:
			continue
		default:
		}
		break
	}
	for range n {
		<-l.slots
	}
	if ctx.Err() != nil { // select takes either
		return 0
	}
	return n
}

// claim asks for up to n messages. It waits for a third of the lease at most: what comes at
// the end of that has two thirds left.
func (l *listener) claim(ctx context.Context, n int) ([]*Message, error) {
	ctx, cancel := context.WithTimeout(ctx, l.o.Lease*2/3)
	defer cancel()
	wait := min(int(l.o.Lease/3/time.Second), 60)
	in := map[string]any{"limit": n, "lease_seconds": int(l.o.Lease / time.Second), "worker": l.o.Worker, "wait": wait}
	var out struct{ Messages []*frame }
	err := l.c.Call(ctx, "POST", "/api/v1/mecha/"+string(l.own)+"/claim", in, &out)
	if err == nil && len(out.Messages) > n {
		err = fmt.Errorf("the relay gave %d messages, and %d were asked for", len(out.Messages), n)
	}
	if err != nil {
		return nil, err
	}
	var claimed []*Message
	for _, f := range out.Messages {
		claimed = append(claimed, l.c.message(f))
	}
	return claimed, nil
}

// handleClaimed handles a message and acknowledges it, unless the lease is lost before.
// until is the end of the lease. With hasSlot, the message has its place in l.slots.
func (l *listener) handleClaimed(ctx context.Context, m *Message, until time.Time, hasSlot bool) {
	leave := sync.OnceFunc(func() {
		if hasSlot {
			<-l.slots
		}
	})
	defer leave()
	if fresh, _ := l.fresh(ctx, m); !fresh {
		return // the lease expires, and unfinished messages are redelivered
	}
	held, end := context.WithCancelCause(l.alive)
	m.task = &task{l: l, ctx: held, leased: true}
	l.hold(m)
	renewing := make(chan struct{})
	go func() { defer close(renewing); l.renew(m, until, end) }()
	var settled bool
	if !hasSlot || l.isAside(m) {
		leave()
		settled = l.sortOut(m)
	} else {
		settled = l.settle(m, l.work(m))
	}
	end(errHandled)
	<-renewing
	l.release(m, settled)
}

// renew renews the lease of a message, each time when a third of it has passed, until the
// context of its task ends. It ends that itself when the lease is lost.
func (l *listener) renew(m *Message, until time.Time, end context.CancelCauseFunc) {
	t, third := m.task, l.o.Lease/3
	next := until.Add(-2 * third)
	b := Backoff{Most: third / 2}
	for Sleep(t.ctx, l.shortly(until, next)) {
		now := l.now()
		switch {
		case over(now, until):
			end(ErrLeaseLost)
			return
		case now.Before(next) && !over(now, next):
			continue
		}
		ended, err := l.renewOnce(m, third)
		switch {
		case ended:
			return
		case err == nil:
			until, next = now.Add(l.o.Lease), now.Add(third)
			b.Reset()
		case t.ctx.Err() != nil:
			return
		case Refused(err, noLongerPending...):
			end(fmt.Errorf("%w: %w", errNotPending, err))
		case Temporary(err):
			next = l.now().Add(b.Pause(err))
		default:
			l.giveUp(fmt.Errorf("the lease of %s cannot be renewed: %w", m.ID, err))
			end(err)
		}
	}
}

// clockTick is how often a worker looks at the clock. While a machine sleeps, its timers
// stand still, but the leases that the relay counts do not.
const clockTick = time.Second

// shortly returns how long to wait until the earlier of two times, but at most clockTick.
func (l *listener) shortly(a, b time.Time) time.Duration {
	now := l.now()
	return max(min(a.Sub(now), b.Sub(now), clockTick), 0)
}

// over reports whether t has passed: by the monotonic clock, or by the wall clock, which keeps running while
// the machine sleeps.
func over(now, t time.Time) bool { return !now.Before(t) || !now.Round(0).Before(t.Round(0)) }

// errBusy says that the handler itself acknowledges at this moment.
var errBusy = errors.New("another acknowledgement is under way")

// renewOnce makes one attempt. ended: the handler has acknowledged or deferred the message,
// and nothing is to be renewed any more; processing after a deferral would end that.
func (l *listener) renewOnce(m *Message, limit time.Duration) (ended bool, err error) {
	t := m.task
	if !t.mu.TryLock() {
		return false, errBusy
	}
	defer t.mu.Unlock()
	if t.ended {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	_, err = l.c.ack(ctx, m.ID, acknowledgement{Status: relay.Processing, Detail: t.progress})
	return false, err
}
