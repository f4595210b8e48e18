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

	"relay/db/relay"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/spf13/cobra"
)

// listenOptions are the flags of relay listen.
type listenOptions struct {
	ack, exec, replyType, state string
	reply                       bool
	jobs                        int
	timeout                     time.Duration
}

func (a *app) listenCommand() *cobra.Command {
	var c credentials
	var o listenOptions
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive messages: print them, or run a command for each",
		Long: `Receive the messages for the Mecha of RELAY_KEY, in order, each at least once,
and print each as a line of JSON, until SIGINT or SIGTERM. A lost connection,
or a relay that is away, is tried again with growing pauses.

Without --ack and --exec, the place where it stopped is kept in --state, and the
next start goes on from there; the first one starts at the oldest pending
message. With an ack that ends a message, what is left to do is what is still
pending at the relay, so that no file is needed and none is kept.

--exec runs a command for each message, with sh -c (Windows: cmd /C), the payload
on stdin and the envelope in RELAY_MESSAGE_ID, _FROM, _TO, _TYPE, _PRIORITY,
_CONVERSATION_ID, _CORRELATION_ID and _CREATED_AT. It has the environment of
this process too, and so the key, to use relay itself. Its stdout is passed on.
Exit code 0 acks completed; any other acks failed, with the last line of its
stderr as detail.
--reply sends the JSON object that the command prints back to the sender, in the
same conversation and with the same correlation_id, before the ack. A message of
type --reply-type is an answer itself and gets none, so that two listeners do
not answer each other for ever.

The first signal waits for the commands that run; a second one kills them, and
their messages stay pending.`,
		Example: `  relay listen
  relay listen --ack completed | jq -c .payload
  relay listen --exec './answer.sh' --reply --jobs 4 --timeout 1m`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err == nil {
				err = o.check()
			}
			if err != nil {
				return err
			}
			l := &listener{app: a, c: client, o: o}
			return l.run(cmd.Context())
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.ack, "ack", "", "acknowledge each message that was printed, with this `status`, as in completed")
	f.StringVar(&o.exec, "exec", "", "run this `command` for each message instead of printing it")
	f.IntVar(&o.jobs, "jobs", 1, "with --exec: so many at once; more than 1 does not keep the order")
	f.DurationVar(&o.timeout, "timeout", 0, "with --exec: kill a command, and ack failed, after so long (default never)")
	f.BoolVar(&o.reply, "reply", false, "with --exec: send the JSON object that the command prints to the sender")
	f.StringVar(&o.replyType, "reply-type", "reply", "with --reply: the answers' message `type`")
	f.StringVar(&o.state, "state", "", "keep the place in this `file`, each listener in its own; none keeps none (default one in the user's directory for state)")
	return cmd
}

func (o *listenOptions) check() error {
	o.ack = strings.ToLower(o.ack)
	switch {
	case o.jobs < 1 || o.jobs > maxJobs:
		return usagef("--jobs must be from 1 to %d", maxJobs)
	case o.timeout < 0:
		return usagef("--timeout must not be negative")
	case o.exec == "" && (o.reply || o.jobs > 1 || o.timeout > 0):
		return usagef("--reply, --jobs and --timeout go with --exec")
	case o.exec != "" && o.ack != "":
		return usagef("--ack goes without --exec, which acks by the exit code")
	case o.ack != "" && !ackStatus.MatchString(o.ack):
		return usagef("--ack takes a status such as completed: at most 32 letters, digits and _")
	case o.reply && o.replyType == "":
		return usagef("--reply-type must not be empty")
	}
	return nil
}

// remembers tells whether the relay knows by the acks what is left to do.
// Otherwise the place in the stream must be kept.
func (o *listenOptions) remembers() bool {
	return o.exec != "" || o.ack != "" && o.ack != "received" && o.ack != "processing"
}

const (
	maxJobs     = 256
	acksAtOnce  = 32               // acks of printed messages under way
	syncLimit   = 1000             // the relay's most
	heartbeat   = 20 * time.Second // the relay hangs up after 60 s without a frame
	longestWait = 30 * time.Second
)

// listener is relay listen. run's goroutine reads and prints; jobs run beside it.
type listener struct {
	*app
	c    *client
	o    listenOptions
	own  relay.Address
	mark *bookmark // nil: none is kept

	taken string // the last message that is printed or in a job's hands

	mu     sync.Mutex
	inHand map[string]bool // what is taken and not finished

	slots chan struct{}   // one for each job
	jobs  sync.WaitGroup  // … and ack
	alive context.Context // ended by the second signal, or a failure
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
		err = l.receiveAll(ctx)
	}
	l.jobs.Wait()
	if l.mark != nil {
		err = errors.Join(err, l.mark.close())
	}
	if cause := context.Cause(l.alive); cause != nil {
		return cause // what it led to is not worth a word
	}
	return err
}

// atOnce is how many messages may be in hand. One, if a place is kept: it
// moves when a message is done, and so they must be done in order.
func (l *listener) atOnce() int {
	switch {
	case l.o.exec != "":
		return l.o.jobs
	case l.o.remembers():
		return acksAtOnce
	}
	return 1
}

// onSecondSignal waits for it in the background, now that the first one has come.
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

// begin learns who listens, and where it was.
func (l *listener) begin(ctx context.Context) error {
	var who struct {
		MechaID relay.Address `json:"mecha_id"`
	}
	b := backoff{most: longestWait}
	for {
		err := l.c.call(ctx, "GET", "/api/v1/whoami", nil, &who)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if !transient(err) {
			return err
		}
		l.pause(ctx, err, &b)
	}
	l.own = who.MechaID
	if l.o.remembers() || l.o.state == "none" {
		return nil
	}
	mark, err := openBookmark(l.o.state, l.c.url, l.own, l.abort)
	if err != nil {
		return err
	}
	l.mark, l.taken = mark, mark.after
	return nil
}

// receiveAll reads connection after connection until the context ends, or
// something that waiting does not heal.
func (l *listener) receiveAll(ctx context.Context) error {
	for b := (backoff{most: longestWait}); ctx.Err() == nil; {
		err := l.connection(ctx, &b)
		if ctx.Err() != nil || errors.Is(err, errNextPage) {
			continue
		}
		var closed wsutil.ClosedError
		switch {
		case refusedWith(err, relay.CursorNotFound) && l.mark != nil:
			return fmt.Errorf("this relay does not know the message %s, where %s says that it stopped. If that is of another relay, name another --state", l.taken, l.mark.path)
		case errors.As(err, new(*refusal)) && !transient(err), errors.As(err, new(permanentError)):
			return err
		case errors.As(err, &closed) && closed.Code == ws.StatusPolicyViolation:
			return fmt.Errorf("the relay closed the connection: %s. Set RELAY_KEY to a key that holds", closed.Reason)
		}
		l.pause(ctx, err, &b)
	}
	return nil
}

// permanentError is a fault on this side that another connection would not heal.
type permanentError struct{ error }

// pause says what is wrong, and waits for the next attempt.
func (l *listener) pause(ctx context.Context, err error, b *backoff) {
	d := b.pause(err)
	var closed wsutil.ClosedError
	switch {
	case errors.As(err, &closed):
		err = fmt.Errorf("the relay closed the connection: %d %s", closed.Code, closed.Reason)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("the connection is lost")
	}
	fmt.Fprintf(l.stderr, "relay: %v; trying again in %v\n", advice(err), d.Round(10*time.Millisecond))
	sleep(ctx, d)
}

// errNextPage ends a connection whose sync window is full, though nothing acks:
// another one goes on behind it at once.
var errNextPage = errors.New("next page")

// connection reads one connection to its end.
func (l *listener) connection(ctx context.Context, b *backoff) error {
	query := fmt.Sprintf("?sync_limit=%d&events=sync", syncLimit)
	if !l.o.remembers() && l.taken != "" {
		query += "&since_message_id=" + l.taken
	}
	before := l.unfinished()
	s, err := l.c.dial(ctx, l.own, query)
	if err != nil {
		return err
	}
	b.reset()
	fmt.Fprintf(l.stderr, "listening as %s\n", l.own)
	beating, still := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { beat(beating, s) })
	defer wg.Wait()
	defer still()
	for behind, n := true, 0; ; {
		if behind && n == syncLimit && l.o.ack == "" && l.o.exec == "" {
			return errNextPage
		}
		var e envelope
		if err := s.receive(&e); err != nil {
			return err
		}
		switch {
		case e.Type == "sync" && e.Phase == "end":
			behind = false
		case e.Type == "message":
			n++
			if before[e.MessageID] {
				continue // it is in hand, or done, since an earlier connection
			}
			if err := l.take(ctx, &e); err != nil {
				return err
			}
		}
	}
}

// beat keeps the connection alive while a job holds up the reading, and closes
// it when the context ends.
func beat(ctx context.Context, s *socket) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			_ = s.write(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusNormalClosure, ""))) // out of courtesy
			s.Close()
			return
		case <-tick.C:
			_ = s.write(ws.NewPingFrame(nil)) // the reader will notice what is wrong
		}
	}
}

// take waits for a free hand, and gives the message to it. Until there is one
// nothing is read: what comes meanwhile is kept by the relay.
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
	case l.o.exec == "":
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

// print waits for whoever reads stdout, but not beyond the second signal.
func (l *listener) print(e *envelope) error {
	line, err := e.line()
	if err != nil {
		return err
	}
	printed := make(chan error, 1)
	go func() {
		_, err := l.stdout.Write(line)
		printed <- err
	}()
	select {
	case err := <-printed:
		return err
	case <-l.alive.Done():
		return context.Cause(l.alive)
	}
}
