package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"relay/db/relay"
	"relay/http/client"
)

// listenFlags are the flags of relay listen.
type listenFlags struct {
	ack, exec, replyType, state string
	reply, bell                 bool
	jobs, maxReplies            int
	timeout                     time.Duration
	claim                       bool
	lease                       time.Duration
	worker                      string
}

func (a *app) listenCommand() *cobra.Command {
	var c clientFlags
	var f listenFlags
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive messages: print them, or run a command for each",
		Long: `Receive the messages for the Mecha of RELAY_KEY, in order, each at least once,
and print each as a line of JSON, until SIGINT or SIGTERM. On a terminal, unless
--json is set, each message is shown with its time, sender and payload instead.
If the connection is lost or the relay is away, listen tries again, with growing
pauses.

Without --ack and --exec, listen keeps its place in the --state file. The first
start begins with the oldest pending message, the next one where the last one
stopped. With --exec, or with an --ack that ends the message, no file is needed
and none is kept: what is still to be done is still pending at the relay.

--exec runs a command for each message, with sh -c (Windows: cmd /C). The
payload is on its stdin, and the envelope in RELAY_MESSAGE_ID, _FROM, _TO,
_TYPE, _PRIORITY, _CONVERSATION_ID, _CORRELATION_ID, _IN_REPLY_TO, _CREATED_AT and
_ATTEMPT. The command has the environment of this process, and so the key: it
can run relay itself.
Its stdout is passed on. Exit code 0 acks completed; any other acks failed, with
the last line of its stderr as detail.
--reply sends the JSON object that the command prints back to the sender as the
answer to the message, in the same conversation and with the same
correlation_id, before the ack. A message of type --reply-type is an answer
itself and gets no answer, so that two listeners do not answer each other
endlessly. If other types come back, --max-replies ends it: what goes beyond so
many answers in a conversation within ten minutes is acked failed, and no
command runs for it.
Two listeners of one Mecha both get every message: to run commands side by side,
use --jobs.

With --claim each message goes to one listener of many, in as many processes and
on as many machines as you like. A worker holds a message by a lease, which it
renews while the command runs. If the worker dies, the lease ends and the
message goes to another one; RELAY_MESSAGE_ATTEMPT counts. A worker that could
not renew in time, or whose message is no longer pending, kills its command and
acks nothing.

With --bell no message is printed: one line with ids and senders tells that
messages are pending, and the next one comes only after one of them has moved.
See relay docs waking.

The first signal waits for the commands that run. A second one kills them, and
their messages stay pending.`,
		Example: `  relay listen
  relay listen --ack completed | jq -c .payload
  relay listen --exec './answer.sh' --reply --jobs 4 --timeout 1m
  relay listen --claim --exec './work.sh' --jobs 4 --lease 60s --worker "$(hostname)"
  relay listen --bell`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			relay, err := c.client()
			if err == nil {
				err = f.check()
			}
			if err != nil {
				return err
			}
			if f.bell {
				return a.listenForBells(cmd.Context(), relay)
			}
			l := &listener{app: a, c: relay, f: f, breaker: &breaker{most: f.maxReplies}}
			return l.run(cmd.Context())
		},
	}
	c.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.ack, "ack", "", "acknowledge each message that was printed, with this `status`, as in completed")
	flags.StringVar(&f.exec, "exec", "", "run this `command` for each message instead of printing it")
	flags.IntVar(&f.jobs, "jobs", 1, "with --exec: how many commands at once; more than 1 does not keep the order")
	flags.DurationVar(&f.timeout, "timeout", 0, "with --exec: kill a command after this time, and ack failed (default never)")
	flags.BoolVar(&f.reply, "reply", false, "with --exec: send the JSON object that the command prints to the sender")
	flags.StringVar(&f.replyType, "reply-type", defaultReplyType, "with --reply: the answers' message `type`")
	flags.IntVar(&f.maxReplies, "max-replies", defaultMaxReplies, "with --reply: how many answers within ten minutes in a conversation; 0: any")
	flags.BoolVar(&f.claim, "claim", false, "with --exec: share the messages with other workers of this Mecha; each goes to one")
	flags.DurationVar(&f.lease, "lease", 0, "with --claim: how long a message is held before it is renewed, from 5s to 1h (default 1m)")
	flags.StringVar(&f.worker, "worker", "", "with --claim: this worker's `name`, for people (default the machine and the process id)")
	flags.BoolVar(&f.bell, "bell", false, "print one line when messages are pending, with ids and senders only")
	flags.StringVar(&f.state, "state", "", "keep the place in this `file`, each listener in its own; none keeps none (default one in the user's directory for state)")
	return cmd
}

func (f *listenFlags) check() error {
	f.ack = strings.ToLower(f.ack)
	switch {
	case f.jobs < 1 || f.jobs > maxJobs:
		return usagef("--jobs must be from 1 to %d", maxJobs)
	case f.timeout < 0:
		return usagef("--timeout must not be negative")
	case f.exec == "" && (f.reply || f.jobs > 1 || f.timeout > 0):
		return usagef("--reply, --jobs and --timeout go with --exec")
	case f.exec != "" && f.ack != "":
		return usagef("--ack goes without --exec, which acks by the exit code")
	case f.ack != "" && !ackStatus.MatchString(f.ack):
		return usagef("--ack takes a status such as completed: at most 32 letters, digits and _")
	case f.reply && f.replyType == "":
		return usagef("--reply-type must not be empty")
	case f.bell && (f.exec != "" || f.ack != "" || f.claim || f.state != ""):
		return usagef("--bell goes without --exec, --ack, --claim and --state")
	case f.maxReplies < 0:
		return usagef("--max-replies must not be negative")
	}
	return f.checkClaim()
}

// endsMessages tells whether each message is acknowledged so that it is no
// longer pending. Then the relay knows what is left to do. Otherwise the
// listener must keep its place.
func (f *listenFlags) endsMessages() bool {
	return f.exec != "" || f.ack != "" && f.ack != "received" && f.ack != "processing"
}

// defaultReplyType is the message type of answers. A listener answers none of that type.
const defaultReplyType = "reply"

const (
	maxJobs    = 256
	acksAtOnce = 32               // acks of printed messages under way; http/client keeps as many connections
	syncLimit  = 1000             // the most that a relay allows
	heartbeat  = 20 * time.Second // the relay hangs up after 60 s without a frame
	mostPause  = 30 * time.Second // between attempts
)

// listener is relay listen. The goroutine of run reads and prints. Jobs, which
// execute commands and acknowledge, run beside it.
type listener struct {
	*app
	c    *client.Client
	f    listenFlags
	own  relay.Address
	mark *bookmark // nil: no place is kept

	breaker *breaker

	taken string // the last message that was printed or given to a job

	mu     sync.Mutex
	inHand map[string]bool // messages that were taken and are not finished

	slots chan struct{}   // holds one value for each job that runs
	jobs  sync.WaitGroup  // the jobs that run
	alive context.Context // ends with the second signal, or a failure
	abort context.CancelCauseFunc
}

func (l *listener) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.alive, l.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	defer l.abort(nil)
	defer context.AfterFunc(l.alive, stop)()
	defer context.AfterFunc(ctx, l.onSecondSignal)()
	l.slots, l.inHand = make(chan struct{}, l.atOnce()), map[string]bool{}

	err := l.begin(ctx)
	if err == nil {
		if l.f.claim {
			err = l.claimAll(ctx)
		} else {
			err = l.receiveAll(ctx)
		}
	}
	l.jobs.Wait()
	if l.mark != nil {
		err = errors.Join(err, l.mark.close())
	}
	if cause := context.Cause(l.alive); cause != nil {
		return cause // other errors only follow from this one
	}
	return err
}

// atOnce is how many messages may be in hand. If a place is kept, it is one:
// the place moves when a message is done, so messages must be done in order.
func (l *listener) atOnce() int {
	switch {
	case l.f.exec != "":
		return l.f.jobs
	case l.f.endsMessages():
		return acksAtOnce
	}
	return 1
}

// onSecondSignal is called after the first signal. It waits for another one,
// which aborts.
func (l *listener) onSecondSignal() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	select {
	case <-again:
		l.abort(errors.New("interrupted; the messages under way stay pending"))
	case <-l.alive.Done():
	}
}

// begin asks the relay whose key this is, and reads where the last listener
// stopped.
func (l *listener) begin(ctx context.Context) (err error) {
	b := client.Backoff{Most: mostPause}
	for {
		l.own, err = l.c.Address(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !client.Temporary(err) {
			return err
		}
		l.pause(ctx, err, &b)
	}
	if l.f.endsMessages() || l.f.state == "none" {
		return nil
	}
	mark, err := openBookmark(l.f.state, l.c.URL(), l.own, l.abort)
	if err != nil {
		return err
	}
	l.mark, l.taken = mark, mark.after
	return nil
}

// receiveAll reads one connection after the other, until the context ends or an
// error that another connection would not heal.
func (l *listener) receiveAll(ctx context.Context) error {
	b := client.Backoff{Most: mostPause}
	for ctx.Err() == nil {
		err := l.connection(ctx, &b)
		if ctx.Err() != nil || errors.Is(err, errNextPage) {
			continue
		}
		var closed *client.Closed
		switch {
		case client.Refused(err, relay.CursorNotFound) && l.mark != nil:
			return fmt.Errorf("this relay does not know the message %s, where %s says that the last listener stopped. If that file belongs to another relay, name another --state", l.taken, l.mark.path)
		case !client.Temporary(err), errors.As(err, new(permanentError)):
			return err
		case errors.As(err, &closed) && closed.Code == policyViolation:
			return fmt.Errorf("the relay closed the connection: %s. Set RELAY_KEY to a key that is valid", relay.Visible(closed.Reason))
		}
		l.pause(ctx, err, &b)
	}
	return nil
}

const policyViolation = 1008 // the relay closes the sockets of a key that is no longer valid with it

// permanentError is a fault on this side, which another connection would not heal.
type permanentError struct{ error }

// pause says what is wrong, and waits until it is time for the next attempt.
func (l *listener) pause(ctx context.Context, err error, b *client.Backoff) {
	d := b.Pause(err)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("the connection is lost")
	}
	fmt.Fprintf(l.stderr, "relay: %v; trying again in %v\n", advice(err), d.Round(10*time.Millisecond))
	sleep(ctx, d)
}

// errNextPage ends a connection on which the relay waits for acks, which this
// listener does not send. The next connection begins after the messages of this one,
// sooner than the relay would go on by itself (--sync-ack-wait).
var errNextPage = errors.New("next page")

// connection reads one connection to its end.
func (l *listener) connection(ctx context.Context, b *client.Backoff) error {
	query := fmt.Sprintf("sync_limit=%d&events=sync", syncLimit)
	if !l.f.endsMessages() && l.taken != "" {
		query += "&since_message_id=" + l.taken
	}
	before := l.unfinished()
	s, err := l.c.Dial(ctx, l.own, query)
	if err != nil {
		return err
	}
	b.Reset()
	fmt.Fprintf(l.stderr, "listening as %s\n", l.own)
	beating, still := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { beat(beating, s) })
	defer wg.Wait()
	defer s.Close()
	defer still()
	for behind, n := true, 0; ; {
		if behind && n == syncLimit && l.f.ack == "" && l.f.exec == "" {
			return errNextPage
		}
		var e envelope
		if err := s.Receive(&e); err != nil {
			return err
		}
		switch {
		case e.Type == "sync" && e.Phase == "end":
			behind = false
		case e.Type == "message":
			n++
			if before[e.MessageID] {
				continue // an earlier connection has brought it
			}
			if err := l.take(ctx, &e); err != nil {
				return err
			}
		}
	}
}

// beat keeps the connection alive while nothing is read because all jobs are
// busy.
func beat(ctx context.Context, s *client.Socket) {
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

// take waits until a job may run, prints the message if that is asked for, and
// starts the job. Meanwhile nothing is read from the connection: the relay keeps
// further messages.
func (l *listener) take(ctx context.Context, e *envelope) error {
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if ctx.Err() != nil { // select takes either
		<-l.slots
		return ctx.Err()
	}
	var err error
	switch {
	case l.f.exec == "":
		err = l.print(e)
	case l.unread():
		err = errUnread
	}
	if err != nil {
		<-l.slots
		return permanentError{err}
	}
	l.taken = e.MessageID
	l.hold(e.MessageID, true)
	l.jobs.Go(func() {
		defer func() { <-l.slots }()
		defer l.hold(e.MessageID, false)
		l.finish(ctx, e)
	})
	return nil
}
