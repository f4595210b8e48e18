package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/http/client"
)

// longestAsk is how long an answer can be waited for: an Idempotency-Key holds for 24 hours.
const longestAsk = 23 * time.Hour

func (a *app) askCommand() *cobra.Command {
	var c clientFlags
	var m outgoing
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "ask TO [PAYLOAD|-|@FILE]",
		Short: "Send a message, wait for the answer and print it",
		Long: `Send a message as the Mecha of RELAY_KEY, wait for the answer, print its payload
(with --json the whole envelope) and acknowledge it as completed. The payload is
as in relay send.

The answer is the first message from TO that names this one as the message that
it answers, as relay reply and relay listen --reply do. If there is none, it is
the first later message from TO in the same conversation, with the same
correlation_id if this one has any.

Without --conversation and --in-reply-to, the conversation is a mark such as
ask-0f3a…; with them, the mark is the correlation_id unless --correlation-id
gives one. By the mark, a relay listen --exec of the same Mecha knows the answer:
it leaves it to this command.

If there is no answer within --timeout, the exit code is 3, and the relay's
verdict says why. The message stays with the relay, and the same command with
the same --idempotency-key goes on waiting. If the message fails, is rejected or
expires, the exit code is 1.`,
		Example: `  relay ask bob^demo '{"question":"how are you?"}'
  relay ask bob^demo @order.json --timeout 10m --idempotency-key order-17
  relay ask bob^demo '{"and":"then?"}' --in-reply-to "$ID" --json`,
		Args: between(1, 2, "an address and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.waitReply <= 0 {
				return usagef("--timeout must be above 0")
			}
			relay, err := c.client()
			if err == nil {
				err = a.prepare(&m, &f, args)
			}
			if err != nil {
				return err
			}
			err = a.send(cmd.Context(), relay, &m, f)
			var late noReply
			if errors.As(err, &late) {
				return timeUp{err}
			}
			return err
		},
	}
	c.add(cmd)
	f.add(cmd, &m)
	addPlace(cmd, &m)
	cmd.Flags().StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	cmd.Flags().DurationVar(&f.waitReply, "timeout", time.Minute, "how long to wait for the answer")
	cmd.Flags().BoolVar(&f.noAck, "no-ack", false, "do not acknowledge the answer")
	return cmd
}

// noReply says that no reply came in time.
type noReply struct{ error }

// waitForReply waits for the answer to a message, prints it and acknowledges it. Error:
// noReply.
func (a *app) waitForReply(ctx context.Context, c *client.Client, sent *client.Sent, f sendFlags) error {
	reply, err := sent.AwaitReply(ctx, f.waitReply)
	var none *client.NoAnswer
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.As(err, &none):
		return noReply{errors.New(strings.TrimSuffix(none.Error(), ".") + ". The answer may still come: see relay inbox")}
	case err != nil:
		return err
	}
	text := append(reply.Payload, '\n')
	if a.json {
		if text, err = line(reply); err != nil {
			return err
		}
	}
	if _, err := a.stdout.Write(text); err != nil || f.noAck {
		return err
	}
	if _, err := c.Ack(ctx, reply.ID, "completed", ""); err != nil {
		fmt.Fprintf(a.stderr, "relay: the answer %s is not acknowledged: %v\n", reply.ID, advice(err))
	}
	return nil
}
