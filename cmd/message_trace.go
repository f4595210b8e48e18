package cmd

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/db"
	"relay/db/relay"
	"relay/http"
)

func (a *app) messageTrace() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "Tell the life of one message, with times",
		Long: `Tell the life of one message: when it was accepted, signed or not and by which
key; when it was written to which socket; when it was marked as delivered and
acknowledged, by which key; when it expired; and what time passed between.
"Pushed" means that the network took it. It is noted with the next commit,
within half a second, and a server that is killed may lose its last notes.`,
		Example: "  relay message trace msg_06fexd1h8k0000a2b3c4d5e6f7",
		Args:    exactly(1, "one message id (relay message list)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withInspector(func(in *db.Inspector) error {
				t, err := in.Trace(cmd.Context(), relay.MessageID(args[0]))
				if err != nil {
					return err
				}
				if a.json {
					return a.printTraceJSON(t)
				}
				return a.printTrace(t, time.Now())
			})
		},
	}
	a.dbFlag(cmd)
	return cmd
}

// stepJSON is a step as trace prints it with --json. AfterMS is the time since the step before.
type stepJSON struct {
	At       string      `json:"at"`
	AfterMS  int64       `json:"after_ms"`
	Event    db.StepKind `json:"event"`
	KeyID    *string     `json:"key_id"`
	KeyLabel *string     `json:"key_label"`
	Status   *string     `json:"status"`
	ClientTS *string     `json:"client_ts"`
	Detail   *string     `json:"detail"`
}

func (a *app) printTraceJSON(t *db.Trace) error {
	steps := make([]stepJSON, len(t.Steps))
	for i, s := range t.Steps {
		steps[i] = stepJSON{relay.FormatTime(s.At), 0, s.What, optional(string(s.Key)), optional(s.KeyLabel),
			optional(s.Status), optional(s.ClientTS), optional(s.Detail)}
		if i > 0 {
			steps[i].AfterMS = s.At.Sub(t.Steps[i-1].At).Milliseconds()
		}
	}
	return a.printJSON(struct {
		Message json.RawMessage `json:"message"`
		Retried bool            `json:"idempotency_key"`
		Steps   []stepJSON      `json:"steps"`
	}{http.AppendRecord(nil, t.Message), t.Retried, steps})
}

func (a *app) printTrace(t *db.Trace, now time.Time) error {
	m := t.Message
	fmt.Fprintf(a.stdout, "%s  %s → %s\n%s, %s, %d bytes, in %s\n\n", m.ID, m.From, m.To, harmless(m.Type), harmless(m.Priority), m.PayloadBytes, harmless(string(m.Conversation)))
	w := a.tableOf("TIME", "AFTER", heading("WHAT"), "KEY", "")
	last := time.Time{}
	for _, s := range t.Steps {
		after := ""
		if !last.IsZero() {
			after = "+" + gap(s.At.Sub(last))
		}
		last = s.At
		what := string(s.What)
		if s.Status != "" {
			what = s.Status
		}
		w.row(atTime(s.At), after, paint{stateColour(string(s.What), s.Status), what}, keyName(s), stepNote(t, s))
	}
	if err := w.end(); err != nil {
		return err
	}
	if m.State == relay.Queued || m.State == relay.Delivered {
		fmt.Fprintf(a.stdout, "\nstill %s, %s after it was accepted\n", m.State, gap(now.Sub(m.CreatedAt)))
	}
	return nil
}

// keyName names the key of a step, with its label.
func keyName(s db.Step) string {
	if s.KeyLabel != "" {
		return string(s.Key) + " (" + s.KeyLabel + ")"
	}
	return dash(string(s.Key))
}

func stepNote(t *db.Trace, s db.Step) string {
	switch s.What {
	case db.StepAccepted:
		note := "not signed"
		if t.Message.Signed {
			note = "signed"
		}
		if t.Retried {
			note += ", with an Idempotency-Key"
		}
		return note
	case db.StepPushed:
		return "to a socket of this key"
	case db.StepExpired:
		return "its time was over at " + atTime(t.Message.ExpiresAt)
	}
	return s.Detail
}

// gap writes a length of time for people: 3ms, 1.25s, 2m5s, 3h12m, 4d2h.
func gap(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
