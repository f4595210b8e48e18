package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite"
)

type compacted struct {
	File    string
	Before  int64 `json:"bytes_before"`
	After   int64 `json:"bytes_after"`
	Unused  int64 `json:"bytes_unused"`
	Rebuilt bool
}

// emptied returns a closed database, most pages of which are unused.
func emptied(t *testing.T) (db string, all []agent, size int64) {
	t.Helper()
	db = tempDB(t)
	large(t, db)
	d := byHand(t, db)
	defer d.Close()
	for _, table := range []string{"payload", "message", "received", "sent"} {
		if _, err := d.Exec("DELETE FROM " + table + " WHERE position < (SELECT max(position) FROM " + table + ")"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	all = issue(t, db, crowd(9)...)
	return db, all, sizeOf(t, db)
}

func TestCompactGivesSpaceBackUnderLoad(t *testing.T) {
	notQuickButForRaces(t)
	t.Parallel()
	db, all, before := emptied(t)
	s := startServer(t, db, "--rate-limit", "0", "--max-pending", "0")
	f := busy(t, s, all)
	eventually(t, patience, "messages", func() bool { return f.count() > 50 })
	r := parse[compacted](t, []byte(mustRelay(t, "compact", "--db", db, "--json")))
	now := f.count()
	eventually(t, patience, "the server goes on", func() bool { return f.count() > now })
	f.end()
	most := before/2 + f.bytes()                     // less than half of it was in use, and these bytes were written since
	if r.Rebuilt || r.File != db || r.After > most { // the server may have begun with it on its own
		t.Errorf("%+v of a file of %d bytes; at most %d are needed", r, before, most)
	}
	eventually(t, patience, "the file is shorter", func() bool { return sizeOf(t, db) <= most })
	wantWhole(t, db)
	accepted, _ := f.told()
	there := map[string]bool{}
	for _, m := range s.history(all[len(all)-1], "direction=in") {
		there[m.MessageID] = true
	}
	for id := range accepted {
		if !there[id] {
			t.Fatalf("%s is lost", id)
		}
	}
}

func TestCompactRebuildsAFileThatNobodyServes(t *testing.T) {
	notShort(t)
	t.Parallel()
	db, _, before := emptied(t)
	r := parse[compacted](t, []byte(mustRelay(t, "compact", "--db", db, "--json")))
	if !r.Rebuilt || r.Before != before || r.After != sizeOf(t, db) || r.After > before/10 {
		t.Errorf("%+v; the file has %d bytes", r, sizeOf(t, db))
	}
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db.index", "relay.db.lock")
	wantWhole(t, db)
	again := parse[compacted](t, []byte(mustRelay(t, "compact", "--db", db, "--json")))
	if again.After != r.After {
		t.Errorf("%+v, and again %+v", r, again)
	}
}

// Killed in the middle of its work, a rebuild leaves the file whole and nothing next to it.
func TestAKilledCompactLeavesNothing(t *testing.T) {
	notQuick(t)
	t.Parallel()
	notOnWindows(t, "a lock outlives its process for a while")
	db, temp := tempDB(t), t.TempDir()
	large(t, db)
	for range rounds(t, 1, 10) {
		killCompact(t, db, temp)
		wantFiles(t, temp)
		wantWhole(t, db)
	}
	mustRelay(t, "compact", "--db", db)
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db.index", "relay.db.lock")
}

// killCompact kills a relay compact while it rebuilds. A rebuild that ends before a busy machine has looked is made again.
func killCompact(t *testing.T, db, temp string) {
	t.Helper()
	for until := time.Now().Add(patience); time.Now().Before(until); {
		p := launch(t, exec.Command(binary, "compact", "--db", db), []string{"SQLITE_TMPDIR=" + temp})
		eventually(t, patience, "the rebuild is under way", func() bool {
			info, err := os.Stat(db + "-wal")
			return err == nil && info.Size() > 0 || p.ended()
		})
		p.kill()
		switch code := p.wait(); code {
		case -1:
			return
		case 0:
		default:
			t.Fatalf("exit %d\n%s", code, p.stderr)
		}
	}
	t.Fatalf("no rebuild was met within %v", patience)
}

// The audit log tells of it, next to a server and without one; a restore keeps it.
func TestTheAuditLogTellsOfACompact(t *testing.T) {
	t.Parallel()
	db, backup := tempDB(t), filepath.Join(t.TempDir(), "backup.db")
	issue(t, db, "a^audit")
	s := startServer(t, db)
	mustRelay(t, "backup", backup, "--db", db)
	mustRelay(t, "compact", "--db", db)
	s.end()
	mustRelay(t, "compact", "--db", db)
	want := []string{"key create: key_issued", "compact: compacted", "compact: compacted"}
	wantWhats(t, audit(t, db), want...)
	mustRelay(t, "restore", backup, "--db", db, "--force")
	wantWhats(t, audit(t, db), append(want, "restore: restored")...)
}

func TestACompactWithoutADatabaseMakesNothing(t *testing.T) {
	db := tempDB(t)
	c := exec.Command(binary, "compact")
	c.Dir = filepath.Dir(db)
	if r := finish(t, c, nil, "").wantCode(t, 1, "no database at "+db); r.out != "" {
		t.Errorf("it printed %s", r.out)
	}
	wantFiles(t, filepath.Dir(db))
}
