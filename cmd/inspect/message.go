package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/look/browse"
	"relay/db/relay"
	"relay/http"
)

func (a *app) messageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "message",
		Short: "Inspect messages: list, show, tail, trace, conversation",
		Long: `Inspect the messages of all Mechas. The commands only read the database file,
with or without a server on it, and do not slow the server down.`,
		Example: `  relay message list --mecha planner^acme --state pending
  relay message trace msg_06fexd1h8k0000a2b3c4d5e6f7`,
	}
	cli.Group(cmd)
	cmd.AddCommand(a.messageList(), a.messageShow(), a.messageTail(), a.messageTrace(), a.messageConversation(),
		a.statsCommand())
	return cmd
}

func (a *app) messageShow() *cobra.Command {
	var payload, raw bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show one message: its record, or its payload",
		Long: `Show the record of one message, as in the API. --payload adds the payload; --raw
prints only the payload, byte for byte as it was sent.`,
		Example: `  relay message show msg_06fexd1h8k0000a2b3c4d5e6f7 --payload
  relay message show msg_06fexd1h8k0000a2b3c4d5e6f7 --raw | jq .`,
		Args: cli.Exactly(1, "one message id (relay message list)"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.read(func(in browse.Inspector) error {
				m, err := in.Message(relay.MessageID(args[0]))
				if err != nil {
					return err
				}
				if payload || raw {
					if m.Payload, err = in.Payload(m.ID); err != nil {
						return err
					}
				}
				if raw {
					_, err := a.Stdout.Write(m.Payload)
					return err
				}
				return a.printMessage(m)
			})
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "the payload in addition to the record")
	cmd.Flags().BoolVar(&raw, "raw", false, "only the payload's bytes")
	a.DBFlag(cmd)
	return cmd
}

// printMessage prints a message as in the API: on several lines, or with --json on one. The numbers in a
// payload keep their spelling.
func (a *app) printMessage(m *relay.Message) error {
	record := http.AppendRecord(nil, m)
	var b bytes.Buffer
	var err error
	if a.JSON {
		err = json.Compact(&b, record)
	} else {
		err = json.Indent(&b, record, "", "  ")
	}
	if err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = b.WriteTo(a.Stdout)
	return err
}

func (a *app) messageConversation() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "conversation ID",
		Short: "Show a conversation as a dialogue",
		Long: `Show a conversation from its beginning: who sent what to whom, and the outcome
of each message. --json prints the records with their payloads, one on each
line.`,
		Example: "  relay message conversation conv_06fexd1h8k0000a2b3c4d5e6f7",
		Args:    cli.Exactly(1, "one conversation id (relay message show ID)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usagef("--limit must be at least 1")
			}
			return a.read(func(in browse.Inspector) error {
				return a.printConversation(cmd.Context(), in,
					browse.ListQuery{Conversation: relay.ConversationID(args[0]), Oldest: true, Limit: limit})
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 1000, "maximum number of messages")
	a.DBFlag(cmd)
	return cmd
}

func (a *app) printConversation(ctx context.Context, in browse.Inspector, q browse.ListQuery) error {
	list, more, err := in.Messages(ctx, q)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("%s has no messages", relay.Visible(string(q.Conversation)))
	}
	gap := false
	for _, m := range list {
		m.Payload, err = in.Payload(m.ID)
		if relay.ErrorCode(err) == relay.MessageNotFound {
			continue // it was removed since the list was read
		}
		if err != nil {
			return err
		}
		if a.JSON {
			err = a.printMessage(m)
		} else {
			err = a.printTurn(m, gap)
		}
		if err != nil {
			return err
		}
		gap = true
	}
	if more {
		fmt.Fprintln(a.Stderr, "… and more: --limit prints them")
	}
	return nil
}

// printTurn prints one message of a dialogue.
func (a *app) printTurn(m *relay.Message, gap bool) error {
	var b strings.Builder
	if gap {
		b.WriteByte('\n')
	}
	state := m.State.String()
	status := ""
	if m.Ack != nil {
		status = m.Ack.Status
		state += " " + status
	}
	if m.Type != relay.DefaultType {
		state = m.Type + ", " + state
	}
	fmt.Fprintf(&b, "%s  %s → %s  %s  %s\n%s", display.At(m.CreatedAt), relay.Visible(string(m.From)),
		relay.Visible(string(m.To)), display.StateColour(m.State.String(), status).Paint(state).On(a.Stdout),
		show.Grey.Paint(string(m.ID)).On(a.Stdout), display.Payload(m.Payload))
	if m.Ack != nil && m.Ack.Detail != "" {
		fmt.Fprintf(&b, "    (%s: %s)\n", relay.Visible(status), relay.Visible(m.Ack.Detail))
	}
	_, err := io.WriteString(show.Under(a.Stdout), b.String())
	return err
}
