package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/look/browse"
	"relay/db/relay"
)

// listFlags are the flags of message list, and the query that they form.
type listFlags struct {
	browse.ListQuery
	mecha, peer, conversation, before, after string
	state, direction, since, until           string
	dead, overdue                            bool
}

func (a *app) messageList() *cobra.Command {
	var l listFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages, newest first",
		Long: `List the messages that pass all filters, newest first. A time is in RFC 3339, a
date in UTC, or an age: 2026-11-21T08:00:00Z, 2026-11-21, 90m, 7d. For the next
page, add --before and the id in the last line.`,
		Example: `  relay message list --mecha planner^acme --state pending
  relay message list --dead --since 1d
  relay message list --since 1h --text invoice --json | jq -r .message_id`,
		Args: cli.Exactly(0, "no arguments; its filters are flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.read(time.Now()); err != nil {
				return err
			}
			return a.read(func(in browse.Inspector) error { return a.printMessages(cmd.Context(), in, l.ListQuery) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&l.mecha, "mecha", "", "only messages that this `address` sent or received")
	f.StringVar(&l.peer, "peer", "", "only messages with this `address` on the other side")
	f.StringVar(&l.direction, "direction", "all", "only in this `direction`, seen from --mecha: in, out or all")
	f.StringVar(&l.conversation, "conversation", "", "only in the conversation with this `id`")
	f.StringVar(&l.state, "state", "", "only in this `state`: "+strings.Join(stateWords, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(stateWords, cobra.ShellCompDirectiveNoFileComp))
	f.BoolVar(&l.dead, "dead", false,
		"only expired, failed or rejected messages; short for --state dead")
	f.BoolVar(&l.overdue, "overdue", false,
		"only messages not acknowledged by their ack_by; short for --state overdue")
	f.StringVar(&l.Status, "status", "", "only with this `status` in the latest ack, as in failed")
	f.StringVar(&l.Type, "type", "", "only of this message `type`")
	f.StringVar(&l.Priority, "priority", "", "only of this `priority`")
	f.StringVar(&l.since, "since", "", "only from this `time` on")
	f.StringVar(&l.until, "until", "", "only before this `time`")
	f.StringVar(&l.Text, "text", "", "only with this `text` in the payload, in any case")
	f.StringVar(&l.before, "before", "", "only messages before the one with this `id`")
	f.StringVar(&l.after, "after", "", "only messages after the one with this `id`")
	f.BoolVar(&l.Oldest, "oldest", false, "oldest first")
	f.IntVar(&l.Limit, "limit", 50, "messages on a page")
	a.DBFlag(cmd)
	return cmd
}

var stateWords = []string{"pending", "queued", "delivered", "acknowledged", "expired", "dead", "overdue"}

// read forms the query from the flags.
func (l *listFlags) read(now time.Time) (err error) {
	for _, address := range []struct {
		text string
		to   *relay.Address
	}{{l.mecha, &l.Mecha}, {l.peer, &l.Peer}} {
		if address.text == "" {
			continue
		}
		if *address.to, err = relay.ParseAddress(address.text); err != nil {
			return cli.Plain(err)
		}
	}
	if err := l.shortForms(); err != nil {
		return err
	}
	if l.State = relay.StateFilter(slices.Index(stateWords, l.state) + 1); l.state != "" && l.State == relay.AnyState {
		return cli.Usagef("--state must be one of %s, not %q", strings.Join(stateWords, ", "), l.state)
	}
	switch l.direction {
	case "in":
		l.Direction = relay.In
	case "out":
		l.Direction = relay.Out
	case "all":
	default:
		return cli.Usagef("--direction must be in, out or all, not %q", l.direction)
	}
	if l.Direction != relay.Both && l.Mecha == "" {
		return cli.Usagef("--direction requires --mecha, from whose side it is seen")
	}
	if l.Since, err = parseWhen("since", l.since, now); err != nil {
		return err
	}
	if l.Until, err = parseWhen("until", l.until, now); err != nil {
		return err
	}
	if l.Limit < 1 {
		return cli.Usagef("--limit must be at least 1")
	}
	l.Conversation, l.Before, l.After = relay.ConversationID(l.conversation), relay.MessageID(l.before),
		relay.MessageID(l.after)
	return nil
}

// shortForms reads --dead and --overdue.
func (l *listFlags) shortForms() error {
	for word, set := range map[string]bool{"dead": l.dead, "overdue": l.overdue} {
		switch {
		case !set:
		case l.state != "" && l.state != word:
			return cli.Usagef("only one of --state, --dead and --overdue")
		default:
			l.state = word
		}
	}
	return nil
}

// parseWhen reads a time: RFC 3339, a date in UTC, or an age.
func parseWhen(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if t, err := relay.ParseTime(text); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, nil
	}
	if ago, err := cli.ParseDuration(text); err == nil {
		return now.Add(-ago), nil
	}
	return time.Time{}, cli.Usagef("--%s: %q is not a time, as in 2026-11-21T08:00:00Z, 2026-11-21, 90m or 7d", flag, text)
}

func (a *app) printMessages(ctx context.Context, in browse.Inspector, q browse.ListQuery) error {
	list, more, err := in.Messages(ctx, q)
	if err != nil {
		return err
	}
	if a.JSON {
		for _, m := range list {
			if err := a.printMessage(m); err != nil {
				return err
			}
		}
	} else if err := a.messageTable(list); err != nil {
		return err
	}
	switch {
	case len(list) == 0:
		fmt.Fprintln(a.Stderr, "no message passes the filters")
	case more && q.Oldest:
		fmt.Fprintf(a.Stderr, "… more: --after %s\n", list[len(list)-1].ID)
	case more:
		fmt.Fprintf(a.Stderr, "… more: --before %s\n", list[len(list)-1].ID)
	}
	return nil
}

func (a *app) messageTable(list []*relay.Message) error {
	if len(list) == 0 {
		return nil
	}
	w := show.NewTable(a.Stdout, "CREATED", "MESSAGE", "FROM", "TO", "TYPE", "PRIORITY", show.Heading("STATE"), "BYTES")
	for _, m := range list {
		state, status := m.State.String(), ""
		if m.Ack != nil {
			status = m.Ack.Status
			if state += " " + status; m.State == relay.Delivered {
				state = status // the recipient's status says more than "delivered"
			}
		}
		if m.Overdue {
			state += ", overdue"
		}
		w.Row(display.At(m.CreatedAt), m.ID, m.From, m.To, m.Type, m.Priority,
			display.StateColour(m.State.String(), status).Paint(state), m.PayloadBytes)
	}
	return w.End()
}
