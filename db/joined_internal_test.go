package db

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/relay"
	"relay/db/scratch"
)

// wantFound compares what a view finds by conversation, and by question, with all messages of the view.
func wantFound(t *testing.T, x *engine.Rx) {
	t.Helper()
	positions := func(text string, args ...any) (list []relay.Position) {
		r := x.C.Query(text, args...)
		for r.Next() {
			list = append(list, relay.Position(r.Int(0)))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		return list
	}
	for _, column := range []string{"conversation", "in_reply_to"} {
		for _, of := range positions("SELECT DISTINCT " + column + " FROM message WHERE " + column + " IS NOT NULL") {
			u, err := mailbox.FindJoined(x, int64(of), 0, relay.MaxPosition)
			text, args := u.JoinedInOrder(0, relay.MaxPosition, 1000)
			if column == "in_reply_to" {
				u, err = mailbox.FindReplies(x, of, of)
				text, args = u.RepliesInOrder(of, 1000)
			}
			if err != nil {
				t.Error(err)
				return
			}
			want := positions("SELECT position FROM message WHERE "+column+" = ? ORDER BY position", int64(of))
			if got := positions(text, args...); !slices.Equal(got, want) {
				t.Errorf("%s %d: found %v, want %v", column, of, got, want)
			}
		}
	}
}

// arrival is a room that looks at each commit before the others know of it.
type arrival struct {
	engine.Quiet
	look func()
}

func (a arrival) AfterCommit(*engine.Tx) { a.look() }

// A read that sees a commit before the writer has noted it finds the new messages.
func TestAReadBetweenACommitAndItsNote(t *testing.T) {
	t.Parallel()
	looked := 0
	d := openHere(t, func(o *Options) { o.Serve = true })
	if err := d.wait(localWrite(func(t2 *engine.Tx) error {
		t2.Store.Rooms = append([]engine.Room{arrival{look: func() {
			looked++
			if err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error { wantFound(t, x); return nil }); err != nil {
				t.Error(err)
			}
		}}}, t2.Store.Rooms...)
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	k := mustIssue(t, d, "a^b")
	var last relay.MessageID
	for n := range 3 * mailbox.SegmentLength {
		m := message(k, "a^b", `{}`)
		if n%2 == 0 {
			m.Conversation = relay.ConversationID(fmt.Sprint("label-", n%3))
		} else {
			m.InReplyTo = last
		}
		sent, err := d.Send(m)
		if err != nil {
			t.Fatal(err)
		}
		last = sent.ID
	}
	if looked < 3*mailbox.SegmentLength {
		t.Errorf("%d looks", looked)
	}
}

// localWrite is a local write that calls a function.
type localWrite func(*engine.Tx) error

func (c localWrite) Apply(t *engine.Tx) error { return c(t) }
func (localWrite) Size() int                  { return 0 }

// A conversation continues by a message of the transaction that removes the others.
func TestAConversationGoesOnByAMessageOfTheSameTransaction(t *testing.T) {
	t.Parallel()
	for i, label := range []relay.ConversationID{"", "a-label"} {
		for between := range 3 * mailbox.SegmentLength {
			if !scratch.Long(t) && between%2 != i {
				continue // in the usual form one of two ways
			}
			d := openHere(t, func(o *Options) { o.Serve = true })
			k := mustIssue(t, d, "a^b")
			m := message(k, "a^b", `{}`)
			m.Conversation = label
			first, err := d.Send(m)
			if err != nil {
				t.Fatal(err)
			}
			for range between {
				if _, err := d.Send(message(k, "a^b", `{}`)); err != nil {
					t.Fatal(err)
				}
			}
			p, err := d.Cursor(first.ID)
			if err != nil {
				t.Fatal(err)
			}
			b := block{make(chan struct{}), make(chan struct{})}
			ended := make(chan error, 3)
			d.w.Submit(b, 0, func(err error) { ended <- err })
			<-b.entered
			next := message(k, "a^b", `{}`)
			next.Conversation = first.Conversation
			d.SendThen(next, func(_ relay.Sent, err error) { ended <- err })
			prune := &relay.PruneMessages{At: time.Now().Add(time.Hour), After: p - 1, Before: p + 1, Limit: 1}
			engine.Then(d.w, prune, func(out relay.Pruned, err error) {
				if out.Messages != 1 {
					t.Errorf("%d messages were removed", out.Messages)
				}
				ended <- err
			})
			close(b.release)
			for range 3 {
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
			}
			if _, said, r := checked(t, d.Path()); r.Faults > 0 {
				t.Errorf("%s after %d messages:\n%s", first.Conversation, between, said)
			}
			err = d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
				wantFound(t, x)
				dormant, err := x.C.Row(nil, "SELECT 1 FROM dormant")
				if dormant {
					t.Errorf("%s is dormant after %d messages", first.Conversation, between)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
