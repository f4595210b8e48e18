package db

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/mailbox"
	"relay/db/internal/messages"
	"relay/db/internal/names"
	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/scratch"
)

// The tests have segments of a few messages, so that all of them meet messages that
// are indexed late, and pieces of a few rows, so that pages and counts have many. Their
// caches of names hold a dozen. Benchmarks keep the real values.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // processors are scarcer than memory
	flag.Parse()
	if what := os.Getenv(replayEnv); what != "" {
		if err := replay(what); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if flag.Lookup("test.bench").Value.String() == "" {
		mailbox.SegmentLength, names.WordSegment, names.MinRows, mailbox.ScanRatio = 5, 7, 2, 1
		messages.PieceRows, mailbox.InboxRows = 3, 3
		names.CacheBytes = 2 << 10
		mailbox.CleanAtOnce, mailbox.CleanPiece = 6, 2
	}
	// Parallel tests wait for the disk, so more of them than there are cores may run.
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", "24")
	}
	os.Exit(m.Run())
}

// openHere opens a store for tests that look inside.
func openHere(t testing.TB, options ...func(*Options)) *DB {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Path: filepath.Join(scratch.Dir(t), "relay.db"), Schema: string(schema), Create: true, ClockSkew: 5 * time.Minute}
	for _, f := range options {
		f(&o)
	}
	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// These properties of a fresh file cannot be changed later without rewriting all of it.
func TestAFreshFile(t *testing.T) {
	d := openHere(t)
	for pragma, want := range map[string]string{"page_size": "4096", "auto_vacuum": "2", "journal_mode": "wal", "synchronous": "2"} {
		c, err := sqlite.Open(d.w.Path, sqlite.Writing)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Row(func(r *sqlite.Rows) {
			if got := fmt.Sprint(r.Value(0)); got != want {
				t.Errorf("%s is %s, want %s", pragma, got, want)
			}
		}, "PRAGMA "+pragma)
		if err != nil {
			t.Error(err)
		}
		c.Close()
	}
}

// A read sees one state of the file, even if the messages that were not indexed in that
// state are indexed, and dropped from the write-behind index, before the read asks for
// them.
func TestAReadThatBeganLongAgo(t *testing.T) {
	t.Parallel()
	d := openHere(t, func(o *Options) { o.Serve = true })
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "a^x"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "b^x"}); err != nil {
		t.Fatal(err)
	}
	var last relay.MessageID
	send := func(to relay.Address, n int) {
		for range n {
			m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: to, Payload: []byte("{}"), Nonce: 1, Conversation: "a-label"}
			if last != "" && to == "a^x" {
				m.Conversation, m.InReplyTo = "", last
			}
			if err := m.Validate(); err != nil {
				t.Fatal(err)
			}
			sent, err := d.Send(m)
			if err != nil {
				t.Fatal(err)
			}
			last = sent.ID
		}
	}
	for _, meanwhile := range []int{0, 1, mailbox.SegmentLength, 2 * mailbox.SegmentLength, 10 * mailbox.SegmentLength} {
		send("a^x", mailbox.SegmentLength)
		send("b^x", 1) // b^x gets no later message
		send("a^x", 2)
		err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
			x.C.Until = time.Time{} // a busy machine may take long
			all, err := x.C.Row(nil, "SELECT 1 FROM message")
			if !all || err != nil {
				t.Fatal(all, err)
			}
			want := map[relay.MechaNumber]int{}
			r := x.C.Query("SELECT recipient, count(*) FROM message GROUP BY recipient")
			for r.Next() {
				want[relay.MechaNumber(r.Int(0))] = int(r.Int(1))
			}
			if err := r.Close(); err != nil {
				return err
			}
			send("a^x", meanwhile)
			here := func(_ context.Context, f func(*engine.Rx) error) error { return f(x) }
			for id, n := range want {
				p, err := messages.ReadPage(t.Context(), here, relay.HistoryQuery{Mecha: id, Direction: relay.In, Limit: 1000})
				if err != nil || len(p.Messages) != n {
					t.Errorf("%d sent meanwhile: Mecha %d has %d messages, want %d; %v", meanwhile, id, len(p.Messages), n, err)
				}
			}
			wantFound(t, x)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// So it is with the words that were not indexed in that state. Those that came later have no number.
func TestAReadThatBeganLongAgoFindsItsWords(t *testing.T) {
	t.Parallel()
	d := openHere(t, func(o *Options) { o.Serve = true })
	k := mustIssue(t, d, "a^b")
	words := 0
	send := func(n int) {
		for range n {
			m := message(k, "a^b", `{}`)
			m.Conversation = relay.ConversationID(fmt.Sprint("label-", words))
			if _, err := d.Send(m); err != nil {
				t.Fatal(err)
			}
			words++
		}
	}
	for _, meanwhile := range []int{0, 1, names.WordSegment, 2 * names.WordSegment, 10 * names.WordSegment} {
		send(names.WordSegment + 2)
		had := words
		err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
			x.C.Until = time.Time{}                                                                                         // a busy machine may take long
			if n, err := x.C.Number("SELECT count(*) FROM word WHERE text LIKE 'label-%'"); n != int64(had) || err != nil { // it sees the state of the first query
				t.Errorf("%d words, want %d; %v", n, had, err)
			}
			send(meanwhile)
			for i := range words {
				id, err := x.FindWord(x.C, fmt.Sprint("label-", i))
				if (id != 0) != (i < had) || err != nil {
					return fmt.Errorf("%d words meanwhile: word %d of %d has the number %d; %v", meanwhile, i, had, id, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// A read that would never end is cut off, before its first row and between rows.
func TestAReadHasABound(t *testing.T) {
	d := openHere(t)
	for name, left := range map[string]time.Duration{"over before it begins": -time.Second, "over in the middle": 10 * time.Millisecond} {
		err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
			x.C.Until = time.Now().Add(left)
			r := x.C.Query("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
			for r.Next() {
			}
			return r.Close()
		})
		if relay.ErrorCode(err) != relay.Overloaded {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error { _, err := messages.Latest(x); return err }); err != nil {
			t.Errorf("the next read: %v", err)
		}
	}
}

// printed returns the outcome of a write as a log of the tests has it.
func printed(outcome any) string {
	switch outcome := outcome.(type) {
	case nil:
		return "done"
	case *relay.Key:
		return fmt.Sprintf("%+v", *outcome)
	case []relay.ClaimedMessage:
		text := ""
		for _, m := range outcome {
			text += fmt.Sprint(m.ID, " ", m.Attempt, " until ", m.LeaseUntil, "; ")
		}
		return text
	}
	return fmt.Sprintf("%+v", outcome)
}

// outcomeOf returns the outcome of a write as the log of a replay has it.
func outcomeOf(j engine.Job, err error) string {
	if err != nil {
		return "refused: " + string(relay.ErrorCode(err))
	}
	switch j := j.(type) {
	case *engine.WriteJob[*relay.SendMessage, relay.Sent]:
		return fmt.Sprintf("%+v", j.Outcome)
	case *engine.WriteJob[*relay.Acknowledge, relay.AckOutcome]:
		return fmt.Sprintf("%+v", j.Outcome)
	case *engine.WriteJob[*relay.MarkDelivered, relay.DeliveredOutcome]:
		return fmt.Sprintf("%+v", j.Outcome)
	case *engine.WriteJob[*relay.IssueKey, *relay.Key]:
		return fmt.Sprintf("%+v", *j.Outcome)
	case *engine.WriteJob[*relay.Act, any]:
		return printed(j.Outcome)
	case *engine.WriteJob[*relay.ClaimMessages, []relay.ClaimedMessage]:
		return printed(j.Outcome)
	case *engine.WriteJob[*relay.PruneMessages, relay.Pruned]:
		return fmt.Sprintf("%+v", j.Outcome)
	case *engine.WriteJob[*relay.PruneUnused, relay.PrunedUnused]:
		return fmt.Sprintf("%+v", j.Outcome)
	}
	return "done"
}
