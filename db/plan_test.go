package db

import (
	"strings"
	"testing"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/sending"
	"relay/db/relay"
)

// The cost of a page must not grow with the number of messages. Every range is read from
// its index, in order, and merged row by row. No query sorts.
func TestPagesAreReadInIndexOrder(t *testing.T) {
	d := openHere(t)
	for _, q := range []relay.HistoryQuery{
		{Mecha: 1}, {Mecha: 1, Direction: relay.In}, {Mecha: 1, Direction: relay.Out}, {Mecha: 1, State: relay.OnlyPending},
		{Mecha: 1, State: relay.OnlyAcknowledged, Direction: relay.In}, {Mecha: 1, Descending: true}, {Mecha: 1, Direction: relay.In, Descending: true},
	} {
		for _, conversation := range []int64{0, 5, -5} {
			for _, u := range []mailbox.Unindexed{{None: true}, {Wanted: mailbox.Wanted{Mecha: 1, Conversation: conversation}}} { // no message, or many, wait to be indexed
				text, args := messages.Range{To: 1 << 62, Limit: 100, Conversation: conversation, Unindexed: u}.Query(q)
				plan := explain(t, d, text, args)
				if conversation != 0 && !strings.Contains(plan, "SEARCH joined USING PRIMARY KEY (conversation=? AND position>? AND position<?)") {
					t.Errorf("%+v, conversation %d: its messages are not read as a range of the index:\n%s", q, conversation, plan)
				}
				if strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN message") || strings.Contains(plan, "SCAN m\n") {
					t.Errorf("%+v, conversation %d, %+v:\n%s", q, conversation, u, plan)
				}
				if !u.None && !strings.Contains(plan, "SEARCH m USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)") {
					t.Errorf("%+v: the messages that are not indexed are not read as a range of positions:\n%s", q, plan)
				}
			}
		}
	}
}

// A message to a crew reads no more of it than it may go to, however large it is.
func TestACrewIsReadInIndexOrder(t *testing.T) {
	d := openHere(t)
	for _, text := range []string{sending.ReadCrew, sending.CountCrew} {
		if plan := explain(t, d, text, []any{"crew", int64(1), int64(5)}); strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN mecha") ||
			!strings.Contains(plan, "USING INDEX mecha_crew") {
			t.Errorf("%s\n%s", text, plan)
		}
	}
}

// The views of a console read the messages, leases and keys of one Mecha by their indexes.
func TestAMechaIsReadByItsIndexes(t *testing.T) {
	d := openHere(t)
	plan := func(text string, args []any, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		p := explain(t, d, text, args)
		if strings.Contains(p, "SCAN message") || strings.Contains(p, "SCAN m\n") || strings.Contains(p, "SCAN attempt") || strings.Contains(p, "SCAN k\n") || strings.Contains(p, "SCAN r\n") {
			t.Errorf("%s\n%s", text, p)
		}
		return p
	}
	err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
		for _, of := range []relay.Direction{relay.In, relay.Out} {
			text, args, err := messages.NewestOf(x, 1, of, 5, 100)
			if p := plan(text, args, err); strings.Contains(p, "TEMP B-TREE FOR ORDER") {
				t.Error(p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// So must the cost of a search for a reply, and of a look at answers.
func TestAReplyIsSearchedInIndexOrder(t *testing.T) {
	d := openHere(t)
	for _, c := range []struct {
		mailbox.Wanted
		plan string
	}{
		{mailbox.Wanted{Question: 5}, "SEARCH reply USING PRIMARY KEY (question=? AND position>? AND position<?)"},
		{mailbox.Wanted{Conversation: 5}, "SEARCH joined USING PRIMARY KEY (conversation=? AND position>? AND position<?)"},
	} {
		for _, u := range []mailbox.Unindexed{{Wanted: c.Wanted, None: true}, {Wanted: c.Wanted}} {
			positions, args := u.RepliesInOrder(5, 100)
			if c.Conversation != 0 {
				positions, args = u.JoinedInOrder(6, 1<<62, 100)
			}
			plan := explain(t, d, messages.AllAt(positions), args)
			if !strings.Contains(plan, c.plan) || strings.Contains(plan, "TEMP B-TREE") || strings.Contains(plan, "SCAN m") {
				t.Errorf("%+v:\n%s", u, plan)
			}
		}
	}
}

func explain(t *testing.T, d *DB, text string, args []any) string {
	t.Helper()
	var b strings.Builder
	err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
		text, err := messages.WithFailed(x, text)
		if err != nil {
			return err
		}
		r := x.C.Query("EXPLAIN QUERY PLAN "+text, args...)
		for r.Next() {
			b.WriteString(r.Text(3) + "\n")
		}
		return r.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
