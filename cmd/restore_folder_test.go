package cmd_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/http/docs"
)

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

// The restore says that a database without any write has no newest write.
func TestARestoreOfACopyWithoutAnyWrite(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	startServer(t, db).end()
	folder := t.TempDir()
	mustRelay(t, "backup", filepath.Join(folder, "relay-29990101T000000.000Z.db"), "--db", db)
	r := runRelay(t, "restore", "--from", folder, "--db", tempDB(t)).wantCode(t, 0, " ahead of this machine's clock, newest write none)")
	if strings.Contains(r.err, " ago") {
		t.Error(r.err)
	}
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
	if strings.Contains(r.err, "is skipped") {
		t.Error(r.err)
	}
	wantFiles(t, filepath.Dir(to))
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
	r := runRelay(t, "restore", "--from", folder, "--db", to, "--json").wantCode(t, 0, newest+" is skipped: ", middle+" is skipped: the backup has 1 fault")
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
	} {
		runRelay(t, args...).wantCode(t, 2)
	}
}
