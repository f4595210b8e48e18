package db

import (
	"cmp"
	"context"
	"slices"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// A Step is something that happened to a message.
type Step struct {
	At       time.Time
	What     StepKind
	Key      relay.KeyID // that did it, or opened the socket; "": the clock
	KeyLabel string      // "" if it has none
	Status   string      // of an acknowledgement
	ClientTS string      // of an acknowledgement, as the client sent it
	Detail   string      // of an acknowledgement
}

// StepKind is a word for what happened.
type StepKind string

// The kinds of steps. A message is pushed once for every socket it was written
// to, and again when a client resumes before it.
const (
	StepAccepted     StepKind = "accepted"
	StepPushed       StepKind = "pushed"
	StepDelivered    StepKind = "delivered"
	StepProgress     StepKind = "progress" // an acknowledgement that only reports
	StepAcknowledged StepKind = "acknowledged"
	StepExpired      StepKind = "expired"
)

// Trace is the life of one message.
type Trace struct {
	Message *relay.Message
	Retried bool // it came with an Idempotency-Key
	Steps   []Step
}

// pushPage is how many rows of pushes are looked at in one view of the file.
const pushPage = 5000

// Trace tells the life of a message, in order of time. Pushes are noted with
// the commit that follows them, so the latest may not be in the file yet; the
// context ends the search for them. Errors: MessageNotFound.
func (i *Inspector) Trace(ctx context.Context, id relay.MessageID) (*Trace, error) {
	t := &Trace{}
	err := i.view(func(x *rx) (err error) {
		if t.Message, err = x.messageByID(id); err != nil {
			return err
		}
		return x.traceReceipts(t)
	})
	if err != nil {
		return nil, err
	}
	for from := t.Message.Position; from != 0; {
		err := i.viewGently(ctx, func(x *rx) error {
			from, err = x.tracePushes(t, from)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(t.Steps, func(a, b Step) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(rank(a.What), rank(b.What)))
	})
	return t, nil
}

// rank orders what happened in one millisecond.
func rank(k StepKind) int {
	switch k {
	case StepAccepted:
		return 0
	case StepPushed:
		return 1
	}
	return 2
}

// traceReceipts adds the acceptance and all that the chain of receipts has.
func (x *rx) traceReceipts(t *Trace) error {
	var key, receipt int64
	_, err := x.c.Row(func(r *sqlite.Rows) { key, t.Retried, receipt = r.Int(0), !r.Null(1), r.Int(2) },
		"SELECT sender_key, idempotency_key, receipt FROM message WHERE position = ?", int64(t.Message.Position))
	if err != nil {
		return err
	}
	accepted := Step{At: t.Message.CreatedAt, What: StepAccepted}
	if err := x.nameKey(&accepted, key); err != nil {
		return err
	}
	t.Steps = append(t.Steps, accepted)
	for receipt != 0 {
		s, previous, err := x.step(receipt)
		if err != nil {
			return err
		}
		t.Steps = append(t.Steps, s)
		receipt = previous
	}
	slices.Reverse(t.Steps[1:])
	return nil
}

// step reads a receipt.
func (x *rx) step(position int64) (s Step, previous int64, err error) {
	var state relay.State
	var word, key int64
	_, err = x.c.Row(func(r *sqlite.Rows) {
		previous, state, word, key = r.Int(0), relay.State(r.Int(1)), r.Int(2), r.Int(5)
		s.ClientTS, s.Detail = r.Text(3), r.Text(4)
	}, "SELECT previous, state, status, client_ts, detail, key FROM receipt WHERE position = ?", position)
	if err != nil {
		return s, 0, err
	}
	s.At = relay.Position(position).Time()
	if s.Status, err = x.word(word); err != nil {
		return s, 0, err
	}
	s.What = stepKind(state, s.Status)
	return s, previous, x.nameKey(&s, key)
}

func stepKind(state relay.State, status string) StepKind {
	switch {
	case state == relay.Expired:
		return StepExpired
	case status == "":
		return StepDelivered
	case relay.ReportsProgress(status):
		return StepProgress
	}
	return StepAcknowledged
}

// nameKey says which key a step is of.
func (x *rx) nameKey(s *Step, number int64) error {
	_, err := x.c.Row(func(r *sqlite.Rows) { s.Key, s.KeyLabel = relay.KeyID(r.Text(0)), r.Text(1) },
		"SELECT public_id, label FROM mecha_key WHERE id = ?", number)
	return err
}

// tracePushes adds the pushes noted after a position, and says where to go on: 0, nowhere.
func (x *rx) tracePushes(t *Trace, after relay.Position) (next relay.Position, err error) {
	var found []pushed
	r := x.c.Query("SELECT position, notes FROM push WHERE position > ? ORDER BY position LIMIT ?", int64(after), int64(pushPage))
	n := 0
	for ; r.Next(); n++ {
		next = relay.Position(r.Int(0))
		err := unpackPushes(r.Blob(1), next, func(p pushed) {
			if p.message == t.Message.Position {
				found = append(found, p)
			}
		})
		if err != nil {
			r.Close()
			return 0, err
		}
	}
	if err := r.Close(); err != nil {
		return 0, err
	}
	for _, p := range found {
		s := Step{At: relay.UnixMilli(p.at), What: StepPushed}
		if err := x.nameKey(&s, p.key); err != nil {
			return 0, err
		}
		t.Steps = append(t.Steps, s)
	}
	if n < pushPage {
		next = 0
	}
	return next, nil
}
