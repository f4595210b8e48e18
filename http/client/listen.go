package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"relay/db/relay"
)

// ListenOptions say how Listen receives. The zero value is for an agent that handles one
// message after the other.
type ListenOptions struct {
	// Jobs is how many messages are handled at once. Default: 1, which keeps their order.
	Jobs int

	// Claim shares the messages with other listeners of the same Mecha: each goes to one of
	// them, by a lease, which is renewed while the handler runs. Without it, each gets all.
	Claim bool
	// Lease is how long a message is held before it is renewed, in whole seconds from 5 s to
	// an hour. If this process dies, the message goes to another worker after so long.
	// Default: a minute.
	Lease time.Duration
	// Worker names this listener in traces, in at most 64 characters. Default: the machine
	// and the process id.
	Worker string

	// Ack is the status of a message whose handler returns nil. Default: completed. With a
	// word of progress, or NoAck, messages stay pending at the relay, and the listener keeps
	// its place in the stream instead, by State or in memory.
	Ack string
	// State is a file that keeps the place: the next listener begins after the last message
	// that was done. DefaultState is one in the user's directory for state. One message at a
	// time is then handled.
	State string
	// Quick says that handle takes no time worth mentioning, as when it prints. Then the goroutine that
	// receives waits for it, one message after the other, while up to 32 acknowledgements of earlier messages
	// are under way: if the process dies, up to that many handled messages are redelivered.
	Quick bool

	// MaxReplies is how many answers this listener sends in a conversation within ten minutes, so that two
	// agents do not answer each other without end. A message beyond that is acknowledged as failed, and not
	// handled. Default: 30; below zero, any number.
	MaxReplies int
	// ReplyType is the type of answers. Messages of this type are handled whatever
	// MaxReplies says: an answer gets no answer. Default: reply.
	ReplyType string

	// Explain says what the sender of a message is told about an error of the handler.
	// Default: Detail.
	Explain func(error) string
	// Ready is called before messages are taken from the relay. It may wait until there is
	// room for one. With an error, Listen ends with that.
	Ready func(context.Context) error
	// Report is called with what happens to the listener, also concurrently.
	Report func(Event)
	// Handling is the context of the handlers. Default: one that ends ten seconds after ctx
	// has. If it ends, Listen returns its cause, and messages under way stay pending. A handler
	// has one second then to return; see Listen.
	Handling context.Context

	now func() time.Time
}

const (
	// DefaultMaxReplies is ListenOptions.MaxReplies if that is 0.
	DefaultMaxReplies = 30
	// NoAck as ListenOptions.Ack acknowledges nothing.
	NoAck = "none"
	// DefaultState as ListenOptions.State names a file for this relay and this Mecha.
	DefaultState = "default"
)

const (
	syncLimit  = 1000             // the most that a relay allows
	heartbeat  = 20 * time.Second // the relay hangs up after 60 s without a frame
	maxPause   = 30 * time.Second // between attempts
	quietTime  = 3 * time.Second  // for which a delay is not reported
	acksAtOnce = idleConnections
	maxClaimed = 100 // this and the other limits of claims: PROTOCOL §3, Claim

	defaultLease   = time.Minute
	minLease       = 5 * time.Second
	maxLease       = time.Hour
	maxWorker      = 64     // characters
	rememberedDone = 10_000 // messages
)

// complete checks the options, and puts the defaults in.
func (o *ListenOptions) complete() error {
	set(&o.Jobs, 1)
	set(&o.Lease, defaultLease)
	set(&o.Worker, ownName())
	set(&o.Ack, "completed")
	set(&o.MaxReplies, DefaultMaxReplies)
	set(&o.ReplyType, DefaultReplyType)
	if o.Explain == nil {
		o.Explain = Detail
	}
	if o.Ready == nil {
		o.Ready = func(context.Context) error { return nil }
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.Report == nil {
		o.Report = func(Event) {}
	}
	switch {
	case o.Jobs < 1:
		return &ConfigError{"Jobs", "must not be negative"}
	case !IsLease(o.Lease):
		return &ConfigError{"Lease", fmt.Sprintf("must be whole seconds, from %v to %v", minLease, maxLease)}
	case !IsWorkerName(o.Worker):
		return &ConfigError{"Worker", fmt.Sprintf("must be at most %d characters without control characters", maxWorker)}
	case o.Claim && (o.State != "" || o.keepsPlace()):
		return &ConfigError{"Claim", "needs an Ack that ends the message, and no State: the relay knows what is left to do"}
	case o.Jobs > 1 && (o.keepsPlace() || o.Quick):
		return &ConfigError{"Jobs",
			"must be 1 with State, with Quick, and without an Ack that ends the message: the messages are then done in order"}
	case o.Quick && o.Claim:
		return &ConfigError{"Quick", "does not go with Claim"}
	}
	return nil
}

func set[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// keepsPlace reports whether the relay does not know what is left to do, because the messages
// are not acknowledged.
func (o *ListenOptions) keepsPlace() bool {
	return o.State != "" || o.Ack == NoAck || relay.ReportsProgress(o.Ack)
}

// IsLease reports whether a duration can be ListenOptions.Lease.
func IsLease(d time.Duration) bool { return d >= minLease && d <= maxLease && d%time.Second == 0 }

// IsWorkerName reports whether a name can be ListenOptions.Worker.
func IsWorkerName(s string) bool {
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
	if err != nil || !IsWorkerName(name) {
		return fmt.Sprintf("process-%d", os.Getpid())
	}
	return name
}

// listener is one call of Listen. Its own goroutine receives; tasks run in others.
type listener struct {
	c       *Client
	o       ListenOptions
	handle  func(context.Context, *Message) error
	own     relay.Address
	breaker breaker
	mark    *bookmark // nil: no file keeps the place
	taken   string    // the last message that was given to a task
	now     func() time.Time

	one sync.Mutex // is held while handle runs, with Quick

	mu     sync.Mutex
	inHand map[string]bool // messages that are given to a task and not settled
	done   recent          // messages that were settled

	slots    chan struct{}   // holds one value for each task
	aside    chan struct{}   // holds one value for each message of which it is not decided for whom it is
	tasks    sync.WaitGroup  // the tasks that run
	stopping context.Context // ends when no more messages are to be taken
	alive    context.Context // ends when no more is to be done for any message
	abort    context.CancelCauseFunc
}

// Listen receives the messages for the Mecha of the key, and calls handle for each at least
// once, in the order in which the relay accepted them, until ctx ends. Then it waits for the
// handlers that run, and returns nil. It waits for ten seconds; see ListenOptions.Handling.
//
// A handler that does not return within a second after its listener has ended its context is left alone: Listen
// reports LeftPending, and returns. The goroutine of the handler continues, and what it still tries to do for
// the message fails with [ErrListenerEnded].
//
// If handle returns nil, the message is acknowledged as completed. If it returns an error, it
// is acknowledged as failed, and the sender can read the text of the error; see
// ListenOptions.Explain. A handler that has acknowledged or deferred the message itself has the
// last word. If it returns what [Abandon] has made, the message stays pending, and Listen
// returns that error.
//
// Listen outlives restarts of the relay, lost connections and a machine that sleeps: it connects again, with
// growing pauses, and resumes where it was. A message that is redelivered after it was handled is recognised,
// unless the relay has lost its acknowledgement, or this process was restarted in between: then it is handled
// again, and the same answer is sent once.
//
// An answer for which an Ask of this Client may wait is kept back until Ask has decided; other messages are
// handled meanwhile. An answer to an Ask that this Client has not made is deferred three times, for one, two
// and four seconds, so that the process that has asked can take it. Then it is handled: that process has ended.
// None of this counts for MaxReplies. A listener that keeps its place (ListenOptions.Ack and State) differs: it
// puts nothing off, and while an answer is undecided it waits, because it handles the messages in order.
//
// A panic of handle ends the program, and the message stays pending. A handler that ends by
// runtime.Goexit has failed: "the handler ended without a result".
//
// The context of a handler ends when the lease of its message is lost, with [ErrLeaseLost] or
// the relay's refusal as its cause, and when ListenOptions.Handling ends. Nothing may then be
// done for the message any more: another worker may have it.
//
// Listen ends with an error if the relay refuses for good, as when the key is revoked
// (*Refusal or *Closed), if the options are wrong (*ConfigError), or if the place cannot be
// kept (*StateError, or an error of the file system).
func (c *Client) Listen(ctx context.Context, o ListenOptions, handle func(context.Context, *Message) error) error {
	if err := o.complete(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &listener{c: c, o: o, handle: handle, stopping: ctx, now: o.now, inHand: map[string]bool{}}
	l.breaker.limit = max(o.MaxReplies, 0)
	l.slots, l.aside = make(chan struct{}, o.Jobs), make(chan struct{}, maxAside)
	if o.Quick && !o.keepsPlace() {
		l.slots = make(chan struct{}, acksAtOnce)
	}
	handling := o.Handling
	if handling == nil {
		handling = context.WithoutCancel(ctx)
	}
	l.alive, l.abort = context.WithCancelCause(handling)
	defer l.abort(nil)
	if o.Handling == nil {
		defer context.AfterFunc(ctx, func() {
			Sleep(l.alive, graceTime)
			l.abort(errTooSlow)
		})()
	}
	defer context.AfterFunc(l.alive, stop)()
	return l.run(ctx)
}

func (l *listener) run(ctx context.Context) error {
	err := l.begin(ctx)
	if err == nil {
		if l.o.Claim {
			err = l.claimAll(ctx)
		} else {
			err = l.receiveAll(ctx)
		}
	}
	l.tasks.Wait()
	if l.mark != nil {
		err = errors.Join(err, l.mark.close())
	}
	if cause := context.Cause(l.alive); cause != nil {
		return cause // other errors only follow from this one
	}
	return err
}

// begin asks the relay whose key this is, and reads where the last listener stopped.
func (l *listener) begin(ctx context.Context) (err error) {
	b := Backoff{Most: maxPause}
	for {
		l.own, err = l.c.Address(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !Temporary(err) {
			return err
		}
		l.pause(ctx, err, &b)
	}
	if l.o.State == "" {
		return nil
	}
	l.mark, err = openBookmark(l.o.State, l.c.URL(), l.own, l.abort)
	if err != nil {
		return err
	}
	l.taken = l.mark.after
	return nil
}

// pause reports what is wrong, and waits until it is time for the next attempt.
func (l *listener) pause(ctx context.Context, err error, b *Backoff) {
	d := b.Pause(err)
	l.o.Report(Event{What: Waiting, Address: l.own, Err: err, Pause: d})
	Sleep(ctx, d)
}

// fresh reports whether a message is to be handled. It is not if it is in hand, as when a new connection brings
// it again, or if it was settled. The listener asks the relay about a settled message that is redelivered
// without having been deferred: after relay restore, the relay may have lost the acknowledgement, and then the
// message is to be handled again.
func (l *listener) fresh(ctx context.Context, m *Message) (bool, error) {
	l.mu.Lock()
	inHand, attempt := l.inHand[m.ID], l.done.attempt(m.ID)
	l.mu.Unlock()
	switch {
	case inHand:
		return false, nil
	case attempt == 0 || m.Attempt > attempt:
		return true, nil
	case l.o.keepsPlace():
		return false, nil
	}
	record, err := l.c.Record(ctx, m.ID)
	if err != nil {
		return false, err
	}
	return record.State == relay.Queued.String() || record.State == relay.Delivered.String(), nil
}

// hold notes that a message is in hand; release, that it is not, and whether it is settled.
func (l *listener) hold(m *Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inHand[m.ID] = true
}

func (l *listener) release(m *Message, settled bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.inHand, m.ID)
	if settled {
		l.done.add(m.ID, m.Attempt)
	}
}
