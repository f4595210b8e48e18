package file_test

import (
	"bytes"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"relay/db"
	"relay/db/file"
	"relay/db/look"
	"relay/db/relay"
)

// step and another are upgrades that the program is made to know. The tests of this file cannot
// run in parallel.
const (
	step    = "CREATE TABLE pretended (id INTEGER PRIMARY KEY, of INTEGER NOT NULL) STRICT;"
	another = "CREATE INDEX pretended_of ON pretended (of);"
)

// schema is the real one.
func schema(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustOpen(t *testing.T, path, schema string) *db.DB {
	t.Helper()
	d, err := db.Open(db.Options{Path: path, Schema: schema, Create: true, Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// number reads a number from a file by SQLite alone.
func number(t *testing.T, path, query string) (n int) {
	t.Helper()
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.QueryRow(query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// mustMakeOlder makes a file with a message, by a program that lacks the step.
func mustMakeOlder(t *testing.T) (path string, id relay.MessageID) {
	t.Helper()
	d := mustOpen(t, filepath.Join(t.TempDir(), "relay.db"), schema(t))
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "old^timer"})
	if err != nil {
		t.Fatal(err)
	}
	m := &relay.SendMessage{At: time.Now(), Key: k.Number, To: "old^timer", Payload: []byte(`{}`)}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d.Path(), sent.ID
}

// wantWhole checks a file, which must be of a version and have a message.
func wantWhole(t *testing.T, path, schema string, version int64) {
	t.Helper()
	var said []string
	r, err := file.Check(t.Context(), file.CheckOptions{Path: path, Schema: schema, Report: func(f file.Finding) {
		said = append(said, f.Examples...)
		if older := version < file.CurrentSchema(); (f.Skipped != "") != (older && f.Check == "schema") {
			t.Errorf("the check %s was left out: %q", f.Check, f.Skipped)
		}
	}})
	if err != nil || r.Faults > 0 || r.Schema != version || r.Messages != 1 {
		t.Errorf("%+v, %v, %q; want a whole file of version %d", r, err, said, version)
	}
}

// execute changes a file by SQLite alone.
func execute(t *testing.T, path string, statements ...string) {
	t.Helper()
	d, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, s := range statements {
		if _, err := d.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnOlderFileIsBroughtUpToDate(t *testing.T) {
	path, id := mustMakeOlder(t)
	older := file.CurrentSchema()
	defer file.Pretend(step + " INSERT INTO pretended SELECT id, id FROM mecha;")()
	if _, err := look.Inspect(path); err == nil || !strings.Contains(err.Error(), "written by an older relay") {
		t.Errorf("a look into the file before: %v", err)
	}
	wantWhole(t, path, schema(t)+step, older)
	d := mustOpen(t, path, schema(t)+step)
	k, err := d.Issue(&relay.IssueKey{At: time.Now(), Address: "old^timer"})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := d.Message(t.Context(), k.Mecha.Number, id); err != nil || m.To != "old^timer" {
		t.Errorf("the message in it is %+v, %v", m, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, path, "SELECT count(*) FROM pretended"); n != 1 {
		t.Errorf("the step brought %d rows", n)
	}
	wantWhole(t, path, schema(t)+step, older+1) // with the schema of a new file
}

// A file gets the steps that it lacks, in their order.
func TestAFileOfSeveralVersionsAgoIsBroughtUpToDate(t *testing.T) {
	path, _ := mustMakeOlder(t)
	between, _ := mustMakeOlder(t)
	older := file.CurrentSchema()
	undo := file.Pretend(step)
	if err := mustOpen(t, between, schema(t)+step).Close(); err != nil {
		t.Fatal(err)
	}
	undo()
	defer file.Pretend(step, another)()
	wantWhole(t, between, schema(t)+step+another, older+1)
	for _, path := range []string{path, between} {
		if err := mustOpen(t, path, schema(t)+step+another).Close(); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, path, schema(t)+step+another, older+2)
	}
}

// An upgrade that fails leaves the file as it was, with its version. No step is taken alone.
func TestAStepThatFailsChangesNothing(t *testing.T) {
	path, _ := mustMakeOlder(t)
	older := file.CurrentSchema()
	undo := file.Pretend(step, another+" INSERT INTO nowhere VALUES (1);")
	if _, err := db.Open(db.Options{Path: path, Schema: schema(t) + step + another}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
	undo()
	wantWhole(t, path, schema(t), older)
}

// A server whose disk has no room for the upgrade says so. The file stays as it was until there is room.
func TestAnUpgradeOnAFullDiskWaitsForRoom(t *testing.T) {
	path, _ := mustMakeOlder(t)
	older := file.CurrentSchema()
	undo := file.Pretend("PRAGMA max_page_count = 1; " + step)
	_, err := db.Open(db.Options{Path: path, Schema: schema(t) + step, Serve: true})
	if err == nil || !strings.Contains(err.Error(), path+": its disk is full: make room") {
		t.Errorf("%v", err)
	}
	undo()
	wantWhole(t, path, schema(t), older)
	defer file.Pretend(step)()
	if err := mustOpen(t, path, schema(t)+step).Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, schema(t)+step, older+1)
}

// A process that is killed in an upgrade leaves the file as it was.
func TestAnUpgradeThatIsKilledChangesNothing(t *testing.T) {
	const killed = "RELAY_TEST_KILLED_UPGRADE" // in the child, the path of the file
	if path := os.Getenv(killed); path != "" {
		file.Pretend("PRAGMA cache_size = 1; " + step + `
			INSERT INTO pretended WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 5000000) SELECT id, id FROM n;`)
		_, err := db.Open(db.Options{Path: path, Schema: schema(t) + step, Serve: true})
		t.Fatal("the upgrade came to its end: ", err)
	}
	path, _ := mustMakeOlder(t)
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), killed+"="+path)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 1<<20 {
			break
		}
		if time.Since(began) > time.Minute {
			t.Error("the upgrade has written nothing")
			break
		}
	}
	child.Process.Kill()
	child.Wait()
	older := file.CurrentSchema()
	wantWhole(t, path, schema(t), older)
	defer file.Pretend(step)()
	if err := mustOpen(t, path, schema(t)+step).Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, schema(t)+step, older+1)
}

// Content that a step drops is nowhere in the file: later removals do not know where it was.
func TestWhatAnUpgradeDropsIsOverwritten(t *testing.T) {
	path, _ := mustMakeOlder(t)
	const made = "CREATE TABLE dropped (text TEXT NOT NULL) STRICT; " +
		"INSERT INTO dropped WITH RECURSIVE n (id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 2000) SELECT 'forget-me-' || id FROM n;"
	undo := file.Pretend(made)
	if err := mustOpen(t, path, schema(t)).Close(); err != nil {
		t.Fatal(err)
	}
	if n := number(t, path, "SELECT count(*) FROM dropped"); n != 2000 {
		t.Fatalf("there are %d texts to drop", n)
	}
	undo()
	defer file.Pretend(made, "DROP TABLE dropped;")()
	if err := mustOpen(t, path, schema(t)).Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("forget-me")); n != 0 {
		t.Errorf("it stands in the file %d times", n)
	}
	wantWhole(t, path, schema(t), file.CurrentSchema())
}

// Commands copy an older file as it is, even over one that is up to date. A command that writes
// brings it up to date.
func TestAnOlderFileIsCopiedAndRestored(t *testing.T) {
	path, _ := mustMakeOlder(t)
	older, folder := file.CurrentSchema(), t.TempDir()
	defer file.Pretend(step)()
	now := schema(t) + step
	to, err := file.Backup(t.Context(), file.BackupOptions{From: path, To: filepath.Join(folder, "copy.db"), Schema: now})
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, now, older)
	wantWhole(t, to.Path, now, older)
	if _, follows, err := file.ReplicaAt(to.Path); follows || err != nil {
		t.Error(follows, err)
	}
	if err := mustOpen(t, path, now).Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, now, older+1)
	back, err := file.Restore(t.Context(), file.RestoreOptions{RevokeNewer: true, By: relay.Actor{UID: 1, User: "maria", Command: "restore"},
		BackupOptions: file.BackupOptions{From: to.Path, To: path, Schema: now, Replace: true}})
	if err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, now, older)
	wantWhole(t, back.Kept, now, older+1)
	if err := mustOpen(t, path, now).Close(); err != nil {
		t.Fatal(err)
	}
	wantWhole(t, path, now, older+1)
	if n := number(t, path, "SELECT count(*) FROM audit WHERE what = 'restored'"); n != 1 {
		t.Errorf("the restore is noted %d times", n)
	}
}

// A command of a newer relay must not change the file under an older one that serves it.
func TestAnOlderFileThatIsServedIsLeftAlone(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "relay.db"), schema(t))
	older := int(file.CurrentSchema())
	defer file.Pretend(step)()
	_, err := db.Open(db.Options{Path: d.Path(), Schema: schema(t) + step})
	if err == nil || !strings.Contains(err.Error(), "older relay") {
		t.Errorf("%v", err)
	}
	if v := number(t, d.Path(), "PRAGMA user_version"); v != older {
		t.Errorf("it is of version %d now", v)
	}
}
