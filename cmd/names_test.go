package cmd_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"relay/db/scratch"
	"relay/http/docs"
)

// openers returns commands that open the database db, one for each way of opening it.
//
// Without -long, only the first name of a test gets them all, the others a few.
func openers(t *testing.T, db string, first bool) map[string][]string {
	t.Helper()
	backup := filepath.Join(t.TempDir(), "backup.db")
	all := map[string][]string{
		"serve":        {"serve", "--addr", "127.0.0.1:0", "--db", db},
		"backup":       {"backup", backup, "--db", db},
		"key create":   {"key", "create", "x^names", "--db", db},
		"key --create": {"key", "create", "x^names", "--create", "--db", db},
		"key list":     {"key", "list", "--db", db},
		"mecha list":   {"mecha", "list", "--db", db},
		"restore from": {"restore", db, "--db", tempDB(t)},
	}
	if docs.Has("inspect") {
		all["message list"], all["stats"] = []string{"message", "list", "--db", db}, []string{"stats", "--db", db}
	}
	if docs.Has("check") {
		all["check"], all["check FILE"] = []string{"check", "--db", db}, []string{"check", db}
	}
	if docs.Has("compact") {
		all["compact"] = []string{"compact", "--db", db}
	}
	maps.DeleteFunc(all, func(what string, _ []string) bool {
		return !first && !scratch.Long(t) && what != "serve" && what != "key create" && what != "backup"
	})
	return all
}

// One file under two names would have two logs. So no command opens it under either
// name. A server that has it open continues. With one name left, all commands open it again.
func TestAFileWithTwoNamesIsOpenedByNobody(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := filepath.Join(t.TempDir(), "relay.db") // in the file system of the second folder, which gets a link
	a := issue(t, db, "a^names")[0]
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	s := startProcess(t, db)
	s.send(a, a.Address, `{"n":1}`)
	for _, other := range []string{filepath.Join(filepath.Dir(db), "other.db"), filepath.Join(t.TempDir(), "relay.db")} {
		if err := os.Link(db, other); err != nil {
			t.Skip("no hard links here: ", err)
		}
		beside := filepath.Dir(other) == filepath.Dir(db)
		for _, served := range []bool{true, false} {
			for _, name := range []string{db, other} {
				if !beside && !served {
					continue // as next to it
				}
				says := []string{name, "2 names", "find / -xdev -samefile"}
				if beside {
					says[2] = "rm " + map[string]string{db: other, other: db}[name]
				}
				for what, args := range openers(t, name, beside && served && name == db) {
					if r := runRefused(t, args, nil).wantCode(t, 1, says...); r.out != "" || strings.Contains(r.err, "malformed") {
						t.Errorf("%s, served: %v: %+v", what, served, r)
					}
				}
				runRelay(t, "restore", backup, "--db", name, "--force").wantCode(t, 1, name)
			}
			if served {
				s.send(a, a.Address, `{"n":2}`)
				s.kill()
			}
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		s = startProcess(t, db)
	}
	wantWhole(t, db)
	if h := s.history(a, ""); len(h) != 3 {
		t.Errorf("%d messages of 3", len(h))
	}
}

// The command that the error gives can be pasted, whatever the names are.
func TestTheOtherNameOfADatabaseIsShownAsAWordOfAShell(t *testing.T) {
	notOnWindows(t, "there is no POSIX shell")
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "Bob's files")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db, other := filepath.Join(dir, "relay.db"), filepath.Join(dir, "a copy; or not.db")
	mustRelay(t, "key", "create", "a^names", "--create", "--db", db)
	if err := os.Link(db, other); err != nil {
		t.Skip("no hard links here: ", err)
	}
	r := runRelay(t, "key", "create", "b^names", "--db", db).wantCode(t, 1, "2 names")
	_, command, found := strings.Cut(strings.TrimSpace(r.err), "stays): ")
	if !found {
		t.Fatal(r.err)
	}
	finish(t, exec.Command("sh", "-c", command), nil, "").wantCode(t, 0)
	if _, err := os.Lstat(other); err == nil {
		t.Errorf("%s is still there after %s", other, command)
	}
	mustRelay(t, "key", "create", "b^names", "--db", db)
}

// A backup has no log, so it may have several names: backup programs that keep many days make links.
func TestABackupMayHaveManyNames(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "a^names")
	backup := filepath.Join(t.TempDir(), "monday.db")
	mustRelay(t, "backup", backup, "--db", db)
	if err := os.Link(backup, filepath.Join(filepath.Dir(backup), "tuesday.db")); err != nil {
		t.Skip("no hard links here: ", err)
	}
	wantWhole(t, backup)
	mustRelay(t, "restore", backup, "--db", tempDB(t))
	runRelay(t, "serve", "--addr", "127.0.0.1:0", "--db", backup).wantCode(t, 1, "2 names", "tuesday.db")
	runRelay(t, "key", "create", "b^names", "--db", backup).wantCode(t, 1, "2 names", "tuesday.db")
}

// A restore gives the old file a second name before it replaces the first. Killed in
// between, it leaves both. The next restore takes the second name away; all other commands say what it is.
func TestTheSecondNameThatAKilledRestoreLeaves(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "a^names")
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	mustRelay(t, "restore", backup, "--db", db, "--force", "--json") // makes the lock, as the killed one did
	kept := db + ".before-restore-20261122T101112.000Z"
	if err := os.Link(db, kept); err != nil {
		t.Skip("no hard links here: ", err)
	}
	mustRelay(t, "key", "list", "--db", backup)
	runRelay(t, "serve", "--addr", "127.0.0.1:0", "--db", db).wantCode(t, 1, "2 names", "relay restore that was killed", "rm "+kept)
	r := parse[struct{ Kept string }](t, []byte(mustRelay(t, "restore", backup, "--db", db, "--force", "--json")))
	if _, err := os.Lstat(kept); err == nil {
		t.Error("the name is still there")
	}
	wantWhole(t, db)
	wantWhole(t, r.Kept)
}
