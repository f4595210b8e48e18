package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/db/relay"
	"relay/http/client"
)

// longestAsk is how long an answer can be waited for: an Idempotency-Key holds for 24 hours.
const longestAsk = 23 * time.Hour

func (a *app) askCommand() *cobra.Command {
	var c remote.Flags
	var m outgoing
	var f sendFlags
	var find string
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

With --find QUERY there is no TO: ask searches as relay search does, asks the first
Mecha that it finds, and says on stderr which one that is. If that completes the
message, later searches learn from it.

If there is no answer within --timeout, the exit code is 3, and the relay's
verdict says why. The message stays with the relay, and the same command with
the same --idempotency-key goes on waiting. The exit code is also 3 if it is not
known whether the message was sent, because the relay does not answer. If the message fails, is rejected or
expires, the exit code is 1.`,
		Example: `  relay ask bob^demo '{"question":"how are you?"}'
  relay ask --find 'book a flight' '{"to":"Lisbon"}'
  relay ask bob^demo @order.json --timeout 10m --idempotency-key order-17
  relay ask bob^demo '{"and":"then?"}' --in-reply-to "$ID" --json`,
		Args: cli.Between(0, 2, "an address, or --find, and at most one payload"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.waitReply <= 0 {
				return cli.Usagef("--timeout must be above 0")
			}
			api, err := c.Client()
			switch {
			case err != nil:
			case cmd.Flags().Changed("find"):
				err = a.prepareFound(cmd.Context(), api, &m, &f, find, args)
			case len(args) == 0:
				err = cli.Usagef("ask takes an address, or --find with what the Mecha should be able to do")
			default:
				err = a.prepare(&m, &f, args)
			}
			if err != nil {
				return err
			}
			err = a.send(cmd.Context(), api, &m, f)
			if errors.As(err, new(noReply)) || errors.As(err, new(unknownOutcome)) && cmd.Context().Err() == nil {
				return cli.TimedOut(err)
			}
			return err
		},
	}
	c.Add(cmd)
	f.add(cmd, &m)
	addPlace(cmd, &m)
	cmd.Flags().StringVar(&find, "find", "", "ask the first Mecha that a search for these `words` finds")
	cmd.Flags().StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	cmd.Flags().DurationVar(&f.waitReply, "timeout", time.Minute, "how long to wait for the answer")
	cmd.Flags().BoolVar(&f.noAck, "no-ack", false, "do not acknowledge the answer")
	return cmd
}

// prepareFound is prepare for a message to the first Mecha that a search finds. args has at
// most the payload.
func (a *app) prepareFound(
	ctx context.Context, c *client.Client, m *outgoing, f *sendFlags, query string, args []string,
) error {
	switch query = strings.TrimSpace(query); {
	case query == "":
		return cli.Usagef("--find takes what the Mecha should be able to do, in plain words")
	case len(args) > 1:
		return cli.Usagef("--find chooses the address: give at most one argument, the payload")
	case m.SearchID != "":
		return cli.Usagef("--search-id or --find, not both: --find searches itself")
	case m.IdempotencyKey != "":
		return cli.Usagef("--idempotency-key goes with an address: a second search may find another Mecha")
	}
	if err := a.complete(m, f, args); err != nil { // before the search, which is then not made in vain
		return err
	}
	found, err := c.Find(ctx, query, client.FindOptions{Limit: 1})
	if err != nil {
		return err
	}
	if len(found.Agents) == 0 {
		return fmt.Errorf("the search found no Mecha for %s; relay search shows what is registered, and has filters",
			relay.Quote(query))
	}
	m.To, m.SearchID = found.Agents[0].Address, found.ID
	fmt.Fprintln(a.Stderr, "asking", relay.Visible(m.To))
	return nil
}

// noReply says that no reply came in time.
type noReply struct{ error }

// unknownOutcome is the error of a message that may have been sent, but that the relay has not confirmed.
type unknownOutcome struct{ error }

func (e unknownOutcome) Unwrap() error { return e.error }

// waitForReply waits until end for the answer to a message, prints it and acknowledges it. Error:
// noReply.
func (a *app) waitForReply(ctx context.Context, c *client.Client, sent *client.Sent, f sendFlags, end time.Time) error {
	reply, err := sent.AwaitReply(ctx, time.Until(end))
	var none *client.NoAnswer
	switch {
	case errors.Is(err, context.Canceled):
		return interrupted(sent)
	case errors.As(err, &none):
		none.Within = f.waitReply // a part of it was needed to send the message
		return noReply{errors.New(strings.TrimSuffix(none.Error(), ".") + ". The answer may still come: see relay inbox")}
	case err != nil:
		return err
	}
	text := append(reply.Payload, '\n')
	if a.JSON {
		if text, err = line(reply); err != nil {
			return err
		}
	}
	if _, err := a.Stdout.Write(text); err != nil || f.noAck {
		return err
	}
	if _, err := c.Ack(ctx, reply.ID, "completed", ""); err != nil {
		fmt.Fprintf(a.Stderr, "relay: the answer %s is not acknowledged: %v\n", reply.ID, remote.Advice(err))
	}
	return nil
}
