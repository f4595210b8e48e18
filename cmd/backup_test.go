package cmd_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/scratch"
	"relay/http/docs"
)

// traffic collects the answers that the senders and the recipient of a busy server got.
type traffic struct {
	mu       sync.Mutex
	accepted map[string]string // message id → payload
	acked    map[string]bool
	stop     chan struct{}
	wg       sync.WaitGroup
}

// busy lets eight agents send to the last one, which acknowledges, until the test ends.
func busy(t *testing.T, s *server, all []agent) *traffic {
	f := &traffic{accepted: map[string]string{}, acked: map[string]bool{}, stop: make(chan struct{})}
	to := all[len(all)-1]
	for n, from := range all[:len(all)-1] {
		f.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-f.stop:
					return
				default:
				}
				payload := fmt.Sprintf(`{"from": %d, "number": %d, "text": %q}`, n, i, strings.Repeat("x", i%3000))
				m := s.send(from, to.Address, payload)
				f.mu.Lock()
				f.accepted[m.MessageID] = payload
				f.mu.Unlock()
				if i%2 == 0 {
					s.ask(to, "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
					f.mu.Lock()
					f.acked[m.MessageID] = true
					f.mu.Unlock()
				}
			}
		})
	}
	t.Cleanup(f.end)
	return f
}

// told returns the answers up to now.
func (f *traffic) told() (accepted map[string]string, acked map[string]bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.accepted), maps.Clone(f.acked)
}

func (f *traffic) count() int { accepted, _ := f.told(); return len(accepted) }

// bytes estimates the space of the messages in the file: rows, indexes, receipts,
// and the rest of a page that a payload does not fill.
func (f *traffic) bytes() (n int64) {
	accepted, _ := f.told()
	for _, payload := range accepted {
		n += int64(len(payload)) + 2048
	}
	return n
}

func (f *traffic) end() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.wg.Wait()
}

func sizeOf(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func crowd(n int) (addresses []string) {
	for i := range n {
		addresses = append(addresses, fmt.Sprintf("m%d^crowd", i))
	}
	return addresses
}

// A backup has every message and acknowledgement that was answered before it
// began. Restored elsewhere it is whole, and a server gives them all.
func TestABackupUnderLoadHasAllThatWasAnswered(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	all := issue(t, db, crowd(9)...)
	s := startProcess(t, db, "--rate-limit", "0", "--max-pending", "0")
	f := busy(t, s, all)
	some := scratch.Amount(t, 100, 300)
	eventually(t, patience, "messages", func() bool { return f.count() >= some })

	copies := t.TempDir()
	backup := filepath.Join(copies, "backup.db")
	accepted, acked := f.told()
	r := parse[struct {
		File                    string
		Bytes, Messages, Mechas int64
		Checked                 bool
	}](t, []byte(mustRelay(t, "backup", backup, "--json", "--db", db)))
	if r.File != backup || r.Messages < int64(len(accepted)) || r.Mechas != 9 || !r.Checked {
		t.Errorf("%+v", r)
	}
	now := f.count()
	eventually(t, patience, "the server goes on", func() bool { return f.count() > now })
	wantWhole(t, db) // in the middle of it
	f.end()
	s.kill()

	wantFiles(t, copies, "backup.db")
	if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 && os.PathSeparator == '/' || info.Size() != r.Bytes {
		t.Errorf("%v, %v; want %d bytes, for its owner only", info, err, r.Bytes)
	}
	wantWhole(t, backup)
	wantFiles(t, copies, "backup.db")

	elsewhere := tempDB(t)
	mustRelay(t, "restore", backup, "--db", elsewhere)
	wantFiles(t, filepath.Dir(elsewhere), "relay.db", "relay.db.lock")
	wantWhole(t, elsewhere)
	wantFiles(t, filepath.Dir(elsewhere), "relay.db", "relay.db.lock")
	s = startServer(t, elsewhere, "--rate-limit", "0", "--max-pending", "0")
	to := all[len(all)-1]
	there := map[string]record{}
	for _, m := range s.history(to, "direction=in&include=payload") {
		there[m.MessageID] = m
	}
	for id, payload := range accepted {
		if m := there[id]; string(m.Payload) != payload || acked[id] && m.State != "acknowledged" {
			t.Fatalf("%s is %+v, with the payload %s; acknowledged: %v", id, m, m.Payload, acked[id])
		}
	}
	// The restored relay continues: a new message comes after all others.
	m := s.send(all[0], to.Address, `{}`)
	for id := range there {
		if m.MessageID <= id {
			t.Fatalf("%s stands before %s", m.MessageID, id)
		}
	}
	if s.terminate() != 0 {
		t.Error("no clean end")
	}
	wantWhole(t, elsewhere)
	t.Logf("%d of %d messages, %d acknowledged", len(accepted), r.Messages, len(acked))
}

func TestABackupRefusesWhatWouldDoHarm(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "other paths, other texts")
	db := tempDB(t)
	issue(t, db, "a^backup")
	dir := filepath.Dir(db)
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.db")
	if err := os.WriteFile(other, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := exec.Command(tool(t, "mkfifo"), pipe).Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ to, says string }{
		{db, "is the database itself"}, {db + "-wal", "a part of a database"}, {filepath.Join(dir, "x.lock"), "a part of a database"},
		{dir, "is a directory"}, {filepath.Join(dir, "no", "x.db"), "there is no directory " + filepath.Join(dir, "no")},
		{filepath.Join(other, "x.db"), "there is no directory " + other},
		{pipe, "is not a file"},
	} {
		runRelay(t, "backup", c.to, "--db", db, "--force").wantCode(t, 1, c.says)
	}
	runRelay(t, "backup", other, "--db", db).wantCode(t, 1, other+" exists already", "--force")
	wantFiles(t, dir, "other.db", "relay.db")
	if now, _ := os.ReadFile(db); string(now) != string(before) {
		t.Error("the database was changed")
	}
	if text, _ := os.ReadFile(other); string(text) != "mine" {
		t.Error("another file was changed")
	}
	mustRelay(t, "backup", other, "--db", db, "--force")
	wantWhole(t, other)
	wantFiles(t, dir, "other.db", "relay.db")

	// A copy never replaces a database that another process has open.
	s := startProcess(t, db)
	runRelay(t, "backup", db, "--db", other, "--force").wantCode(t, 1, "belongs to a database at "+db)
	s.kill()
}

func TestWithoutADatabaseNothingIsMade(t *testing.T) {
	db := tempDB(t)
	dir := filepath.Dir(db)
	for _, args := range [][]string{
		{"backup", "copy.db"}, {"restore", "relay.db", "--db", "new.db"}, {"check"}, {"check", "relay.db"},
	} {
		if args[0] == "check" && !docs.Has("check") {
			continue
		}
		r := runIn(t, dir, args...).wantCode(t, 1, "no database at "+db)
		if r.out != "" {
			t.Errorf("%v printed %s", args, r.out)
		}
		wantFiles(t, dir)
	}
}

// large makes a database of some 25 MB, 50 in the long form, so that a copy takes its time. It is filled once, and copied.
func large(t *testing.T, db string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(binary), "large") // for longer than this test
	megabytes := scratch.Amount(t, 25, 50)
	filledLarge.Do(func() {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		makeLarge(t, filepath.Join(dir, filepath.Base(db)), megabytes)
	})
	mustCopyFolder(t, dir, filepath.Dir(db))
}

var filledLarge sync.Once

func makeLarge(t *testing.T, db string, megabytes int) {
	t.Helper()
	a := issue(t, db, "a^large")[0]
	s := startServer(t, db)
	payload := `{"text":"` + strings.Repeat("0123456789", 100_000) + `"}`
	for range megabytes {
		s.send(a, a.Address, payload)
	}
	s.end()
}

// partials returns the paths of the copies in a folder that are not whole.
func partials(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, ".*.partial-*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// atWork starts a command that makes a copy in a folder, and calls end while it does. A copy takes some 0.7 s,
// in which a busy machine may not look. A command that succeeds is started again, without what it has made.
func atWork(t *testing.T, dir string, end func(*server), args ...string) *server {
	t.Helper()
	before, _ := filepath.Glob(filepath.Join(dir, "*"))
	halves := partials(t, dir)
	isNew := func(half string) bool { return !slices.Contains(halves, half) }
	for until := time.Now().Add(patience); time.Now().Before(until); {
		p := launch(t, exec.Command(binary, args...), nil)
		eventually(t, patience, "the copy is under way", func() bool { return slices.ContainsFunc(partials(t, dir), isNew) || p.ended() })
		end(p)
		if p.wait() != 0 {
			return p
		}
		after, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, made := range after {
			if !slices.Contains(before, made) && os.RemoveAll(made) != nil {
				t.Fatal(made + " cannot be removed")
			}
		}
	}
	t.Fatalf("%v was not met at its work within %v", args, patience)
	return nil
}

func TestAnInterruptedBackupLeavesNothing(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT for others")
	db := tempDB(t)
	large(t, db)
	dir := t.TempDir()
	for _, args := range [][]string{
		{"backup", filepath.Join(dir, "copy.db"), "--db", db},
		{"restore", db, "--db", filepath.Join(dir, "copy.db")},
	} {
		p := atWork(t, dir, func(p *server) { p.cmd.Process.Signal(os.Interrupt) }, args...) // an error means that it has ended
		if code := p.wait(); code != 1 || !strings.Contains(p.stderr.String(), "interrupted") || p.stdout.String() != "" {
			t.Errorf("exit %d\n%s%s", code, p.stdout, p.stderr)
		}
		wantFiles(t, dir)
	}
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db.index", "relay.db.lock")
}

// Killed in the middle of its work, a command leaves no copy behind that the next one
// does not remove: a copy has messages and secrets, and takes much space.
func TestAKilledBackupOrRestoreLeavesNothing(t *testing.T) {
	notQuick(t)
	t.Parallel()
	notOnWindows(t, "a lock outlives its process for a while")
	db := tempDB(t)
	large(t, db)
	copies, target := t.TempDir(), tempDB(t)
	kill := func(dir string, args ...string) {
		t.Helper()
		if p := atWork(t, dir, (*server).kill, args...); p.wait() != -1 {
			t.Errorf("%v was not killed: exit %d\n%s", args, p.wait(), p.stderr)
		}
	}
	left := 0
	for n := range rounds(t, 1, 15) {
		kill(copies, "backup", filepath.Join(copies, fmt.Sprintf("day-%d.db", n)), "--db", db)
		left += len(partials(t, copies))
		kill(filepath.Dir(target), "restore", db, "--db", target)
		if n := len(partials(t, copies)); n > 1 {
			t.Errorf("%d partial copies: each run removes those before it", n)
		}
	}
	t.Logf("%d partial copies counted after the kills", left)
	mustRelay(t, "backup", filepath.Join(copies, "last.db"), "--db", db)
	mustRelay(t, "restore", db, "--db", target)
	if found := append(partials(t, copies), partials(t, filepath.Dir(target))...); len(found) > 0 {
		t.Errorf("left: %v", found)
	}

	kill(copies, "backup", filepath.Join(copies, "other.db"), "--db", db)
	kill(filepath.Dir(target), "restore", db, "--db", target, "--force")
	startProcess(t, target).terminate() // a server removes what is next to its database
	if found := partials(t, filepath.Dir(target)); len(found) > 0 {
		t.Errorf("left beside the database: %v", found)
	}
	wantWhole(t, target)
}
