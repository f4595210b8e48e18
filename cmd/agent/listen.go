package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/db/relay"
	"relay/http/client"
)

// listenFlags are the flags of relay listen.
type listenFlags struct {
	ack, exec, replyType, state string
	reply                       bool
	jobs, maxReplies            int
	timeout                     time.Duration
	claim                       bool
	lease                       time.Duration
	worker                      string
}

func (a *app) listenCommand() *cobra.Command {
	var c remote.Flags
	var f listenFlags
	cmd := &cobra.Command{
		Use:   "listen",
		Short: "Receive messages: print them, or run a command for each",
		Long: `Receive the messages for the Mecha of RELAY_KEY, in order, each at least once,
and print each as a line of JSON, until SIGINT or SIGTERM. On a terminal, unless
--json is set, each message is shown with its time, sender and payload instead.
If the connection is lost or the relay is down, listen reconnects, with growing
pauses.

Without --ack and --exec, listen saves its position in the --state file. The
first start begins with the oldest pending message, each later one where the
last one stopped. With --exec, or with an --ack that ends the message, it needs
no file: unfinished messages are still pending at the relay.

--exec runs a command for each message, with sh -c (Windows: cmd /C). The
command gets the payload on stdin, and the envelope in RELAY_MESSAGE_ID, _FROM,
_TO, _TYPE, _PRIORITY, _CONVERSATION_ID, _CORRELATION_ID, _IN_REPLY_TO,
_CREATED_AT and _ATTEMPT. It inherits the environment of this process, including
the key, so it can run relay itself. Its stdout is passed through. Exit code 0
acks completed; any other acks failed, with the last line of its stderr as
detail. --reply sends the JSON object that the command prints back to the sender
as the answer to the message, in the same conversation and with the same
correlation_id, before the ack. A message of type --reply-type is itself an
answer and gets none, so that two listeners do not answer each other endlessly.
For other types, --max-replies stops such a loop: a message beyond that many
answers in a conversation within ten minutes is acked failed, and no command
runs for it. Two listeners of one Mecha both get every message: to run commands
in parallel, use --jobs.

With --claim, each message goes to one of many listeners, in any number of
processes and machines. A worker holds a message by a lease, which it renews
while the command runs. If the worker dies, the lease expires and another worker
gets the message; RELAY_MESSAGE_ATTEMPT counts the attempts. A worker that
cannot renew in time, or whose message is no longer pending, kills its command
and acks nothing.

After the first signal, listen waits for the running commands. A second signal
kills them, and their messages stay pending.`,
		Example: `  relay listen
  relay listen --ack completed | jq -c .payload
  relay listen --exec './answer.sh' --reply --jobs 4 --timeout 1m
  relay listen --claim --exec './work.sh' --jobs 4 --lease 60s --worker "$(hostname)"`,
		Args:    cli.Exactly(0, "no arguments"),
		PreRunE: func(*cobra.Command, []string) error { return f.check() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.Client()
			if err != nil {
				return err
			}
			l := &listener{app: a, f: f}
			return l.run(cmd.Context(), api)
		},
	}
	c.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.ack, "ack", "", "`status` with which each printed message is acknowledged, as in completed")
	flags.StringVar(&f.exec, "exec", "", "`command` to run for each message instead of printing it")
	flags.IntVar(&f.jobs, "jobs", 1, "with --exec: commands at once; more than 1 does not keep the order")
	flags.DurationVar(&f.timeout, "timeout", 0,
		"with --exec: time after which a command is killed and its message acked failed (default never)")
	flags.BoolVar(&f.reply, "reply", false, "with --exec: an answer to the sender, the JSON object that the "+
		"command prints")
	flags.StringVar(&f.replyType, "reply-type", client.DefaultReplyType, "with --reply: the answers' message `type`")
	flags.IntVar(&f.maxReplies, "max-replies", client.DefaultMaxReplies,
		"with --reply: answers in a conversation within ten minutes; 0: no limit")
	flags.BoolVar(&f.claim, "claim", false,
		"with --exec: sharing of the messages with other workers of this Mecha; each goes to one")
	flags.DurationVar(&f.lease, "lease", 0,
		"with --claim: length of a lease, which is renewed, from 5s to 1h (default 1m)")
	flags.StringVar(&f.worker, "worker", "",
		"with --claim: this worker's `name`, shown in traces (default the machine and the process id)")
	flags.StringVar(&f.state, "state", "", "`file` with the position, one for each listener; "+
		"none saves no position (default one in the user's directory for state)")
	return cmd
}

func (f *listenFlags) check() error {
	f.ack = strings.ToLower(f.ack)
	switch {
	case f.jobs < 1 || f.jobs > maxJobs:
		return cli.Usagef("--jobs must be from 1 to %d", maxJobs)
	case f.timeout < 0:
		return cli.Usagef("--timeout must not be negative")
	case f.exec == "" && (f.reply || f.jobs > 1 || f.timeout > 0):
		return cli.Usagef("--reply, --jobs and --timeout require --exec")
	case f.exec != "" && f.ack != "":
		return cli.Usagef("--ack cannot be combined with --exec, which acks by the exit code")
	case f.ack != "" && !ackStatus.MatchString(f.ack):
		return cli.Usagef("--ack must be a status such as completed: at most 32 letters, digits and _")
	case f.reply && f.replyType == "":
		return cli.Usagef("--reply-type must not be empty")
	case f.maxReplies < 0:
		return cli.Usagef("--max-replies must not be negative")
	}
	return f.checkClaim()
}

// checkClaim checks --claim and the flags that require it.
func (f *listenFlags) checkClaim() error {
	if !f.claim {
		if f.lease != 0 || f.worker != "" {
			return cli.Usagef("--lease and --worker require --claim")
		}
		return nil
	}
	switch {
	case f.exec == "":
		return cli.Usagef("--claim requires --exec: a worker runs a command for each message")
	case f.state != "":
		return cli.Usagef("--claim cannot be combined with --state: the relay knows which messages are left")
	case f.lease != 0 && !client.IsLease(f.lease):
		return cli.Usagef("--lease must be whole seconds, from 5s to 1h")
	case !client.IsWorkerName(f.worker):
		return cli.Usagef("--worker must be at most 64 characters without control characters")
	}
	return nil
}

// endsMessages reports whether the listener ends each message. Then the relay knows which messages are left.
// Otherwise the listener must save its position.
func (f *listenFlags) endsMessages() bool {
	return f.exec != "" || f.ack != "" && !relay.ReportsProgress(f.ack)
}

const maxJobs = 256

// options returns the options of the client that the flags set.
func (l *listener) options() client.ListenOptions {
	o := client.ListenOptions{Jobs: l.f.jobs, Claim: l.f.claim, Lease: l.f.lease, Worker: l.f.worker,
		Quick: l.f.exec == "", MaxReplies: -1, ReplyType: l.f.replyType, Explain: explain, Report: l.report,
		Handling: l.alive}
	if l.f.reply && l.f.maxReplies > 0 {
		o.MaxReplies = l.f.maxReplies
	}
	switch {
	case l.f.exec != "":
		o.Ready = l.ready
	case l.f.ack != "":
		o.Ack = l.f.ack
	default:
		o.Ack = client.NoAck
	}
	if !l.f.endsMessages() && l.f.state != "none" {
		o.State = cmp.Or(l.f.state, client.DefaultState)
	}
	return o
}

// listener is relay listen.
type listener struct {
	*app
	f     listenFlags
	alive context.Context // ends with the second signal
	abort context.CancelCauseFunc
}

func (l *listener) run(ctx context.Context, c *client.Client) error {
	l.alive, l.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	defer l.abort(nil)
	defer context.AfterFunc(ctx, l.onSecondSignal)()
	handle := l.execute
	if l.f.exec == "" {
		handle = l.show
	}
	err := c.Listen(ctx, l.options(), handle)
	var state *client.StateError
	var closed *client.Closed
	switch {
	case errors.As(err, &state):
		return errors.New(state.Reason + " name another file by --state")
	case errors.As(err, &closed):
		return fmt.Errorf("the relay closed the connection: %s. Set RELAY_KEY to a key that is valid",
			relay.Visible(closed.Reason))
	}
	return err
}

// onSecondSignal is called after the first signal. It waits for another one,
// which aborts.
func (l *listener) onSecondSignal() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	select {
	case <-again:
		l.abort(errors.New("interrupted; the unfinished messages stay pending"))
	case <-l.alive.Done():
	}
}

// show is the handler without --exec.
func (l *listener) show(_ context.Context, m *client.Message) error {
	if err := l.print(m); err != nil {
		return client.Abandon(err)
	}
	return nil
}

// report prints an event to stderr.
func (l *listener) report(e client.Event) {
	if e.What == client.Connected {
		fmt.Fprintln(l.Stderr, e)
		return
	}
	switch e.What {
	case client.Waiting, client.AckLate, client.ReplyLate:
		e.Err = remote.Advice(e.Err)
	case client.GivenUp:
		fmt.Fprintf(l.Stderr, "relay: %s is given up, and its command is killed: %v\n", e.Message.ID, e.Err)
		return
	}
	fmt.Fprintln(l.Stderr, "relay:", e)
}

// explain returns the detail that the sender of a message gets.
func explain(err error) string {
	if errors.As(err, new(*client.TooManyReplies)) {
		return err.Error() + " (relay listen --max-replies)"
	}
	return err.Error()
}
