package look

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/progress"
	"relay/db/internal/retention"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// pushPage is how many rows of `push` are read in one view of the file.
const pushPage = 5000

// PushRows bounds how many rows of `push` a server reads for one trace. Later pushes are
// left out.
const PushRows = 4 * pushPage

// HidePushes leaves out what reveals when the recipient was connected.
func HidePushes(t *Trace) {
	t.Steps = slices.DeleteFunc(t.Steps, func(s Step) bool { return s.What == StepPushed })
	t.Situation.PushedAt, t.Situation.Sockets = time.Time{}, 0
}

// ReadTrace returns the life of a message for a reader with a Right, but not when the recipient
// was last seen. It reads up to rows rows for pushes; looked is how many rows it read in all.
func ReadTrace(
	ctx context.Context, v engine.Viewer, id relay.MessageID, may messages.Right, rows int,
) (t *Trace, looked int, err error) {
	t, err = engine.Get(ctx, v.Scan, func(x *engine.Rx) (*Trace, error) {
		m, err := messages.For(x, id, may)
		if err != nil {
			return nil, err
		}
		return TraceOf(x, m)
	})
	if err == nil {
		looked, err = Complete(ctx, v, rows, t)
	}
	return t, looked, err
}

// Complete adds to traces, the first of which is of the oldest message, the parts that take
// more than one transaction: the pushes, for which it reads up to rows rows, and the answer.
func Complete(ctx context.Context, v engine.Viewer, rows int, traces ...*Trace) (looked int, err error) {
	if len(traces) == 0 {
		return 0, nil
	}
	for from := traces[0].Message.Position; from != 0 && looked < rows; looked += pushPage {
		err := v.Scan(ctx, func(x *engine.Rx) (err error) {
			from, err = tracePushes(x, from, traces...)
			return err
		})
		if err != nil {
			return looked, err
		}
	}
	for _, t := range traces {
		order(t)
		found, err := messages.ReadReply(ctx, v, relay.ReplyQuery{Question: t.Message})
		if looked += found.Looked; err != nil {
			return looked, err
		}
		t.Situation.Answer = found.Reply
	}
	return looked, nil
}

// order puts the steps in the order of time, and notes in the situation when the message was
// pushed to the recipient, and when the recipient had it.
func order(t *Trace) {
	for _, s := range t.Steps {
		at := &t.Situation.HadAt
		switch s.What {
		case StepPushed:
			t.Situation.Sockets++
			at = &t.Situation.PushedAt
		case StepClaimed, StepDelivered:
		default:
			continue
		}
		if s.At.After(*at) {
			*at = s.At
		}
	}
	slices.SortStableFunc(t.Steps, func(a, b Step) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank(a.What), rank(b.What)))
	})
}

// rank orders the steps of one millisecond: these come before all others.
func rank(k StepKind) uint {
	return uint(slices.Index([]StepKind{StepAccepted, StepReturned, StepPushed}, k))
}

// TraceOf reads the part of a message's life that one transaction can read: its receipts, and
// the situation. Error: MessageNotFound, if the message was removed meanwhile.
func TraceOf(x *engine.Rx, m *relay.Message) (*Trace, error) {
	t := &Trace{Message: m}
	s := &t.Situation
	s.Message = m
	if err := traceReceipts(x, t); err != nil {
		return nil, err
	}
	alive, err := x.C.Number("SELECT removed_at IS NULL AND EXISTS (SELECT 1 FROM mecha_key k WHERE "+LiveKey+
		") FROM mecha m WHERE m.id = ?2", x.Now.UnixMilli(), int64(m.Recipient))
	if s.RecipientGone = alive == 0; err != nil || !m.State.Pending() {
		return t, err
	}
	if err := progress.TellAttempt(x, s); err != nil {
		return nil, err
	}
	s.Ahead, err = mailbox.CountAhead(x, m.Recipient, m.Position)
	return t, err
}

// LiveKey is the condition that a key k of a Mecha m is live. Its argument ?1 is now, in Unix ms.
const LiveKey = "k.mecha = m.id AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > ?1)"

// traceReceipts adds the step of the acceptance, and one for each receipt.
func traceReceipts(x *engine.Rx, t *Trace) error {
	var key, receipt int64
	_, err := x.C.Row(func(r *sqlite.Rows) { key, t.Retried, receipt = r.Int(0), !r.Null(1), r.Int(2) },
		"SELECT sender_key, idempotency_key, receipt FROM message WHERE position = ?", int64(t.Message.Position))
	if err != nil {
		return err
	}
	accepted := Step{At: t.Message.CreatedAt, What: StepAccepted}
	if err := NameKey(x, &accepted, key); err != nil {
		return err
	}
	t.Steps = append(t.Steps, accepted)
	for receipt != 0 {
		s, previous, err := ReadStep(x, receipt)
		if err != nil {
			return err
		}
		if previous >= receipt { // a chain leads back in time; any other might be endless
			return retention.ErrChain(relay.Position(receipt), relay.Position(previous))
		}
		t.Steps = append(t.Steps, s)
		receipt = previous
	}
	slices.Reverse(t.Steps[1:])
	return nil
}

// ReadStep reads the receipt at a position as a Step, and the position of the previous receipt.
func ReadStep(x *engine.Rx, position int64) (s Step, previous int64, err error) {
	var state relay.State
	var status, key int64
	var notice relay.Notice
	ok, err := x.C.Row(func(r *sqlite.Rows) {
		previous, state, status, key, notice = r.Int(0), relay.State(r.Int(1)), r.Int(2), r.Int(5), relay.Notice(r.Int(6))
		s.ClientTS, s.Detail, s.Until = r.Text(3), r.Text(4), relay.UnixMilli(r.Int(7))
	}, "SELECT previous, state, status, client_ts, detail, key, notice, until FROM receipt WHERE position = ?", position)
	if err == nil && !ok {
		err = fmt.Errorf("%w: there is no receipt at position %d", sqlite.ErrDamaged, position)
	}
	if err != nil {
		return s, 0, err
	}
	s.At = relay.Position(position).Time()
	if s.Status, err = engine.Word(x, status); err != nil {
		return s, 0, err
	}
	s.What = stepKind(state, s.Status, notice)
	if s.What == StepClaimed {
		s.Worker, s.Detail = s.Detail, ""
	}
	return s, previous, NameKey(x, &s, key)
}

func stepKind(state relay.State, status string, notice relay.Notice) StepKind {
	switch {
	case notice == relay.NoticeOverdue:
		return StepOverdue
	case notice == relay.NoticeFull:
		return StepFull
	case notice == relay.NoticeClaimed:
		return StepClaimed
	case notice == relay.NoticeReturned:
		return StepReturned
	case state == relay.Expired:
		return StepExpired
	case status == "":
		return StepDelivered
	case relay.ReportsProgress(status):
		return StepProgress
	}
	return StepAcknowledged
}

// NameKey sets the key of a step.
func NameKey(x *engine.Rx, s *Step, number int64) error {
	_, err := x.C.Row(func(r *sqlite.Rows) { s.Key, s.KeyLabel = relay.KeyID(r.Text(0)), r.Text(1) },
		"SELECT public_id, label FROM mecha_key WHERE id = ?", number)
	return err
}

// tracePushes adds the pushes of one page of rows after a position to the traces of their
// messages. It returns where the next page begins, or 0.
func tracePushes(x *engine.Rx, after relay.Position, traces ...*Trace) (next relay.Position, err error) {
	found := make([][]progress.Pushed, len(traces))
	r := x.C.Query("SELECT position, notes FROM push WHERE position > ? ORDER BY position LIMIT ?",
		int64(after), int64(pushPage))
	next, rows, err := progress.ReadPushes(r, 0, func(p progress.Pushed) {
		for i, t := range traces {
			if p.Message == t.Message.Position {
				found[i] = append(found[i], p)
			}
		}
	})
	if err != nil {
		return 0, err
	}
	for i, t := range traces {
		for _, p := range found[i] {
			s := Step{At: relay.UnixMilli(p.At), What: StepPushed}
			if err := NameKey(x, &s, p.Key); err != nil {
				return 0, err
			}
			t.Steps = append(t.Steps, s)
		}
	}
	if rows < pushPage {
		next = 0
	}
	return next, nil
}
