package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
	"relay/http"
)

func (a *app) messageTrace() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trace ID",
		Short: "Show what happened to one message, and when",
		Long: `Show what happened to one message, when, and by which key: accepted by the
relay, signed or not; written to a socket; claimed by a worker, and available
again; marked as delivered, acknowledged, answered or expired; and the relay's
notices that it is overdue or its conversation full. The last line says why
there is no answer, or where the answer is, as relay why does.

"pushed" means that the network took the message. The server records it with the
next commit, within half a second; a server that is killed may lose its last
records.`,
		Example: "  relay message trace msg_06fexd1h8k0000a2b3c4d5e6f7",
		Args:    cli.Exactly(1, "one message id (relay message list)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.read(func(in browse.Inspector) error {
				t, err := in.Trace(cmd.Context(), relay.MessageID(args[0]))
				if err != nil {
					return err
				}
				if a.JSON {
					return a.printTraceJSON(t)
				}
				return a.printTrace(t, time.Now())
			})
		},
	}
	a.DBFlag(cmd)
	return cmd
}

// stepJSON is a step as trace prints it with --json. AfterMS is the time since the
// previous step.
type stepJSON struct {
	At       string        `json:"at"`
	AfterMS  int64         `json:"after_ms"`
	Event    look.StepKind `json:"event"`
	KeyID    *string       `json:"key_id"`
	KeyLabel *string       `json:"key_label"`
	Status   *string       `json:"status"`
	ClientTS *string       `json:"client_ts"`
	Detail   *string       `json:"detail"`
	Worker   *string       `json:"worker"`
	Until    *string       `json:"until"`      // the end of the lease or deferral that began
	Answer   *string       `json:"message_id"` // of the answer
}

// tracedStep is a step of a trace, or the answer, which is a separate message.
type tracedStep struct {
	look.Step
	answer relay.MessageID
}

const stepAnswered look.StepKind = "answered"

// steps returns the steps of a trace, and the answer among them.
func steps(t *look.Trace) (all []tracedStep) {
	for _, s := range t.Steps {
		all = append(all, tracedStep{Step: s})
	}
	if answer := t.Situation.Answer; answer != nil {
		at, _ := slices.BinarySearchFunc(all, answer.CreatedAt, func(s tracedStep, at time.Time) int {
			if s.At.After(at) {
				return 1
			}
			return -1
		})
		all = slices.Insert(all, at, tracedStep{look.Step{At: answer.CreatedAt, What: stepAnswered}, answer.ID})
	}
	return all
}

func (a *app) printTraceJSON(t *look.Trace) error {
	var list []stepJSON
	last := t.Message.CreatedAt
	for _, s := range steps(t) {
		list = append(list, stepJSON{relay.FormatTime(s.At), s.At.Sub(last).Milliseconds(), s.What,
			show.Optional(string(s.Key)), show.Optional(s.KeyLabel), show.Optional(s.Status), show.Optional(s.ClientTS),
			show.Optional(s.Detail), show.Optional(s.Worker), show.OptionalTime(s.Until), show.Optional(string(s.answer))})
		last = s.At
	}
	return a.PrintJSON(struct {
		Message json.RawMessage `json:"message"`
		Retried bool            `json:"idempotency_key"`
		Steps   []stepJSON      `json:"steps"`
		Verdict verdictJSON     `json:"verdict"`
	}{http.AppendRecord(nil, t.Message), t.Retried, list, judge(t)})
}

func (a *app) printTrace(t *look.Trace, now time.Time) error {
	m := t.Message
	fmt.Fprintf(a.Stdout, "%s  %s → %s\n%s, %s, %d bytes, in %s\n\n", m.ID, m.From, m.To, relay.Visible(m.Type),
		relay.Visible(m.Priority), m.PayloadBytes, relay.Visible(string(m.Conversation)))
	w := show.NewTable(a.Stdout, "TIME", "AFTER", show.Heading("WHAT"), "KEY", "")
	last := time.Time{}
	for _, s := range steps(t) {
		after := ""
		if !last.IsZero() {
			after = "+" + show.Gap(s.At.Sub(last))
		}
		last = s.At
		what := stepName(s.Step)
		colour := display.StateColour(string(s.What), s.Status)
		w.Row(display.At(s.At), after, colour.Paint(what), keyName(s.Step), stepNote(t, s))
	}
	if err := w.End(); err != nil {
		return err
	}
	if m.State == relay.Queued || m.State == relay.Delivered {
		overdue := ""
		if m.Overdue {
			overdue = " and overdue"
		}
		fmt.Fprintf(a.Stdout, "\nstill %s%s, %s after the relay accepted it\n",
			m.State, overdue, show.Gap(now.Sub(m.CreatedAt)))
	}
	_, err := fmt.Fprintf(a.Stdout, "\n%s\n", relay.Visible(judge(t).Text))
	return err
}

// stepName names a step in a word or two. The recipient's status takes precedence, since it says more than
// ours.
func stepName(s look.Step) string {
	switch {
	case s.Status != "":
		return s.Status
	case s.What == look.StepFull:
		return "conversation full"
	}
	return string(s.What)
}

// keyName names the key of a step, with its label.
func keyName(s look.Step) string {
	if s.KeyLabel != "" {
		return string(s.Key) + " (" + s.KeyLabel + ")"
	}
	return show.Dash(string(s.Key))
}

func stepNote(t *look.Trace, s tracedStep) string {
	switch s.What {
	case look.StepAccepted:
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
	case look.StepPushed:
		return "to a socket of this key"
	case look.StepOverdue, look.StepFull:
		return told(t.Message, s.Step)
	case look.StepExpired:
		return "it expired at " + display.At(t.Message.ExpiresAt)
	case look.StepClaimed:
		return fmt.Sprintf("by the worker %s, until %s unless it renews",
			cmp.Or(s.Worker, "without a name"), display.At(s.Until))
	case look.StepReturned:
		return "its lease or deferral ended: it can be claimed again"
	case stepAnswered:
		return "by " + string(s.answer)
	}
	if s.What == look.StepProgress && !s.Until.IsZero() {
		return strings.TrimSpace("deferred until " + display.At(s.Until) + "  " + s.Detail)
	}
	return s.Detail
}

// told returns what the relay itself told the sender of a message in a step, or "".
func told(m *relay.Message, s look.Step) string {
	switch s.What {
	case look.StepOverdue:
		return "not acknowledged by " + display.At(m.AckBy) + "; the sender was told"
	case look.StepFull:
		return "the conversation holds all the messages that it may; its founder was told"
	}
	return ""
}
