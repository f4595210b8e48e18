package inspect

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
)

func (a *app) whyCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "why ID|ADDRESS",
		Short: "Explain why there is no answer, to a message or from a Mecha",
		Long: `Explain in a sentence why there is no answer to a message, or where the answer
is. For an address, describe the state of that Mecha, and list its pending
messages with the reasons, the oldest first.

The command reads the database file, with or without a server on it. The file
does not say who is connected now, and knows to about a minute when a Mecha was
last seen. GET /api/v1/messages/ID/trace asks the server, which knows both.`,
		Example: `  relay why msg_06fexd1h8k0000a2b3c4d5e6f7
  relay why planner^acme`,
		Args: cli.Exactly(1, "one message id (relay message list) or one address"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return cli.Usagef("--limit must be at least 1")
			}
			return a.read(func(in browse.Inspector) error {
				if !strings.Contains(args[0], "^") {
					return a.whyMessage(cmd.Context(), in, relay.MessageID(args[0]))
				}
				address, err := relay.ParseAddress(args[0])
				if err != nil {
					return err
				}
				return a.whyMecha(cmd.Context(), in, address, limit)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 10, "for an address: maximum number of messages")
	a.DBFlag(cmd)
	return cmd
}

// verdictJSON is a verdict as in the API.
type verdictJSON struct {
	Code  relay.VerdictCode `json:"code"`
	Text  string            `json:"text"`
	Since *string           `json:"since"`
}

func judge(t *look.Trace) verdictJSON {
	v := relay.Decide(&t.Situation)
	return verdictJSON{v.Code, v.Text, show.OptionalTime(v.Since)}
}

func (a *app) whyMessage(ctx context.Context, in browse.Inspector, id relay.MessageID) error {
	t, err := in.Trace(ctx, id)
	if err != nil {
		return err
	}
	v := judge(t)
	if a.JSON {
		return a.PrintJSON(struct {
			MessageID relay.MessageID `json:"message_id"`
			Verdict   verdictJSON     `json:"verdict"`
		}{id, v})
	}
	_, err = fmt.Fprintln(a.Stdout, relay.Visible(v.Text))
	return err
}

func (a *app) whyMecha(ctx context.Context, in browse.Inspector, address relay.Address, limit int) error {
	w, err := in.Waiting(ctx, address, limit)
	if err != nil {
		return err
	}
	health := health(w, time.Now())
	if a.JSON {
		return a.printWaiting(w, health)
	}
	if _, err := fmt.Fprintln(a.Stdout, health); err != nil || len(w.Oldest) == 0 {
		return err
	}
	fmt.Fprintln(a.Stdout)
	table := show.NewTable(a.Stdout, "MESSAGE", "FROM", "WAITS FOR", "WHY")
	for _, t := range w.Oldest {
		table.Row(t.Message.ID, t.Message.From, show.Gap(time.Since(t.Message.CreatedAt)), judge(t).Text)
	}
	if err := table.End(); err != nil {
		return err
	}
	if more := w.Pending - len(w.Oldest); more > 0 {
		fmt.Fprintf(a.Stderr, "… and %d more: --limit names them\n", more)
	}
	return nil
}

func (a *app) printWaiting(w *browse.Waiting, health string) error {
	type message struct {
		MessageID relay.MessageID `json:"message_id"`
		From      relay.Address   `json:"from"`
		CreatedAt string          `json:"created_at"`
		Verdict   verdictJSON     `json:"verdict"`
	}
	messages := []message{}
	for _, t := range w.Oldest {
		messages = append(messages, message{t.Message.ID, t.Message.From, relay.FormatTime(t.Message.CreatedAt), judge(t)})
	}
	return a.PrintJSON(struct {
		MechaID  relay.Address `json:"mecha_id"`
		Health   string        `json:"health"`
		Removed  bool          `json:"removed"`
		LiveKeys int           `json:"live_keys"`
		LastSeen *string       `json:"last_seen"`
		Pending  int           `json:"pending"`
		Held     int           `json:"held"`
		Deferred int           `json:"deferred"`
		Overdue  int           `json:"overdue"`
		Messages []message     `json:"messages"`
	}{w.Mecha, health, w.Removed, w.LiveKeys, show.OptionalTime(w.LastSeen), w.Pending, w.Held, w.Deferred,
		w.Overdue, messages})
}

// health describes in one sentence the state of a Mecha and the messages that wait for it.
func health(w *browse.Waiting, now time.Time) string {
	var how string
	switch {
	case w.Removed:
		how = "was removed, so nobody can receive for it"
	case w.LiveKeys == 0:
		how = "has no valid key, so it cannot receive"
	case w.LastSeen.IsZero():
		how = "has never made a request"
	default:
		how = fmt.Sprintf("made its last request %s ago, at %s", show.Gap(now.Sub(w.LastSeen)), show.TimeOrDash(w.LastSeen))
	}
	return fmt.Sprintf("%s %s; %s.", w.Mecha, how, backlog(w, now))
}

// backlog says how many messages wait, and in which states.
func backlog(w *browse.Waiting, now time.Time) string {
	if w.Pending == 0 {
		return "nothing waits for it"
	}
	s := "1 message waits for it"
	if w.Pending > 1 {
		s = fmt.Sprintf("%d messages wait for it", w.Pending)
	}
	if len(w.Oldest) > 0 {
		s += ", the oldest for " + show.Gap(now.Sub(w.Oldest[0].Message.CreatedAt))
	}
	var of []string
	for _, part := range []struct {
		n    int
		what string
	}{{w.Held, "held by a worker"}, {w.Deferred, "deferred"}, {w.Overdue, "overdue"}} {
		if part.n > 0 {
			of = append(of, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if len(of) > 0 {
		s += " (" + strings.Join(of, ", ") + ")"
	}
	return s
}
