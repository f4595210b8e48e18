package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// relay backup --every keeps the newest copies, leaves other files alone, continues when its
// folder was missing for a while, refuses a second process, and ends cleanly.
func TestCopiesAtIntervals(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM, and a folder in use cannot be renamed")
	db := tempDB(t)
	issue(t, db, "a^every")
	folder := filepath.Join(t.TempDir(), "copies")
	foreign := []string{"relay-notes.db", "relay-20200101T000000Z.db", "relay-20200101T000000.000Z.db.txt", "other.db"}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range foreign {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	every := []string{"backup", "--every", "1s", "--keep", "2", "--db", db, folder}
	p := launch(t, exec.Command(binary, every...), nil)
	p.await(p.stderr, `(?s)(msg=copied file=\S+/relay-\d{8}T\d{6}\.\d{3}Z\.db size=\S+ \S+ messages=0 checked=true took=\S+ position=\d+ newest_write=20.*?){3}`)
	run(t, every, nil, "").wantCode(t, 1, "another relay backup --every uses this folder")

	if err := os.Rename(folder, folder+"-away"); err != nil {
		t.Fatal(err)
	}
	p.await(p.stderr, `msg="no copy was made; the next interval tries again" error="there is no directory `+folder)
	if err := os.Rename(folder+"-away", folder); err != nil {
		t.Fatal(err)
	}
	p.await(p.stderr, `(?s)no directory.*msg=copied`)
	if code := p.terminate(); code != 0 || !strings.Contains(p.stderr.String(), "msg=stopped") {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
	copies, err := filepath.Glob(filepath.Join(folder, "relay-????????T??????.???Z.db"))
	if err != nil || len(copies) != 2 {
		t.Fatalf("%v, %v", copies, err)
	}
	want := append(foreign, ".relay-backup.lock", filepath.Base(copies[0]), filepath.Base(copies[1]))
	slices.Sort(want)
	wantFiles(t, folder, want...)
	for _, name := range foreign {
		if text, err := os.ReadFile(filepath.Join(folder, name)); string(text) != "mine" {
			t.Errorf("%s is %q, %v", name, text, err)
		}
	}
	wantWhole(t, copies[1])
}

// A copy of a database with faults is not kept, and never takes the place of a good one.
func TestAFaultyCopyRemovesNoGoodOne(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	db := tempDB(t)
	issue(t, db, "a^every")
	folder := t.TempDir()
	good := "relay-20260101T000000.000Z.db"
	mustRelay(t, "backup", filepath.Join(folder, good), "--db", db)
	spoil(t, db)
	p := launch(t, exec.Command(binary, "backup", "--every", "1s", "--keep", "1", "--json", "--log-format", "json", "--db", db, folder), nil)
	p.await(p.stderr, `"msg":"no copy was made; the next interval tries again","error":"the copy has 1 fault and was not kept`)
	if code := p.terminate(); code != 0 || p.stdout.String() != "" {
		t.Errorf("exit %d\n%s", code, p.stdout)
	}
	wantFiles(t, folder, ".relay-backup.lock", good)
}

// A database that is behind the newest copy in the folder, or is another one, adds no copy
// and removes none. A restored database continues in the folder, even if an older copy was
// put back by hand.
func TestAnOlderOrAnotherDatabasePushesOutNoCopy(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	db, lost, another := tempDB(t), tempDB(t), tempDB(t)
	issue(t, db, "a^every")
	issue(t, another, "a^every")
	folder, ours := t.TempDir(), t.TempDir()
	first := "relay-20260101T000000.000Z.db"
	mustRelay(t, "backup", filepath.Join(folder, first), "--db", db)
	mustRelay(t, "backup", lost, "--db", db)
	copyOnce := func(db, folder, want string) {
		t.Helper()
		p := launch(t, exec.Command(binary, "backup", "--every", "1s", "--keep", "1", "--db", db, folder), nil)
		p.await(p.stderr, want)
		if code := p.terminate(); code != 0 {
			t.Errorf("exit %d\n%s", code, p.stderr)
		}
	}
	const refused = `level=ERROR msg="no copy was made; the next interval tries again" error="\S+`
	copyOnce(another, folder, refused+` is a copy of another database: use another folder, or remove`)
	wantFiles(t, folder, ".relay-backup.lock", first)

	mustRelay(t, "restore", "--from", folder, "--db", db, "--force")
	copyOnce(db, folder, `msg=copied`)
	copies, err := filepath.Glob(filepath.Join(folder, "relay-*.db"))
	if err != nil || len(copies) != 1 || filepath.Base(copies[0]) == first {
		t.Fatalf("%v, %v", copies, err)
	}
	newest := filepath.Base(copies[0])
	copyOnce(lost, folder, refused+` is newer than this database: use another folder, or remove it`)
	wantFiles(t, folder, ".relay-backup.lock", newest)

	mustRelay(t, "restore", lost, "--db", db, "--force")
	copyOnce(db, folder, `msg=copied`)
	if _, err := os.Stat(filepath.Join(folder, newest)); err == nil {
		t.Error("the older copy stays, though --keep is 1")
	}

	damaged := filepath.Join(ours, "relay-20260102T000000.000Z.db")
	if err := os.WriteFile(damaged, []byte("no database"), 0o600); err != nil {
		t.Fatal(err)
	}
	copyOnce(lost, ours, `msg=copied`)
}

// The log says that a database without any write has no newest write.
func TestACopyWithoutAnyWrite(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	db := tempDB(t)
	startServer(t, db).end()
	folder := t.TempDir()
	mustRelay(t, "backup", filepath.Join(folder, "relay-29990101T000000.000Z.db"), "--db", db)
	p := launch(t, exec.Command(binary, "backup", "--every", "1s", "--db", db, folder), nil)
	p.await(p.stderr, `msg=copied .* position=0 newest_write=none`)
	p.end()
}

// On a disk that is too small, the log says so, and the copies that are there stay.
func TestCopiesOnAFullDisk(t *testing.T) {
	notShort(t)
	t.Parallel()
	folder := mountTmpfs(t, 1)
	db := tempDB(t)
	issue(t, db, "a^every")
	filler := filepath.Join(folder, "filler")
	if err := os.WriteFile(filler, make([]byte, 900<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, exec.Command(binary, "backup", "--every", "1s", "--keep", "1", "--db", db, folder), nil)
	p.await(p.stderr, `msg="no copy was made; the next interval tries again" error="the copy needs .* make room`)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	p.await(p.stderr, `msg=copied`)
	if code := p.terminate(); code != 0 {
		t.Errorf("exit %d\n%s", code, p.stderr)
	}
}

func TestWrongUsageOfAnIntervalIsTwo(t *testing.T) {
	for _, args := range [][]string{
		{"backup", "--keep", "2", "x.db"}, {"backup", "--every", "1ms", "x"}, {"backup", "--every", "1s", "--keep", "0", "x"},
		{"backup", "--every", "1s", "--force", "x"}, {"backup", "--every", "1s", "--log-format", "xml", "x"},
	} {
		runRelay(t, args...).wantCode(t, 2)
	}
}
