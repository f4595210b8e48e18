package db_test

import (
	"path/filepath"
	"strings"
	"testing"

	"relay/db"
)

// What another command wrote into a file that has lost its name would be gone.
func TestAFileThatACommandHasOpenIsNotReplaced(t *testing.T) {
	backup := mustFill(t)
	s := mustOpen(t, func(o *db.Options) { o.Serve = false }) // as key create has it
	k := s.mustIssue("alice^demo")
	_, err := db.Restore(ctx, db.BackupOptions{From: backup, To: s.Path(), Schema: schema(t), Replace: true})
	if err == nil || !strings.Contains(err.Error(), "another command has "+s.Path()+" open") {
		t.Fatalf("%v", err)
	}
	s.mustSend(k.Key, "alice^demo", `{}`)
	if kept, _ := filepath.Glob(s.Path() + ".*"); len(kept) != 1 || kept[0] != s.Path()+".lock" {
		t.Errorf("%v", kept)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := db.Restore(ctx, db.BackupOptions{From: backup, To: s.Path(), Schema: schema(t), Replace: true})
	if err != nil || r.Kept == "" || r.Messages != 9 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, said, kept := found(t, r.Kept); kept.Messages != 1 || said != "" {
		t.Errorf("%+v %s", kept, said)
	}
}

// The copy is what the source is, but for the log.
func TestABackupKeepsTheKindOfFile(t *testing.T) {
	from, to := mustFill(t), filepath.Join(t.TempDir(), "backup.db")
	if _, err := db.Backup(ctx, db.BackupOptions{From: from, To: to, Schema: schema(t)}); err != nil {
		t.Fatal(err)
	}
	d := byHand(t, to)
	for pragma, want := range map[string]string{
		"page_size": "8192", "auto_vacuum": "2", "journal_mode": "delete", "application_id": "1380729177", "user_version": "2",
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
