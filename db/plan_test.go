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
	if p := plan(mechaLeases, []any{int64(1), int64(10), int64(10)}, nil); !strings.Contains(p, "attempt_recipient (recipient=?)") {
		t.Error(p)
	}
	if p := plan(lookedKeys+"k.mecha = ?", []any{int64(1), int64(1), int64(1)}, nil); !strings.Contains(p, "mecha_key_mecha (mecha=?)") {
		t.Error(p)
	}
}

// What a console shows of all Mechas, and of the newest events, is read by ranges of an index, so
// that it costs what it shows. Nothing is sorted but what was just read.
func TestTheConsoleReadsRanges(t *testing.T) {
	d := openHere(t)
	number := int64(1)
	for _, q := range []struct {
		name, text string
		args       []any
		want       []string // the plan has them
	}{
		{"waiting", mechasWaiting, []any{number, number}, []string{"SEARCH mecha USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH received USING PRIMARY KEY (mecha=? AND open=?)"}},
		{"unindexed", unindexedWaiting, []any{number, number, number, number}, []string{"SEARCH message USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH a USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"count", countWaiting, []any{number, number, number, number}, []string{"SEARCH received USING PRIMARY KEY (mecha=? AND open=? AND position<?)"}},
		{"oldest", oldestWaiting, []any{number, number, number, number}, []string{"SEARCH received USING PRIMARY KEY (mecha=? AND open=? AND position<?)", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"attempts", countAttempts, []any{number, number, number}, []string{"SEARCH attempt USING INDEX attempt_recipient (recipient=?)"}},
		{"health", mechaHealth, []any{number, number}, []string{"SEARCH k USING INDEX mecha_key_mecha (mecha=?)", "SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"sent", spanSent, []any{number, number}, []string{"SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"settled", spanSettled, []any{number, number}, []string{"SEARCH receipt USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"next message", nextMessage, []any{number, number}, []string{"SEARCH message USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"next receipt", nextReceipt, []any{number, number}, []string{"SEARCH receipt USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"}},
		{"dead", deadSince, []any{number, number, number}, []string{"SEARCH receipt USING INTEGER PRIMARY KEY (rowid>?)"}},
		{"newest", newestPosition, []any{number}, nil},
		{"pushes", pushesAfter, []any{number}, []string{"SEARCH push USING INTEGER PRIMARY KEY (rowid>?)"}},
		{"newest pushes", lastPushes, []any{number}, nil},
		{"mechas", pageOfMechas, []any{"", "[]", number, number}, []string{"SCAN mecha USING INDEX sqlite_autoindex_mecha_1"}},
		{"newest send", sentItself, []any{number}, []string{"SEARCH m USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH k USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH key_use USING INTEGER PRIMARY KEY (rowid=?)"}},
		// Of the keys, all are looked at, once.
		{"count of keys", countKeys, []any{number, number, "", ""}, []string{"SCAN k", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"keys", pageOfKeys(hasKeyText), []any{number, number, "", "", number, number, number}, []string{"SCAN k", "SEARCH m USING INTEGER PRIMARY KEY (rowid=?)", "SEARCH u USING INTEGER PRIMARY KEY (rowid=?)"}},
		{"keys of a Mecha", pageOfKeys("k.mecha = ?"), []any{number, number, number, number, number, number}, []string{"SEARCH k USING INDEX mecha_key_mecha (mecha=?)"}},
		{"first message", firstMessage, nil, []string{"SEARCH message"}},
		{"last message", lastMessage, nil, []string{"SEARCH message"}},
		{"last receipt", lastReceipt, nil, []string{"SEARCH receipt"}},
		{"last act", lastAct, nil, []string{"SCAN audit\n"}}, // by its key, from the end: nothing is sorted
		{"not indexed", countUnindexed, []any{number, number}, []string{"SEARCH m USING INTEGER PRIMARY KEY (rowid>?)", "SEARCH f USING PRIMARY KEY (mecha=? AND open=? AND position=?)"}},
		{"profiles", profilesAfter(""), []any{"", number}, []string{"SEARCH m USING INDEX sqlite_autoindex_mecha_1 (address>?)"}},
	} {
		plan := explain(t, d, q.text, q.args)
		for _, want := range q.want {
			if !strings.Contains(plan, want) {
				t.Errorf("%s: the plan lacks %q:\n%s", q.name, want, plan)
			}
		}
		for _, line := range strings.Split(plan, "\n") {
			ranged := strings.Contains(q.text, "ORDER BY position DESC LIMIT") // the newest rows of a table, from its end
			if !ranged && (strings.HasPrefix(line, "SCAN message") || strings.HasPrefix(line, "SCAN receipt") || strings.HasPrefix(line, "SCAN push") || strings.HasPrefix(line, "SCAN attempt")) {
				t.Errorf("%s reads a whole table:\n%s", q.name, plan)
			}
			if strings.Contains(line, "TEMP B-TREE") && q.text == lastAct {
				t.Errorf("%s sorts:\n%s", q.name, plan)
			}
		}
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
