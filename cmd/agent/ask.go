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

// longestAsk is the longest wait for an answer: an Idempotency-Key is valid for 24 hours.
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
(with --json the whole envelope) and acknowledge it as completed. Give the
payload as in relay send.

The answer is the first message from TO whose in_reply_to names this one, as in
relay reply and relay listen --reply. Failing that, it is the first later
message from TO in the same conversation and, if this one has a correlation_id,
with the same one.

Without --conversation and --in-reply-to, ask starts a conversation with a
marked id such as ask-0f3a…; with them, the mark is the correlation_id unless
--correlation-id sets one. By the mark, a relay listen --exec of the same Mecha
recognises the answer and leaves it to this command.

With --find QUERY and no TO, ask searches as relay search does, asks the first
Mecha found and names it on stderr. If that Mecha completes the message, later
searches learn from it.

Exit codes:
  - 0: the answer has come.
  - 1: the message failed, was rejected or expired.
  - 3: no answer within --timeout, and the relay's verdict says why; or the
    relay does not answer, and it is not known whether the message was sent. The
    same command with the same --idempotency-key continues to wait.`,
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
				err = cli.Usagef("ask takes an address, or --find with the ability that the Mecha should have")
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
	cmd.Flags().StringVar(&find, "find", "", "the `words` of a search, whose first Mecha is asked")
	cmd.Flags().StringVar(&m.Type, "type", "", "the message's `type` (default message)")
	cmd.Flags().DurationVar(&f.waitReply, "timeout", time.Minute, "how long to wait for the answer")
	cmd.Flags().BoolVar(&f.noAck, "no-ack", false, "no acknowledgement of the answer")
	return cmd
}

// prepareFound is prepare for a message to the first Mecha that a search finds. args has the payload or
// nothing.
func (a *app) prepareFound(
	ctx context.Context, c *client.Client, m *outgoing, f *sendFlags, query string, args []string,
) error {
	switch query = strings.TrimSpace(query); {
	case query == "":
		return cli.Usagef("--find takes the ability that the Mecha should have, in plain words")
	case len(args) > 1:
		return cli.Usagef("--find chooses the address: give at most one argument, the payload")
	case m.SearchID != "":
		return cli.Usagef("--search-id cannot be combined with --find, which searches itself")
	case m.IdempotencyKey != "":
		return cli.Usagef("--idempotency-key requires an address: a second search may find another Mecha")
	}
	if err := a.complete(m, f, args); err != nil { // before the search, which an error here would waste
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

// noReply is the error of a reply that did not come in time.
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
		none.Within = f.waitReply // sending the message took a part of it
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
