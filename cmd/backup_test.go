package cmd_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
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
	s := startServer(t, db, "--rate-limit", "0", "--max-pending", "0")
	f := busy(t, s, all)
	eventually(t, patience, "300 messages", func() bool { return f.count() >= 300 })

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
	mustRelay(t, "check", "--db", db) // in the middle of it
	f.end()
	s.kill()

	wantFiles(t, copies, "backup.db")
	if info, err := os.Stat(backup); err != nil || info.Mode().Perm() != 0o600 && os.PathSeparator == '/' || info.Size() != r.Bytes {
		t.Errorf("%v, %v; want %d bytes, for its owner only", info, err, r.Bytes)
	}
	mustRelay(t, "check", backup)
	wantFiles(t, copies, "backup.db")

	elsewhere := tempDB(t)
	mustRelay(t, "restore", backup, "--db", elsewhere)
	wantFiles(t, filepath.Dir(elsewhere), "relay.db", "relay.db.lock")
	mustRelay(t, "check", "--db", elsewhere)
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
	// The restored relay goes on: a new message comes after all others.
	m := s.send(all[0], to.Address, `{}`)
	for id := range there {
		if m.MessageID <= id {
			t.Fatalf("%s stands before %s", m.MessageID, id)
		}
	}
	if s.terminate() != 0 {
		t.Error("no clean end")
	}
	mustRelay(t, "check", "--db", elsewhere)
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
	mustRelay(t, "check", other)
	wantFiles(t, dir, "other.db", "relay.db")

	// A copy never replaces a database that another process has open.
	s := startServer(t, db)
	runRelay(t, "backup", db, "--db", other, "--force").wantCode(t, 1, "belongs to a database at "+db)
	s.kill()
}

func TestWithoutADatabaseNothingIsMade(t *testing.T) {
	db := tempDB(t)
	dir := filepath.Dir(db)
	for _, args := range [][]string{
		{"backup", "copy.db"}, {"restore", "relay.db", "--db", "new.db"}, {"check"}, {"check", "relay.db"}, {"compact"},
	} {
		c := exec.Command(binary, args...)
		c.Dir = dir
		r := finish(t, c, nil, "").wantCode(t, 1, "no database at "+db)
		if r.out != "" {
			t.Errorf("%v printed %s", args, r.out)
		}
		wantFiles(t, dir)
	}
}

// large fills a database with some 50 MB, so that a copy takes its time.
func large(t *testing.T, db string) {
	t.Helper()
	a := issue(t, db, "a^large")[0]
	s := startServer(t, db)
	payload := `{"text":"` + strings.Repeat("0123456789", 100_000) + `"}`
	for range 50 {
		s.send(a, a.Address, payload)
	}
	if s.terminate() != 0 {
		t.Fatal("no clean end")
	}
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
		p := launch(t, exec.Command(binary, args...), nil)
		eventually(t, patience, "the copy is under way", func() bool {
			half, err := filepath.Glob(filepath.Join(dir, ".copy.db.partial-*"))
			return err == nil && len(half) == 1
		})
		if code := p.signal(os.Interrupt); code != 1 || !strings.Contains(p.stderr.String(), "interrupted") || p.stdout.String() != "" {
			t.Errorf("exit %d\n%s%s", code, p.stdout, p.stderr)
		}
		wantFiles(t, dir)
	}
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db.index", "relay.db.lock")
}

func TestARestoreReplacesOnlyWhenTold(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	dir := filepath.Dir(db)
	a := issue(t, db, "a^restore")[0]
	s := startServer(t, db)
	old := s.send(a, a.Address, `{"n": 1}`)
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	late := s.send(a, a.Address, `{"n": 2}`)
	mustRelay(t, "key", "create", "late^restore", "--db", db)

	runRelay(t, "restore", backup, "--db", db, "--force").wantCode(t, 1, "a server runs on "+db)
	s.kill() // the log stays
	runRelay(t, "restore", backup, "--db", db).wantCode(t, 1, "there is a database at "+db, "--force")

	r := parse[struct{ File, Kept string }](t, []byte(mustRelay(t, "restore", backup, "--db", db, "--force", "--json")))
	wantFiles(t, dir, "relay.db", "relay.db-nonces", filepath.Base(r.Kept), "relay.db.lock") // the index is gone; the nonces count for every state of the database
	s = startServer(t, db)
	if h := s.history(a, ""); len(h) != 1 || h[0].MessageID != old.MessageID {
		t.Errorf("%+v", h)
	}
	// The lost message's id is still a cursor, and a new message comes after it.
	m := s.send(a, a.Address, `{"n": 3}`)
	if h := s.history(a, "since_message_id="+late.MessageID); len(h) != 1 || h[0].MessageID != m.MessageID {
		t.Errorf("after %s: %+v", late.MessageID, h)
	}
	s.kill()

	// The replaced database is whole, with the messages that were still in its log.
	mustRelay(t, "check", r.Kept)
	kept := tempDB(t)
	mustRelay(t, "restore", r.Kept, "--db", kept)
	if h := startServer(t, kept).history(a, ""); len(h) != 2 || h[1].MessageID != late.MessageID {
		t.Errorf("%+v", h)
	}
}

// SQLite would take a log that lost its database for that of the restored one.
func TestARestoreMindsALogThatWasLeftBehind(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^restore")
	to := tempDB(t)
	if err := os.WriteFile(to+"-wal", []byte("a log"), 0o600); err != nil {
		t.Fatal(err)
	}
	runRelay(t, "restore", db, "--db", to).wantCode(t, 1, to+"-wal", "--force")
	wantFiles(t, filepath.Dir(to), "relay.db-wal")
	r := parse[struct{ Kept string }](t, []byte(mustRelay(t, "restore", db, "--db", to, "--force", "--json")))
	wantFiles(t, filepath.Dir(to), "relay.db", filepath.Base(r.Kept)+"-wal", "relay.db.lock")
	mustRelay(t, "check", to)
}

// A restore replaces a damaged database too.
func TestADamagedDatabaseCanBeReplaced(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^restore")
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	if err := os.WriteFile(db, []byte(strings.Repeat("damage\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	runRelay(t, "check", "--db", db).wantCode(t, 1, db, "is not a database")
	runRelay(t, "backup", backup+"2", "--db", db).wantCode(t, 1, db, "is not a database")
	mustRelay(t, "restore", backup, "--db", db, "--force")
	mustRelay(t, "check", "--db", db)
}

func TestAFaultyBackupIsNotRestored(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^restore")
	flip(t, db, 3)
	to := tempDB(t)
	runRelay(t, "restore", db, "--db", to).wantCode(t, 1, "faults", "relay check "+db)
	runRelay(t, "backup", to, "--db", db).wantCode(t, 1, "faults", "relay check --db "+db, "--no-check")
	wantFiles(t, filepath.Dir(to))
	mustRelay(t, "backup", to, "--db", db, "--no-check") // a copy with faults is better than none
	runRelay(t, "check", to).wantCode(t, 1)
}
