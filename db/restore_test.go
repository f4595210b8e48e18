package db_test

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"relay/db"
	"relay/db/file"
)

// Another program's writes to a file that has lost its name would be gone.
func TestAFileThatAProgramHasOpenIsNotReplaced(t *testing.T) {
	t.Parallel()
	backup := mustFill(t)
	s := mustOpen(t)
	s.mustIssue("alice^demo")
	path := s.Path()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	program := byHand(t, path)
	write := func() {
		t.Helper()
		if _, err := program.Exec("UPDATE mecha_key SET label = coalesce(label, '') || '!'"); err != nil {
			t.Fatal(err)
		}
	}
	write()
	_, err := file.Restore(ctx, file.RestoreOptions{BackupOptions: file.BackupOptions{From: backup, To: path, Schema: schema(t), Replace: true}})
	if err == nil || !strings.Contains(err.Error(), "another command has "+path+" open") {
		t.Fatalf("%v", err)
	}
	write()
	if kept, _ := filepath.Glob(path + ".*"); len(kept) != 1 || kept[0] != path+".lock" {
		t.Errorf("%v", kept)
	}
	if err := program.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := file.Restore(ctx, file.RestoreOptions{BackupOptions: file.BackupOptions{From: backup, To: path, Schema: schema(t), Replace: true}})
	if err != nil || r.Kept == "" || r.Messages != 12 {
		t.Fatalf("%+v, %v", r, err)
	}
	var label string
	if err := byHand(t, r.Kept).QueryRow("SELECT label FROM mecha_key").Scan(&label); err != nil || label != "!!" {
		t.Errorf("%q, %v", label, err)
	}
	if _, said, _ := found(t, r.Kept); said != "" {
		t.Error(said)
	}
}

// A copy has the properties of its source, except WAL mode.
func TestABackupKeepsTheKindOfFile(t *testing.T) {
	t.Parallel()
	from, to := mustFill(t), filepath.Join(t.TempDir(), "backup.db")
	if _, err := file.Backup(ctx, file.BackupOptions{From: from, To: to, Schema: schema(t)}); err != nil {
		t.Fatal(err)
	}
	d := byHand(t, to)
	for pragma, want := range map[string]string{
		"page_size": "4096", "auto_vacuum": "2", "journal_mode": "delete", "application_id": "1380273241", "user_version": strconv.Itoa(current),
	} {
		var got string
		if err := d.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, %v; want %s", pragma, got, err, want)
		}
	}
	d.Close()
	s := mustOpen(t, func(o *db.Options) { o.Path, o.Create = to, false })
	alice := s.mustIssue("alice^demo")
	s.mustSend(alice.Key, "bob^demo", `{}`)
}

// A copy is a consistent snapshot, however many writes are made meanwhile, and it does
// not begin again for them, as SQLite's own backup does.
func TestABackupIsOfOneState(t *testing.T) {
	t.Parallel()
	s := mustOpen(t)
	alice := s.mustIssue("alice^demo")
	payload := `{"text": "` + strings.Repeat("x", 1<<20) + `"}`
	for range 8 {
		s.mustSend(alice.Key, "alice^demo", payload)
	}
	to, slices := filepath.Join(t.TempDir(), "backup.db"), 0
	ctx, cancel := context.WithCancel(t.Context())
	r, err := file.Backup(ctx, file.BackupOptions{From: s.Path(), To: to, Schema: schema(t), Progress: func(what string, _, _ int64) {
		if what != "copying" {
			return
		}
		if slices++; slices > 50 {
			cancel()
			return
		}
		s.mustSend(alice.Key, "alice^demo", payload)
	}})
	if err != nil || slices < 4 || r.Messages != 8 {
		t.Fatalf("%+v, %v, after %d slices", r, err, slices)
	}
	if _, said, copied := found(t, to); copied.Messages != 8 || said != "" {
		t.Errorf("%+v %s", copied, said)
	}
}
