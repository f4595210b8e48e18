package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/db/relay"
	"relay/http/client"
)

// outgoing is a message that a command sends.
type outgoing struct {
	To string
	client.SendOptions
	payload []byte
}

// sendFlags are the flags of a sending command that are not fields of the message.
type sendFlags struct {
	retry, waitAck, waitReply time.Duration
	noAck                     bool
}

func (a *app) sendCommand() *cobra.Command {
	var c remote.Flags
	var m outgoing
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "send TO [PAYLOAD|-|@FILE]",
		Short: "Send a message, and optionally wait for its ack or its answer",
		Long: `Send a message as the Mecha of RELAY_KEY, and print the message's id. The
payload is a JSON object: an argument, a file (@FILE), or stdin (- or nothing).
It is sent byte for byte. To write to all Mechas of a crew, use *^CREW; each
gets its own message, and all ids are printed.

If the relay does not answer or is overloaded, send retries for --retry. The
message is still sent only once: every attempt has the same Idempotency-Key.

--wait-ack waits for the final ack. The exit code is 0 for completed, and 1 for
failed, rejected, expired, or no final ack in time. With --json, a second line
is the message's record. --wait-reply waits for the answer as relay ask does,
but the exit code after a timeout is 1. The same command with the same
--idempotency-key waits again.`,
		Example: `  relay send bob^demo '{"text":"hello, bob"}'
  relay send '*^demo' '{"text":"we are back"}'
  relay send bob^demo @order.json --idempotency-key order-17 --wait-ack 30s
  relay send bob^demo '{"text":"and?"}' --in-reply-to "$ID" --ack-by 10m
  answer=$(echo '{"question":"how are you?"}' | relay send bob^demo --wait-reply 60s)`,
		Args: cli.Between(1, 2, "an address and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			api, err := c.Client()
			if err == nil {
				err = a.prepare(&m, &f, args)
			}
			if err != nil {
				return err
			}
			return a.send(cmd.Context(), api, &m, f)
		},
	}
	c.Add(cmd)
	f.add(cmd, &m)
	addPlace(cmd, &m)
	cmd.Flags().StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	cmd.Flags().DurationVar(&f.waitAck, "wait-ack", 0, "time to wait for the final ack")
	cmd.Flags().DurationVar(&f.waitReply, "wait-reply", 0, "time to wait for the answer, which is then printed")
	cmd.Flags().BoolVar(&f.noAck, "no-ack", false, "with --wait-reply: no acknowledgement of the answer")
	return cmd
}

// add adds the flags of every sending command to a command.
func (f *sendFlags) add(cmd *cobra.Command, m *outgoing) {
	flags := cmd.Flags()
	flags.StringVar(&m.Priority, "priority", "",
		"the `priority`: low, normal, high, urgent, or any other word (default normal)")
	flags.StringVar(&m.IdempotencyKey, "idempotency-key", "",
		"a `text`; repeats with this key within 24 hours send no second message")
	flags.DurationVar(&m.TTL, "ttl", 0, "time after which the message expires")
	flags.DurationVar(&m.AckBy, "ack-by", 0, "time after which the relay tells you that the message is not acknowledged")
	flags.DurationVar(&f.retry, "retry", 10*time.Second, "time to retry if the relay does not answer")
}

// addPlace adds the flags that say where a message belongs to a command.
func addPlace(cmd *cobra.Command, m *outgoing) {
	flags := cmd.Flags()
	flags.StringVar(&m.ConversationID, "conversation", "",
		"the conversation's `id`, or any word (default a new one)")
	flags.StringVar(&m.CorrelationID, "correlation-id", "", "a `text` by which you correlate messages")
	flags.StringVar(&m.InReplyTo, "in-reply-to", "",
		"the `id` of the message that this one answers, in whose conversation it is sent")
	flags.StringVar(&m.SearchID, "search-id", "",
		"the request_id of the `search` that found the recipient; searches learn from it")
	flags.IntVar(&m.MaxMessages, "max-messages", 0,
		"message limit of the conversation that this one starts (default no limit)")
}

// prepare checks the arguments and completes the message.
func (a *app) prepare(m *outgoing, f *sendFlags, args []string) error {
	to, err := relay.ParseRecipient(args[0])
	switch {
	case err != nil:
		return cli.Plain(err)
	case f.waitAck > 0 && f.waitReply > 0:
		return cli.Usagef("--wait-ack cannot be combined with --wait-reply: an answer says more than an ack")
	case to.IsCrew() && (f.waitAck > 0 || f.waitReply > 0):
		return cli.Usagef("--wait-ack and --wait-reply wait for one recipient, but %s is a crew", to)
	case f.noAck && f.waitReply == 0:
		return cli.Usagef("--no-ack requires --wait-reply")
	}
	m.To = string(to)
	return a.complete(m, f, args[1:])
}

// complete checks the flags of f, and adds them and the payload to the message. payload is the argument with
// the payload; without it, complete reads stdin.
func (a *app) complete(m *outgoing, f *sendFlags, payload []string) (err error) {
	switch {
	case f.retry < 0 || f.waitAck < 0 || f.waitReply < 0 || m.TTL < 0 || m.AckBy < 0 || m.MaxMessages < 0:
		return cli.Usagef("no flag may be negative")
	case m.TTL%time.Second != 0 || m.AckBy%time.Second != 0:
		return cli.Usagef("--ttl and --ack-by must be whole seconds, as in 90s or 24h")
	case f.waitReply > longestAsk:
		return cli.Usagef("the longest wait for an answer is %v, not %v", longestAsk, f.waitReply)
	}
	m.Question, m.Timeout = f.waitReply > 0, f.retry
	if f.retry == 0 {
		m.Timeout = -1 // one attempt
	}
	if len(payload) == 0 {
		if stdin, ok := a.Stdin.(*os.File); ok && show.IsTerminal(stdin) {
			return cli.Usagef("no payload: give it as an argument, as @FILE or on stdin, "+
				"as in relay %s %s '{\"text\":\"hello\"}'", a.Command, cmp.Or(m.To, m.InReplyTo))
		}
		payload = []string{"-"}
	}
	if m.payload, err = a.bodyArgument(payload); err != nil {
		return err
	}
	m.payload = bytes.TrimSpace(m.payload)
	if err = checkPayload(m.payload); err != nil {
		if _, e := os.Stat(payload[0]); e == nil {
			return cli.Usagef("%w; to send the file of that name, write @%s", err, payload[0])
		}
	}
	return err
}

// checkPayload refuses what the relay would refuse, but sooner and with a plainer error.
func checkPayload(payload []byte) error {
	var syntax *json.SyntaxError
	err := json.Unmarshal(payload, &struct{}{})
	switch {
	case len(payload) == 0:
		return cli.Usagef(`the payload is empty; it must be a JSON object, as in {"text":"hello"}`)
	case errors.As(err, &syntax):
		return cli.Usagef("the payload is not valid JSON: %v, at byte %d", err, syntax.Offset)
	case payload[0] != '{':
		return cli.Usagef(`the payload must be a JSON object, as in {"text":"hello"}`)
	}
	return nil
}

func (a *app) send(ctx context.Context, c *client.Client, m *outgoing, f sendFlags) error {
	end, sending, cancel := time.Now().Add(f.waitReply), ctx, func() {}
	if f.waitReply > 0 {
		m.Timeout = min(m.Timeout, f.waitReply)
		sending, cancel = client.Attempt(ctx, f.waitReply, 0) // with --retry 0, too
	}
	sent, err := c.Send(sending, m.To, m.payload, m.SendOptions)
	cancel()
	var unsent *client.SendError
	switch {
	case errors.As(err, &unsent) && unsent.Unknown:
		return unknownOutcome{fmt.Errorf("%w\nWhether the message was sent is not known. The same command with "+
			"--idempotency-key '%s' sends it now, or finds that it was sent", remote.Advice(unsent.Err), unsent.IdempotencyKey)}
	case err != nil:
		return err
	case f.waitReply > 0:
		fmt.Fprintln(a.Stderr, "sent", sent.MessageID)
		return a.waitForReply(ctx, c, sent, f, end)
	case a.JSON:
		err = a.PrintJSON(sent.JSON)
	default:
		ids := sent.MessageIDs
		if ids == nil {
			ids = []string{sent.MessageID}
		}
		_, err = fmt.Fprintln(a.Stdout, strings.Join(ids, "\n"))
	}
	if err != nil || f.waitAck == 0 {
		return err
	}
	return a.waitForAck(ctx, sent, f.waitAck)
}

// waitForAck waits for the final ack of a message. Any ack but completed is an error.
func (a *app) waitForAck(ctx context.Context, sent *client.Sent, limit time.Duration) error {
	last, err := sent.AwaitAck(ctx, limit)
	state := ""
	if last != nil {
		state = last.State
		if a.JSON {
			fmt.Fprintf(a.Stdout, "%s\n", last.JSON)
		}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no final ack within %v: %s is %s. The message stays with the relay",
			limit, sent.MessageID, show.Dash(state))
	case err == nil:
		fmt.Fprintln(a.Stderr, "completed")
	}
	return err
}

func interrupted(sent *client.Sent) error {
	return fmt.Errorf("interrupted. %s was sent, and stays with the relay", sent.MessageID)
}
