package inspect

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
)

func (a *app) messageTail() *cobra.Command {
	var mecha string
	var last int
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print new messages and changes of state as they are committed",
		Long: `Print events in commit order, as they are committed, until the command is
interrupted: new messages, changes of state, and the relay's notices that a
message is overdue or a conversation full. A line has the time, the event, the
message, its sender and its recipient.`,
		Example: `  relay message tail
  relay message tail --mecha planner^acme --last 10 --json`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var only relay.Address
			if mecha != "" {
				var err error
				if only, err = relay.ParseAddress(mecha); err != nil {
					return cli.Plain(err)
				}
			}
			if last < 0 {
				return cli.Usagef("--last must not be negative")
			}
			return a.read(func(in browse.Inspector) error { return a.tail(cmd.Context(), in, only, last) })
		},
	}
	cmd.Flags().StringVar(&mecha, "mecha", "", "only messages that this `address` sends or receives")
	cmd.Flags().IntVar(&last, "last", 0, "number of the latest messages to begin with")
	a.DBFlag(cmd)
	return cmd
}

const (
	tailPage  = 500
	tailEvery = 100 * time.Millisecond
)

// tail prints events until ctx ends.
func (a *app) tail(ctx context.Context, in browse.Inspector, only relay.Address, last int) error {
	at, err := in.Latest()
	if err != nil {
		return err
	}
	if err := a.printLast(ctx, in, only, last); err != nil {
		return err
	}
	tick := time.NewTicker(tailEvery)
	defer tick.Stop()
	for {
		changed, err := in.Changed()
		for err == nil && changed {
			var events []browse.Event
			if events, err = in.Events(at, tailPage); err != nil {
				break
			}
			for _, e := range events {
				at = e.Position
				if only != "" && e.Message.From != only && e.Message.To != only {
					continue
				}
				if err := a.printEvent(e); err != nil {
					return err
				}
			}
			changed = len(events) == tailPage
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// printLast prints the latest n messages as accepted.
func (a *app) printLast(ctx context.Context, in browse.Inspector, only relay.Address, n int) error {
	if n == 0 {
		return nil
	}
	list, _, err := in.Messages(ctx, browse.ListQuery{Mecha: only, Limit: n})
	if err != nil {
		return err
	}
	for i := len(list) - 1; i >= 0; i-- {
		e := browse.Event{Message: list[i], Step: look.Step{At: list[i].CreatedAt, What: look.StepAccepted}}
		if err := a.printEvent(e); err != nil {
			return err
		}
	}
	return nil
}

// eventJSON is an event as tail prints it with --json.
type eventJSON struct {
	At             string               `json:"at"`
	Event          look.StepKind        `json:"event"`
	MessageID      relay.MessageID      `json:"message_id"`
	ConversationID relay.ConversationID `json:"conversation_id"`
	From           relay.Address        `json:"from"`
	To             relay.Address        `json:"to"`
	Type           string               `json:"message_type"`
	Priority       string               `json:"priority"`
	Status         *string              `json:"status"`
	Detail         *string              `json:"detail"`
	KeyID          *string              `json:"key_id"`
	Bytes          int                  `json:"payload_bytes"`
}

func (a *app) printEvent(e browse.Event) error {
	m, s := e.Message, e.Step
	if a.JSON {
		return a.PrintJSON(eventJSON{relay.FormatTime(s.At), s.What, m.ID, m.Conversation, m.From, m.To, m.Type, m.Priority,
			show.Optional(s.Status), show.Optional(s.Detail), show.Optional(string(s.Key)), m.PayloadBytes})
	}
	line := fmt.Sprintf("%s  %s → %s", m.ID, m.From, m.To)
	if s.What == look.StepAccepted {
		line += fmt.Sprintf("  %s, %d bytes", m.Type, m.PayloadBytes)
	}
	if note := cmp.Or(s.Detail, told(m, s)); note != "" {
		line += "  " + note
	}
	event := display.StateColour(string(s.What), s.Status).Paint(fmt.Sprintf("%-12s", stepName(s))).On(a.Stdout)
	_, err := fmt.Fprintf(show.Under(a.Stdout), "%s  %s  %s\n", display.At(s.At), event, relay.Visible(line))
	return err
}
