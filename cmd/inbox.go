package cmd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"relay/db/relay"
	"relay/http/client"
)

func (a *app) inboxCommand() *cobra.Command {
	var c clientFlags
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
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 1 {
				return usagef("--limit must be at least 1")
			}
			relay, err := c.client()
			if err != nil {
				return err
			}
			return a.inbox(cmd.Context(), relay, limit, count)
		},
	}
	c.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 20, "how many messages at most")
	cmd.Flags().BoolVar(&count, "count", false, "only count them")
	return cmd
}

func (a *app) inbox(ctx context.Context, c *client.Client, limit int, count bool) error {
	own, err := c.Address(ctx)
	if err != nil {
		return err
	}
	var answer json.RawMessage
	if err := c.Call(ctx, "GET", "/api/v1/mecha/"+string(own)+"/inbox", nil, &answer); err != nil {
		return err
	}
	var in struct {
		Pending    int
		ByPriority map[string]int `json:"by_priority"`
	}
	if err := json.Unmarshal(answer, &in); err != nil {
		return err
	}
	switch {
	case count && a.json:
		_, err := fmt.Fprintf(a.stdout, "%s\n", answer)
		return err
	case count:
		_, err := fmt.Fprintln(a.stdout, in.Pending)
		return err
	}
	shown, err := a.printPending(ctx, c, own, limit)
	if err != nil {
		return err
	}
	var counts []string
	for _, p := range slices.Sorted(maps.Keys(in.ByPriority)) {
		counts = append(counts, fmt.Sprintf("%d %s", in.ByPriority[p], relay.Visible(p)))
	}
	fmt.Fprintf(a.stderr, "%s\n", strings.TrimSuffix(fmt.Sprintf("%d pending: %s", in.Pending, strings.Join(counts, ", ")), ": "))
	if more := in.Pending - shown; more > 0 && shown == limit {
		fmt.Fprintf(a.stderr, "… and %d more (--limit)\n", more)
	}
	return nil
}

const inboxPage = 200

// printPending prints at most limit messages, a page at a time, and returns how
// many it has printed.
func (a *app) printPending(ctx context.Context, c *client.Client, own relay.Address, limit int) (shown int, err error) {
	var w *table
	q := url.Values{"state": {"pending"}, "direction": {"in"}, "include": {"payload"}}
	for {
		q.Set("limit", strconv.Itoa(min(limit-shown, inboxPage)))
		var p struct {
			Messages []json.RawMessage
			More     bool   `json:"has_more"`
			Next     string `json:"next_cursor"`
		}
		if err := c.Call(ctx, "GET", "/api/v1/mecha/"+string(own)+"/messages?"+q.Encode(), nil, &p); err != nil {
			return shown, err
		}
		for _, record := range p.Messages {
			if w == nil && !a.json {
				w = a.tableOf("MESSAGE", "FROM", "TYPE", "PRIORITY", heading("STATE"), "SENT", "PAYLOAD")
			}
			shown++
			if err := a.printRecord(w, record); err != nil {
				return shown, err
			}
		}
		if !p.More || shown == limit {
			return shown, w.end()
		}
		q.Set("since_message_id", p.Next)
	}
}

func (a *app) printRecord(w *table, record json.RawMessage) error {
	if a.json {
		return a.printJSON(record)
	}
	var e envelope
	if err := json.Unmarshal(record, &e); err != nil {
		return err
	}
	w.row(e.MessageID, e.From, e.MessageType, e.Priority, paint{stateColour(e.State, ""), e.State}, e.CreatedAt, oneLine(string(e.payload()), 60))
	return nil
}
