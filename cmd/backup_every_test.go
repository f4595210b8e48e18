package cmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay/http/docs"
)

// relay backup --every keeps the newest copies, leaves other files alone, goes on when its
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

// spoil makes a fault that SQLite does not notice: a setting gets another name. If copies are
// checked by SQLite alone, it makes a reference to nothing.
func spoil(t *testing.T, db string) {
	t.Helper()
	if !docs.Has("check") {
		d := byHand(t, db)
		if _, err := d.Exec("UPDATE mecha_key SET mecha = 999 WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	was := []byte("keys_version")
	if !bytes.Contains(text, was) {
		t.Fatal("the setting is not found in the file")
	}
	if err := os.WriteFile(db, bytes.ReplaceAll(text, was, []byte("keys_versiom")), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A database that is behind the newest copy in the folder, or is another one, adds no copy
// and removes none. A restored database goes on in the folder, also if an older copy was
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

// The log and the restore say that a database without any write has no newest write.
func TestACopyWithoutAnyWrite(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGTERM")
	db := tempDB(t)
	startServer(t, db).end()
	folder := t.TempDir()
	mustRelay(t, "backup", filepath.Join(folder, "relay-29990101T000000.000Z.db"), "--db", db)
	r := runRelay(t, "restore", "--from", folder, "--db", tempDB(t)).wantCode(t, 0, " ahead of this machine's clock, newest write none)")
	if strings.Contains(r.err, " ago") {
		t.Error(r.err)
	}
	p := launch(t, exec.Command(binary, "backup", "--every", "1s", "--db", db, folder), nil)
	p.await(p.stderr, `msg=copied .* position=0 newest_write=none`)
	p.end()
}

// A copy that a newer relay wrote is not passed over for an older one.
func TestARestoreFromAFolderStopsAtACopyOfANewerRelay(t *testing.T) {
	t.Parallel()
	_, newer := patched(t, userVersionAt, 99)
	db := tempDB(t)
	issue(t, db, "a^from")
	folder := t.TempDir()
	mustRelay(t, "backup", filepath.Join(folder, "relay-20260101T000000.000Z.db"), "--db", db)
	if err := os.WriteFile(filepath.Join(folder, "relay-20260102T000000.000Z.db"), newer, 0o600); err != nil {
		t.Fatal(err)
	}
	to := tempDB(t)
	r := runRelay(t, "restore", "--from", folder, "--db", to).wantCode(t, 1, "relay-20260102T000000.000Z.db was written by a newer relay (schema 99; this one knows")
	if strings.Contains(r.err, "passed over") {
		t.Error(r.err)
	}
	wantFiles(t, filepath.Dir(to))
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

// relay restore --from takes the newest copy that is whole, and says which.
func TestARestoreFromAFolder(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^from")[0]
	folder := t.TempDir()
	oldest, middle, newest := "relay-20260101T000000.000Z.db", "relay-20260102T000000.000Z.db", "relay-20260103T000000.000Z.db"
	mustRelay(t, "backup", filepath.Join(folder, oldest), "--db", db)
	s := startProcess(t, db)
	s.send(a, a.Address, `{}`)
	runRelay(t, "restore", "--from", folder, "--db", db, "--force").wantCode(t, 1, "a server runs on "+db)
	s.kill()
	mustRelay(t, "backup", filepath.Join(folder, middle), "--db", db)
	mustRelay(t, "backup", filepath.Join(folder, newest), "--db", db)
	if err := os.WriteFile(filepath.Join(folder, "relay-zzz.db"), []byte("foreign"), 0o600); err != nil {
		t.Fatal(err)
	}
	runRelay(t, "restore", "--from", folder, "--db", db).wantCode(t, 1, "there is a database at "+db, "--force")

	to := tempDB(t)
	runRelay(t, "restore", "--from", folder, "--db", to).wantCode(t, 0, "from "+newest+", made ", " ago, newest write 20")
	if err := os.Truncate(filepath.Join(folder, newest), 100_000); err != nil {
		t.Fatal(err)
	}
	spoil(t, filepath.Join(folder, middle))
	to = tempDB(t)
	r := runRelay(t, "restore", "--from", folder, "--db", to, "--json").wantCode(t, 0, newest+" is passed over: ", middle+" is passed over: the backup has 1 fault")
	var done struct {
		From   string
		MadeAt string `json:"made_at"`
		Newest string `json:"newest_write_at"`
	}
	if err := json.Unmarshal([]byte(r.out), &done); err != nil || filepath.Base(done.From) != oldest || done.MadeAt != "2026-01-01T00:00:00.000Z" || !strings.HasPrefix(done.Newest, "20") {
		t.Errorf("%v in %s", err, r.out)
	}
	wantWhole(t, to)

	if err := os.Remove(filepath.Join(folder, oldest)); err != nil {
		t.Fatal(err)
	}
	to = tempDB(t)
	runRelay(t, "restore", "--from", folder, "--db", to).wantCode(t, 1, "none of 2 backups in "+folder+" can be restored, and nothing was changed")
	wantFiles(t, filepath.Dir(to))
	runRelay(t, "restore", "--from", t.TempDir(), "--db", to).wantCode(t, 1, "there is no copy in ")
	for _, args := range [][]string{
		{"restore"}, {"restore", "x.db", "--from", folder},
		{"backup", "--keep", "2", "x.db"}, {"backup", "--every", "1ms", "x"}, {"backup", "--every", "1s", "--keep", "0", "x"},
		{"backup", "--every", "1s", "--force", "x"}, {"backup", "--every", "1s", "--log-format", "xml", "x"},
	} {
		runRelay(t, args...).wantCode(t, 2)
	}
}
