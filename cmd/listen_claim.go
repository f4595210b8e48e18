package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
	"unicode"
	"unicode/utf8"

	"relay/db/relay"
	"relay/http/client"
)

// With --claim a listener is one of several workers that share the messages of a Mecha. The
// relay gives each message to one of them, for the time of a lease (PROTOCOL §3, Claim).
//
// A worker counts its lease from before the request that began it. So the lease ends for
// the worker before it ends for the relay, and before another worker can get the message.
// The relay knows a lease by its key, which workers may share: it does not tell a worker
// that the lease now belongs to another one. The worker must know by itself.

const (
	defaultLease = time.Minute
	minLease     = 5 * time.Second // this and the other limits: PROTOCOL §3, Claim
	maxLease     = time.Hour
	maxWorker    = 64 // characters
	maxClaimed   = 100
)

// checkClaim checks --claim and the flags that go with it.
func (f *listenFlags) checkClaim() error {
	if !f.claim {
		if f.lease != 0 || f.worker != "" {
			return usagef("--lease and --worker go with --claim")
		}
		return nil
	}
	if f.lease == 0 {
		f.lease = defaultLease
	}
	switch {
	case f.exec == "":
		return usagef("--claim goes with --exec: a worker runs a command for each message")
	case f.state != "":
		return usagef("--claim goes without --state: the relay knows what is left to do")
	case f.lease < minLease || f.lease > maxLease || f.lease%time.Second != 0:
		return usagef("--lease must be whole seconds, from %v to %v", minLease, maxLease)
	case !isWorkerName(f.worker):
		return usagef("--worker must be at most %d characters without control characters", maxWorker)
	}
	if f.worker == "" {
		f.worker = ownName()
	}
	return nil
}

func isWorkerName(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= maxWorker
}

// ownName names this process for people: the machine and the process id.
func ownName() string {
	host, err := os.Hostname()
	name := fmt.Sprintf("%s-%d", host, os.Getpid())
	if err != nil || !isWorkerName(name) {
		return fmt.Sprintf("process-%d", os.Getpid())
	}
	return name
}

// claimAll claims messages and starts a job for each, until ctx ends or an error that
// another request would not heal. It claims as many as there are free jobs: a message that
// waits here could be done elsewhere.
func (l *listener) claimAll(ctx context.Context) error {
	fmt.Fprintf(l.stderr, "listening as %s, claiming as the worker %s\n", l.own, l.f.worker)
	b := client.Backoff{Most: mostPause}
	for {
		n := l.freeJobs(ctx)
		if n == 0 {
			return nil // ctx has ended
		}
		if l.unread() {
			return errUnread
		}
		asked := time.Now()
		claimed, err := l.claim(ctx, n)
		for range n - len(claimed) {
			<-l.slots
		}
		switch {
		case ctx.Err() != nil && err != nil:
			return nil
		case err != nil && !client.Temporary(err):
			return err
		case err != nil:
			l.pause(ctx, err, &b)
			continue
		}
		b.Reset()
		for _, e := range claimed {
			l.jobs.Go(func() {
				defer func() { <-l.slots }()
				l.finishClaimed(ctx, e, asked.Add(l.f.lease))
			})
		}
	}
}

// freeJobs waits until a job may run, and returns how many may, each of which has its place
// in l.slots then. 0: ctx has ended.
func (l *listener) freeJobs(ctx context.Context) (n int) {
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
	if ctx.Err() != nil { // select takes either
		for range n {
			<-l.slots
		}
		return 0
	}
	return n
}

// claim asks for up to n messages. It waits for a third of the lease at most: what comes at
// the end of that has two thirds left.
func (l *listener) claim(ctx context.Context, n int) ([]*envelope, error) {
	ctx, cancel := context.WithTimeout(ctx, l.f.lease*2/3)
	defer cancel()
	wait := min(int(l.f.lease/3/time.Second), 60)
	in := map[string]any{"limit": n, "lease_seconds": int(l.f.lease / time.Second), "worker": l.f.worker, "wait": wait}
	var out struct{ Messages []*envelope }
	err := l.c.Call(ctx, "POST", "/api/v1/mecha/"+string(l.own)+"/claim", in, &out)
	if err == nil && len(out.Messages) > n {
		err = fmt.Errorf("the relay gave %d messages, and %d were asked for", len(out.Messages), n)
	}
	if err != nil {
		return nil, err
	}
	return out.Messages, nil
}

// finishClaimed executes the command for a message and acknowledges it, unless the lease is
// lost before. until is the end of the lease.
func (l *listener) finishClaimed(ctx context.Context, e *envelope, until time.Time) {
	held, end := context.WithCancelCause(l.alive)
	e.held = held
	renewing := make(chan struct{})
	go func() { defer close(renewing); l.renew(ctx, e, until, end) }()
	defer func() { end(nil); <-renewing }()

	status, detail, err := l.execute(ctx, e)
	switch lost := l.lost(e); {
	case lost != nil:
		fmt.Fprintf(l.stderr, "relay: %s is given up, and its command is killed: %v\n", e.MessageID, lost)
	case err != nil:
		l.giveUp(ctx, fmt.Errorf("%s stays pending: %w", e.MessageID, err))
	default:
		l.acknowledge(ctx, e, status, detail)
	}
}

// working returns a context that ends when nothing more may be done for a message.
func (l *listener) working(e *envelope) context.Context {
	if e.held != nil {
		return e.held
	}
	return l.alive
}

// lost returns why the lease of a message is lost; nil if it is not, or if there is none.
func (l *listener) lost(e *envelope) error {
	if e.held == nil || l.alive.Err() != nil {
		return nil
	}
	return context.Cause(e.held)
}

var (
	errLeaseOver  = errors.New("its lease could not be renewed in time, and another worker may have it now")
	errNotPending = errors.New("it is no longer pending")
)

// renew renews the lease of a message, each time when a third of it has passed, until
// e.held ends. It ends that itself when the lease is lost.
func (l *listener) renew(ctx context.Context, e *envelope, until time.Time, end context.CancelCauseFunc) {
	third := l.f.lease / 3
	over := time.AfterFunc(time.Until(until), func() { end(errLeaseOver) })
	defer over.Stop()
	b := client.Backoff{Most: third / 2}
	for pause := time.Until(until.Add(-2 * third)); sleep(e.held, pause); {
		asked := time.Now()
		err := l.renewOnce(e, third)
		switch {
		case err == nil:
			over.Reset(time.Until(asked.Add(l.f.lease)))
			pause = time.Until(asked.Add(third))
			b.Reset()
		case e.held.Err() != nil:
			return
		case client.Refused(err, noLongerPending...):
			end(fmt.Errorf("%w: %w", errNotPending, err))
		case client.Temporary(err):
			pause = b.Pause(err)
		default:
			l.giveUp(ctx, fmt.Errorf("the lease of %s cannot be renewed: %w", e.MessageID, err))
			end(err)
		}
	}
}

// noLongerPending are the refusals by which a worker learns that its message is no longer
// pending: another worker has finished it, it has expired, or it was removed.
var noLongerPending = []relay.Code{relay.AlreadyAcknowledged, relay.MessageExpired, relay.MessageNotFound}

func (l *listener) renewOnce(e *envelope, most time.Duration) error {
	ctx, cancel := context.WithTimeout(e.held, most)
	defer cancel()
	return ack(ctx, l.c, e.MessageID, "processing", "", nil)
}
