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
		Short: "Show what happened to one message, and when",
		Long: `Show what happened to one message, when, and by which key: when the relay
accepted it, and whether it was signed; when it was written to a socket; when
it was marked as delivered, acknowledged, or expired; when the relay told the
sender that it is overdue, or its conversation full; and how much time passed
between.

"pushed" means that the network took the message. The server notes it with the
next commit, within half a second; a server that is killed may lose its last
notes.`,
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

// stepJSON is a step as trace prints it with --json. AfterMS is the time since the
// previous step.
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
	fmt.Fprintf(a.stdout, "%s  %s → %s\n%s, %s, %d bytes, in %s\n\n", m.ID, m.From, m.To, relay.Visible(m.Type), relay.Visible(m.Priority), m.PayloadBytes, relay.Visible(string(m.Conversation)))
	w := a.tableOf("TIME", "AFTER", heading("WHAT"), "KEY", "")
	last := time.Time{}
	for _, s := range t.Steps {
		after := ""
		if !last.IsZero() {
			after = "+" + gap(s.At.Sub(last))
		}
		last = s.At
		what := stepName(s)
		w.row(atTime(s.At), after, paint{stateColour(string(s.What), s.Status), what}, keyName(s), stepNote(t, s))
	}
	if err := w.end(); err != nil {
		return err
	}
	if m.State == relay.Queued || m.State == relay.Delivered {
		overdue := ""
		if m.Overdue {
			overdue = " and overdue"
		}
		fmt.Fprintf(a.stdout, "\nstill %s%s, %s after the relay accepted it\n", m.State, overdue, gap(now.Sub(m.CreatedAt)))
	}
	return nil
}

// stepName is a step in a word or two: the recipient's own word says more than ours.
func stepName(s db.Step) string {
	switch {
	case s.Status != "":
		return s.Status
	case s.What == db.StepFull:
		return "conversation full"
	}
	return string(s.What)
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
		if t.Message.InReplyTo != "" {
			note += ", in reply to " + string(t.Message.InReplyTo)
		}
		return note
	case db.StepPushed:
		return "to a socket of this key"
	case db.StepOverdue, db.StepFull:
		return told(t.Message, s)
	case db.StepExpired:
		return "its time ended at " + atTime(t.Message.ExpiresAt)
	}
	return s.Detail
}

// told says what the relay itself told the sender of a message by a step; "" if it told
// nothing.
func told(m *relay.Message, s db.Step) string {
	switch s.What {
	case db.StepOverdue:
		return "not acknowledged by " + atTime(m.AckBy) + "; the sender was told"
	case db.StepFull:
		return "the conversation holds all the messages that it may; its founder was told"
	}
	return ""
}
