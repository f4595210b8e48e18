package cmd_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/dbtest"
	"relay/db/file"
	"relay/db/look"
	"relay/db/relay"
	"relay/db/scratch"
)

// The power goes. A real run is recorded: its writes to its files and its answers to
// its clients, in one order. From the record, the test rebuilds the disks that a
// power cut could have left at any moment, and opens each as a server does. Every
// message that a client had been told of, in a 201 or on a socket, must be there, in
// the order of the whole run and without a gap, and every acknowledgement too.
//
// The same cuts with a disk that lies about the log's fsync must lose some: else
// this test would see nothing.
func TestCrashThePowerGoes(t *testing.T) {
	notShort(t)
	tool(t, "strace")
	t.Parallel()
	n := rounds(t, 10, 749)
	run := recordRun(t, binary)
	states, lost := run.cut(t, n, false)
	t.Logf("%d messages, %d file operations, %d states rebuilt: %d lost an acknowledged message", len(run.order), len(run.ops), states, lost)
	if lost > 0 {
		t.Errorf("%d of %d cuts lost what was acknowledged", lost, states)
	}
	states, lost = run.cut(t, max(n/5, 8), true)
	t.Logf("control: a disk that lies about the log's fsync: %d of %d states lost an acknowledged message", lost, states)
	if lost == 0 {
		t.Error("a disk that lies lost nothing: this test sees nothing")
	}
}

// The negative control: a relay built to use synchronous=NORMAL, which syncs
// its log before a checkpoint only, loses what it has acknowledged.
func TestCrashThePowerGoesWithNORMALItLoses(t *testing.T) {
	tool(t, "strace")
	if !scratch.Long(t) {
		t.Skip("a control of the test before, for -long: it builds a relay")
	}
	run := recordRun(t, buildChanged(t, []change{{"../db/internal/sqlite/conn.go", `const synchronous = "FULL"`, `const synchronous = "NORMAL"`}}))
	states, lost := run.cut(t, 100, false)
	t.Logf("control: synchronous=NORMAL: %d of %d states lost an acknowledged message", lost, states)
	if lost == 0 {
		t.Error("synchronous=NORMAL lost nothing: this test sees nothing")
	}
}

// powerRun is a recorded run.
type powerRun struct {
	db     string
	before []byte // the database when it began, with no log
	ops    []*fileOp
	order  []relay.MessageID // all messages, in commit order
	place  map[relay.MessageID]int
	schema string
}

// recordRun has senders and a recipient at work on a traced server, in several
// lives: the first is killed, so that the second finds a log that nobody has
// synced again, and the others end in order and take the log away.
func recordRun(t *testing.T, program string) *powerRun {
	t.Helper()
	path := tempDB(t)
	keys := issue(t, path, "a^power", "b^power", "c^power", "d^power")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	run := &powerRun{db: path, before: before, schema: string(schema), place: map[relay.MessageID]int{}}
	for life := range 3 {
		trace := filepath.Join(t.TempDir(), fmt.Sprint("trace", life))
		args := append(slices.Clone(traceOptions), "-o", trace, program, "serve", "--addr", "127.0.0.1:0", "--db", path)
		s := launch(t, exec.Command("strace", args...), nil)
		s.db, s.url = path, s.await(s.stderr, `url=(http://\S+)`)[1]
		powerLoad(s, keys[:3], keys[3])
		if life == 2 {
			for _, m := range s.history(keys[3], "direction=in") {
				run.place[relay.MessageID(m.MessageID)] = len(run.order)
				run.order = append(run.order, relay.MessageID(m.MessageID))
			}
		}
		if life == 0 {
			s.kill()
		} else if code := s.terminate(); code != 0 {
			t.Fatalf("exit %d: %s", code, s.stderr)
		}
		run.ops = append(run.ops, readTrace(t, trace, path, 1_000_000*life)...)
	}
	return run
}

// powerLoad sends, acknowledges and listens: all three are told things.
func powerLoad(s *server, from []agent, to agent) {
	conn := s.dial(to, "?sync_limit=1000")
	go func() {
		for {
			if _, _, err := conn.Read(s.t.Context()); err != nil {
				return
			}
		}
	}()
	var wg sync.WaitGroup
	for i, a := range from {
		wg.Go(func() {
			last := ""
			for n := range rounds(s.t, 14, 110) {
				size := n % 7 * 400
				if scratch.Long(s.t) && n%3 == 0 {
					size = 100_000 // so that the log is copied back under load, too
				}
				more := fmt.Sprintf(`,"conversation_id":"%d-%d"`, i, n%4) // or an answer to one's own message
				if n%2 == 1 {
					more = fmt.Sprintf(`,"in_reply_to":%q`, last)
				}
				body := fmt.Sprintf(`{"to":%q,"payload":{"text":"%s"}%s}`, to.Address, strings.Repeat("x", size), more)
				m := parse[record](s.t, s.ask(a, "POST", "/api/v1/messages", body).want(s.t, 201))
				last = m.MessageID
				if n%3 == i {
					s.ask(to, "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(s.t, 200)
				}
			}
		})
	}
	wg.Wait()
}

// cut rebuilds n states and gives how many of them lack what somebody was told of.
func (run *powerRun) cut(t *testing.T, n int, lies bool) (states, lost int) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(n)))
	var tellings, all []int
	for _, op := range run.ops {
		all = append(all, op.begin)
		if op.kind == tells {
			tellings = append(tellings, op.begin)
		}
	}
	if len(tellings) < len(run.order) || len(run.order) < 100 {
		t.Fatalf("the trace has %d tellings of %d messages", len(tellings), len(run.order))
	}
	cuts := make([]int, n)
	for i := range cuts { // half of them just after somebody was told, half anywhere
		if cuts[i] = all[r.IntN(len(all))]; i%2 == 0 {
			cuts[i] = tellings[r.IntN(len(tellings))]
		}
	}
	slices.Sort(cuts)
	disk := &powerDisk{db: run.db, content: map[string][]byte{run.db: slices.Clone(run.before)}, lies: lies, told: map[string]bool{}, finished: map[string]bool{}}
	dir := t.TempDir()
	if memory, err := os.MkdirTemp("/dev/shm", "relay-test-"); err == nil { // syncing what is only looked at costs nothing there
		defer os.RemoveAll(memory)
		dir = memory
	}
	for i, line := range cuts {
		disk.until(run.ops, line)
		files := disk.after(r, i%len(survivals))
		name := filepath.Join(dir, fmt.Sprint("cut", i))
		if missing := run.open(t, disk, name, files); missing != nil {
			lost++
			if !lies && lost <= 3 {
				t.Logf("cut at line %d, survives: %s: %v", line, survivals[i%len(survivals)].name, missing)
			}
		}
		states++
	}
	return states, lost
}

// open opens a rebuilt state as a server does, checks it, and says what it lacks.
func (run *powerRun) open(t *testing.T, disk *powerDisk, name string, files map[string][]byte) error {
	t.Helper()
	for path, content := range files {
		if content != nil {
			if err := os.WriteFile(name+strings.TrimPrefix(path, run.db), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer func() {
		for _, suffix := range []string{"", "-wal", "-shm", "-nonces", ".lock"} {
			os.Remove(name + suffix) // what there is of them
		}
	}()
	d, err := db.Open(db.Options{Path: name, Schema: run.schema, Serve: true, ClockSkew: 5 * time.Minute})
	if err != nil {
		return err
	}
	if err := d.Close(); err != nil {
		return err
	}
	var faults []error
	_, err = file.Check(t.Context(), file.CheckOptions{Path: name, Schema: run.schema, Report: func(f file.Finding) {
		if f.Faults > 0 && !f.Warning {
			faults = append(faults, fmt.Errorf("%s: %v", f.Rule, f.Examples))
		}
	}})
	if err := errors.Join(append(faults, err)...); err != nil {
		return err
	}
	return run.missing(t, disk, name)
}

// missing compares the messages of a state with the messages of the whole run, of
// which they must be the first ones, and with the messages that clients had been told
// of.
func (run *powerRun) missing(t *testing.T, disk *powerDisk, name string) error {
	in, err := look.Inspect(name)
	if err != nil {
		return err
	}
	defer in.Close()
	list, err := dbtest.Messages(t.Context(), in, relay.HistoryQuery{})
	if err != nil {
		return err
	}
	for i, m := range list {
		if run.place[m.ID] != i || run.order[i] != m.ID {
			return fmt.Errorf("message %d is %s; in the whole run that was number %d", i, m.ID, run.place[m.ID])
		}
		if disk.finished[string(m.ID)] && m.State != relay.Acknowledged {
			return fmt.Errorf("%s was acknowledged, and is %s", m.ID, m.State)
		}
	}
	for id := range disk.told {
		if run.place[relay.MessageID(id)] >= len(list) {
			return fmt.Errorf("%s was told of, and only %d messages are there", id, len(list))
		}
	}
	return nil
}
