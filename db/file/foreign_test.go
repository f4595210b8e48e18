package file_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/db"
	"relay/db/file"
	"relay/db/look"
)

// A file with a part that no relay makes is refused by all that opens it, whatever its version, and stays as it was.
func TestForeignParts(t *testing.T) {
	whole, _ := mustMakeOlder(t)
	bytes, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	undo := "CREATE TRIGGER undo AFTER UPDATE ON mecha_key BEGIN UPDATE mecha_key SET revoked_at = NULL; END"
	for _, c := range []struct{ name, named, made string }{
		{"trigger", "trigger undo", undo},
		{"trigger on a view", "view seen", "CREATE VIEW seen AS SELECT 1 AS n; CREATE TRIGGER undo INSTEAD OF INSERT ON seen BEGIN DELETE FROM payload; END"},
		{"view in place of a table", "view search", "DROP TABLE search; CREATE VIEW search AS SELECT 1"},
		{"table", "table notes", "CREATE TABLE notes (text TEXT)"},
		{"almost Litestream's", "table _litestream_other", "CREATE TABLE _litestream_other (id INTEGER)"},
		{"virtual table", "table search", "DROP TABLE search; CREATE VIRTUAL TABLE search USING fts5(text)"},
		{"trigger with a name of SQLite's", "trigger sqlite_undo", "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES " +
			"('trigger', 'sqlite_undo', 'mecha_key', 0, '" + strings.Replace(undo, "undo", "sqlite_undo", 1) + "')"},
		{"table with a name of SQLite's", "table sqlite_notes", "CREATE TABLE notes (a); PRAGMA writable_schema = ON; " +
			"UPDATE sqlite_schema SET name = 'sqlite_notes', tbl_name = 'sqlite_notes', sql = 'CREATE TABLE sqlite_notes (a)' WHERE name = 'notes'"},
		{"virtual table in other words", "table search", "PRAGMA writable_schema = ON; " +
			"DELETE FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'search'; " +
			"UPDATE sqlite_schema SET sql = 'CREATE/**/VIRTUAL TABLE search USING fts5(text)' WHERE name = 'search'"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "relay.db")
			if err := os.WriteFile(path, bytes, 0o600); err != nil {
				t.Fatal(err)
			}
			execute(t, path, c.made)
			for _, pretended := range [][]string{nil, {step}} { // as a file of this version, and of an older one
				defer file.Pretend(pretended...)()
				for name, open := range map[string]func() error{
					"serve": func() error {
						_, err := db.Open(db.Options{Path: path, Schema: schema(t) + step, Serve: true})
						return err
					},
					"inspect": func() error { _, err := look.Inspect(path); return err },
					"check": func() error {
						_, err := file.Check(t.Context(), file.CheckOptions{Path: path, Schema: schema(t), Report: func(file.Finding) {}})
						return err
					},
					"backup": func() error {
						_, err := file.Backup(t.Context(), file.BackupOptions{From: path, To: path + ".copy", Schema: schema(t)})
						return err
					},
					"restore": func() error {
						_, err := file.Restore(t.Context(), file.RestoreOptions{BackupOptions: file.BackupOptions{From: path, To: path + ".new", Schema: schema(t)}})
						return err
					},
				} {
					if err := open(); err == nil || !strings.Contains(err.Error(), c.named) {
						t.Errorf("%s, %d upgrades: %v", name, len(pretended), err)
					}
				}
			}
		})
	}
}
