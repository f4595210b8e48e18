package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/remote"
	"relay/cmd/internal/show"
	"relay/db/relay"
	"relay/http/client"
)

func (a *app) inboxCommand() *cobra.Command {
	var c remote.Flags
	var limit int
	var count bool
	cmd := &cobra.Command{
		Use:   "inbox",
		Short: "Show the pending messages: not acknowledged, not expired",
		Long: `Show the messages for the Mecha of RELAY_KEY that are pending, oldest first.
This changes nothing. With --json, each line is a message's record with its
payload.`,
		Example: `  relay inbox
  relay inbox --count
  relay inbox --json --limit 1 | jq -r .message_id`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return cli.Usagef("--limit must be at least 1")
			}
			api, err := c.Client()
			if err != nil {
				return err
			}
			return a.inbox(cmd.Context(), api, limit, count)
		},
	}
	c.Add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number of messages")
	cmd.Flags().BoolVar(&count, "count", false, "count the messages and print none")
	return cmd
}

func (a *app) inbox(ctx context.Context, c *client.Client, limit int, count bool) error {
	in, err := c.Pending(ctx)
	switch {
	case err != nil:
		return err
	case count && a.JSON:
		_, err := fmt.Fprintf(a.Stdout, "%s\n", in.JSON)
		return err
	case count:
		_, err := fmt.Fprintln(a.Stdout, in.Pending)
		return err
	}
	shown, err := a.printPending(ctx, c, limit)
	if err != nil {
		return err
	}
	var counts []string
	for _, p := range slices.Sorted(maps.Keys(in.ByPriority)) {
		counts = append(counts, fmt.Sprintf("%d %s", in.ByPriority[p], relay.Visible(p)))
	}
	fmt.Fprintf(a.Stderr, "%s\n",
		strings.TrimSuffix(fmt.Sprintf("%d pending: %s", in.Pending, strings.Join(counts, ", ")), ": "))
	if more := in.Pending - shown; more > 0 && shown == limit {
		fmt.Fprintf(a.Stderr, "… and %d more (--limit)\n", more)
	}
	return nil
}

// printPending prints at most limit messages, and returns how many it has printed.
func (a *app) printPending(ctx context.Context, c *client.Client, limit int) (shown int, err error) {
	var w *show.Table
	for m, err := range c.Inbox(ctx, limit) {
		if err != nil {
			return shown, err
		}
		if w == nil && !a.JSON {
			w = show.NewTable(a.Stdout, "MESSAGE", "FROM", "TYPE", "PRIORITY", show.Heading("STATE"), "SENT", "PAYLOAD")
		}
		shown++
		if err := a.printRecord(w, m); err != nil {
			return shown, err
		}
	}
	return shown, w.End()
}

func (a *app) printRecord(w *show.Table, m *client.Message) error {
	if a.JSON {
		return a.PrintJSON(m.JSON)
	}
	w.Row(m.ID, m.Sender, m.Type, m.Priority, display.StateColour(m.State, "").Paint(m.State), relay.FormatTime(m.SentAt),
		oneLine(string(m.Payload), 60))
	return nil
}
