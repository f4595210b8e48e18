package file_test

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"relay/db/dbtest"
	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/messages"
	"relay/db/look"
	"relay/db/relay"
)

// mustCopyHot makes a backup with one message, begins to change it by SQLite alone,
// and copies the files as they stand then, as a kill would leave them.
func mustCopyHot(t *testing.T) (path string) {
	t.Helper()
	from, _ := mustMakeOlder(t)
	dir := t.TempDir()
	backup, copied := filepath.Join(dir, "backup.db"), filepath.Join(dir, "copied.db")
	if _, err := file.Backup(t.Context(), file.BackupOptions{From: from, To: backup, Schema: schema(t)}); err != nil {
		t.Fatal(err)
	}
	d, err := sql.Open("sqlite", backup)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.SetMaxOpenConns(1)
	for _, statement := range []string{"PRAGMA cache_size = 1", "PRAGMA cache_spill = 1", "BEGIN IMMEDIATE", "DELETE FROM payload"} {
		if _, err := d.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	for range 500 { // more than the cache holds, so that changed pages are in the file
		if _, err := d.Exec("INSERT INTO word (text) VALUES (hex(randomblob(40)))"); err != nil {
			t.Fatal(err)
		}
	}
	for _, ending := range []string{"", "-journal"} {
		b, err := os.ReadFile(backup + ending)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+ending, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return copied
}

// A killed process may leave a journal next to a file without a log. Every command that
// opens the file first undoes the unfinished transaction.
func TestAFileWithAJournalIsOpened(t *testing.T) {
	t.Run("check", func(t *testing.T) { wantWhole(t, mustCopyHot(t), schema(t), file.CurrentSchema()) })
	t.Run("inspect", func(t *testing.T) {
		i, err := look.Inspect(mustCopyHot(t))
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		list, err := dbtest.Messages(t.Context(), i, relay.HistoryQuery{})
		if err != nil || len(list) != 1 {
			t.Fatal(len(list), err)
		}
		body, err := look.See(i, func(x *engine.Rx) ([]byte, error) { return messages.PayloadFor(x, list[0].ID, nil) })
		if err != nil || strings.TrimSpace(string(body)) != "{}" {
			t.Errorf("%q, %v", body, err)
		}
	})
	t.Run("serve", func(t *testing.T) {
		path := mustCopyHot(t)
		d := mustOpen(t, path, schema(t))
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		wantWhole(t, path, schema(t), file.CurrentSchema())
	})
}

// Somebody who may write in the folder may replace the lock by a link. The link's target keeps its
// rights: else a command of root would give them away.
func TestALockThatIsALinkGivesNoRightsAway(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "relay.db"), filepath.Join(dir, "other")
	for name, mode := range map[string]os.FileMode{path: 0o666, other: 0o600} {
		if err := errors.Join(os.WriteFile(name, nil, mode), os.Chmod(name, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, path+".lock"); err != nil {
		t.Skip("links need a right here: ", err)
	}
	held, err := file.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if info, err := os.Stat(other); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
