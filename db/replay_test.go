package db

import (
	"bufio"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
	"relay/db/scratch"
)

// The same writes make the same store again: in another process, by another clock, one
// by one instead of in common transactions, with other pushes and searches, with
// restarts at other times.

// replayEnv makes the test program that other process. Its value has the log, the
// database, how far the clock is off, and whether the process serves.
const replayEnv = "RELAY_TEST_REPLAY"

// shared are the tables that only writes change. The last five are indexes.
var shared = []string{"mecha", "profile", "kept_nonce", "mecha_key", "word", "message", "payload", "receipt", "progress", "conversation_limit", "attempt", "participant", "dormant", "clock_ahead", "audit", "counting", "learner", "learned", "received", "sent", "joined", "reply", "word_hash"}

// record makes a store append every write to a log, with its outcome.
func record(t *testing.T, d *DB, log io.Writer) {
	commit := d.w.Transact
	d.w.Transact = func(jobs []engine.QueuedJob) error {
		err := commit(jobs)
		for _, o := range jobs {
			w := o.Job.Shared()
			if w == nil || err != nil {
				continue
			}
			for _, part := range [][]byte{relay.AppendWrite(nil, w), []byte(outcomeOf(o.Job, o.Err))} {
				if _, err := log.Write(append(binary.AppendUvarint(nil, uint64(len(part))), part...)); err != nil {
					t.Error(err)
				}
			}
		}
		return err
	}
}

// openRecorded opens a file and records its writes in log. Mailboxes are small, so that
// some get full.
func openRecorded(t *testing.T, path string, log io.Writer) *DB {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Path: path, Schema: string(schema), Create: true, Serve: true, MaxPending: 12, MaxAttempts: 4, ConversationLimit: 40, MaxBroadcast: 5, ClockSkew: time.Minute, By: relay.Actor{UID: 1000, User: "maria", Command: "serve"}}
	d, err := open(withLearning(o, 2*time.Hour), func(d *DB) { record(t, d, log) })
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// mixedRun uses a store in every way, by several players at once, with restarts.
func mixedRun(t *testing.T, path string, log io.Writer) (secret []byte) {
	for life := range 3 {
		d := openRecorded(t, path, log)
		var all sync.WaitGroup
		(&player{T: t, d: d, random: rand.New(rand.NewPCG(uint64(life), 9))}).progress() // before others remove its message
		(&player{T: t, d: d, random: rand.New(rand.NewPCG(uint64(life), 11))}).teach(life)
		for n := range 4 {
			all.Go(func() {
				p := &player{T: t, d: d, random: rand.New(rand.NewPCG(uint64(life), uint64(n)))}
				for i := range 5 {
					k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: relay.Address(fmt.Sprintf("m%d^crew%d", i, n%2))})
					if err != nil {
						t.Error(err)
						return
					}
					p.keys = append(p.keys, k.Key)
				}
				p.play(scratch.Amount(t, 40, 150))
				if n == 0 {
					p.fine(d.Note(relay.ActCompacted, "in the middle of it all"))
					p.fine(d.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: relay.Address(fmt.Sprintf("m%d^crew0", life))}))
				}
			})
		}
		all.Wait()
		// The clock was ahead: the next process continues after this Mecha, which has no other row.
		if _, err := d.Issue(&relay.IssueKey{At: time.Now().Add(time.Second), Address: relay.Address(fmt.Sprintf("late%d^crew", life))}); err != nil {
			t.Error(err)
		}
		err := d.w.As(0).Point(t.Context(), func(x *engine.Rx) error {
			_, err := x.C.Row(func(r *sqlite.Rows) { secret = append([]byte(nil), r.Blob(0)...) }, "SELECT value FROM setting WHERE name = 'secret'")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if _, said, r := checked(t, path); r.Faults > 0 {
			t.Errorf("after life %d:\n%s", life, said)
		}
	}
	return secret
}

func TestTheSameWritesMakeTheSameStore(t *testing.T) {
	t.Parallel()
	dir := scratch.Dir(t)
	path, logPath := filepath.Join(dir, "relay.db"), filepath.Join(dir, "writes")
	log, err := os.Create(logPath)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	secret := mixedRun(t, path, log)
	want := contents(t, path)
	if lessonsTeach != nil && !slices.ContainsFunc(want, func(row string) bool { return strings.HasPrefix(row, "learned ") }) {
		t.Error("the run has taught nothing")
	}
	memory := scratch.Memory(t)
	for _, other := range []string{"+25h serve", "-25h alone"} { // more than an Idempotency-Key lives
		copied := filepath.Join(memory, other[:4]+".db")
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %x %s", replayEnv, logPath, copied, secret, other))
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", other, err, said)
		}
		for i, row := range contents(t, copied) {
			if i >= len(want) || row != want[i] {
				t.Fatalf("%s: row %d of %d is\n%s\nwant\n%s", other, i, len(want), row, append(want, "nothing")[min(i, len(want))])
			}
		}
		if n := len(contents(t, copied)); n != len(want) {
			t.Fatalf("%s: %d rows, want %d", other, n, len(want))
		}
	}
	info, err := log.Stat()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d rows, %d bytes of writes", len(want), info.Size())
}

// contents reads all rows of the shared tables of a file.
func contents(t *testing.T, path string) []string {
	t.Helper()
	return contentsOf(t, path, shared)
}

// contentsOf reads all rows of some tables of a file, and the shared settings.
func contentsOf(t *testing.T, path string, tables []string) (all []string) {
	t.Helper()
	opened, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	for _, q := range append([]string{"setting WHERE name NOT IN ('indexed_upto', 'words_indexed_upto', 'start', 'clock')"}, tables...) {
		table, _, _ := strings.Cut(q, " ")
		rows, err := opened.Query("SELECT * FROM " + q + " ORDER BY 1, 2")
		if err != nil {
			t.Fatal(err)
		}
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		row, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			to[i] = &row[i]
		}
		for rows.Next() {
			if err := rows.Scan(to...); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s %#v", table, row)) // not %q: a large number is not a character
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return append(all, waitingIn(t, path)...)
}

// waitingIn returns the exchanges in a file that wait to be counted. Each copy has packed them in its own way.
func waitingIn(t *testing.T, path string) (all []string) {
	t.Helper()
	opened, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	rows, err := opened.Query("SELECT position, ended FROM exchange ORDER BY position")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var row int64
		var text string
		err := rows.Scan(&row, &text)
		exchanges, broken := exchangesOf(relay.Position(row), text)
		if err != nil || broken != nil {
			t.Fatal(err, broken)
		}
		all = append(all, exchanges...)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// replay is the other process.
func replay(what string) error {
	var log, path, off, how string
	var secret []byte
	if _, err := fmt.Sscanf(what, "%s %s %x %s %s", &log, &path, &secret, &off, &how); err != nil {
		return err
	}
	by, err := time.ParseDuration(off)
	if err != nil {
		return err
	}
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		return err
	}
	o := Options{Path: path, Schema: string(schema), Create: true, Now: func() time.Time { return time.Now().Add(by) }}
	d, err := Open(o) // makes the file
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	c, err := sqlite.Open(path, sqlite.Writing)
	if err != nil {
		return err
	}
	if err := errors.Join(c.Exec("UPDATE setting SET value = ? WHERE name = 'secret'", secret), c.Close()); err != nil {
		return err
	}
	f, err := os.Open(log)
	if err != nil {
		return err
	}
	defer f.Close()
	// The limits of the machine that accepted the message count.
	if o.Serve = how == "serve"; o.Serve {
		o.MaxPending = 1
	} else {
		o.MinFreeDisk = math.MaxInt64 // nothing is ever free enough
	}
	if d, err = openSilent(o); err != nil {
		return err
	}
	writes := bufio.NewReader(f)
	for n := 0; ; n++ {
		form, err := part(writes)
		if err == io.EOF {
			return d.Close()
		}
		want, err2 := part(writes)
		w, err3 := relay.ReadWrite(form)
		if err := errors.Join(err, err2, err3); err != nil {
			return err
		}
		if got := d.applied(w); got != string(want) {
			return fmt.Errorf("write %d, %+v: %s; it was %s", n, w, got, want)
		}
		if n%97 == 50 { // this process has other local writes than the recorded one
			d.Pushed(1, time.Now(), []relay.Position{1, 2, 3})
			d.SaveSearch(&relay.SaveSearch{At: time.Now().Add(time.Hour), ID: relay.NewSearchID(), Mecha: 1, Answer: []byte("{}")}, func(error) {})
		}
		if n%500 == 250 {
			if err := d.Close(); err != nil {
				return err
			}
			if d, err = openSilent(o); err != nil {
				return err
			}
		}
	}
}

// openSilent opens a store that does not expire messages, because the log has the writes
// that did so.
func openSilent(o Options) (*DB, error) {
	return open(o, func(d *DB) {
		if o.Serve {
			d.w.Tasks = slices.DeleteFunc(d.w.Tasks, func(b engine.Background) bool { return b == d.Progress || b == d.lessons })
			d.w.Tasks = append(d.w.Tasks, lessonsLocal(d)...)
		}
	})
}

// applied applies a write unchanged and returns its outcome as the log has it.
func (d *DB) applied(w relay.Write) string {
	outcome, err := d.Apply(w)
	if err != nil {
		return "refused: " + string(relay.ErrorCode(err))
	}
	return printed(outcome)
}

func part(r *bufio.Reader) ([]byte, error) {
	n, err := binary.ReadUvarint(r)
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	_, err = io.ReadFull(r, b)
	return b, err
}
