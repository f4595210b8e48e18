package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"relay/db/internal/sqlite"
)

// A reading connection and one that copies the log read the schema late. Their settings still
// hold, and they have the log open from the start: a file that replaces it later does not
// mislead them.
func TestTheFirstStatementFindsTheSettingsAndTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w := mustOpen(t, path, sqlite.Creating)
	if err := w.Script("CREATE TABLE a (b); INSERT INTO a VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	readers := []*sqlite.Conn{mustOpen(t, path, sqlite.Reading), mustOpen(t, path, sqlite.Copying)}
	if err := os.Rename(path+"-wal", path+"-elsewhere"); err != nil {
		t.Skip("an open file cannot be renamed here: ", err)
	}
	if err := os.WriteFile(path+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range readers {
		if n, err := c.Number("SELECT b FROM a"); n != 7 || err != nil {
			t.Errorf("%d is read: %v", n, err)
		}
		for pragma, want := range map[string]int64{"synchronous": 2, "cache_size": -8192, "wal_autocheckpoint": 0, "secure_delete": 2} {
			if n, err := c.Number("PRAGMA " + pragma); n != want || err != nil {
				t.Errorf("%s is %d, not %d: %v", pragma, n, want, err)
			}
		}
	}
	if err := readers[0].Exec("INSERT INTO a VALUES (8)"); err == nil {
		t.Error("a reading connection writes")
	}
}

func mustOpen(t *testing.T, path string, r sqlite.Role) *sqlite.Conn {
	t.Helper()
	c, err := sqlite.Open(path, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A path may be relative to the folder that the process is in.
func TestOpenTakesARelativePath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("relay.db", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.Open("relay.db", sqlite.Creating)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Script("CREATE TABLE here (x)"); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "relay.db")); err != nil || info.Size() == 0 {
		t.Errorf("the file has not been written: %v", err)
	}
}
