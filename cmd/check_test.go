package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type finding struct {
	Check, Rule, File string
	Faults            int
	OK                bool
	Examples          []string
}

// findings reads what check --json prints: a line for each check, and one for all.
func findings(t *testing.T, out string) (all []finding, sum finding) {
	t.Helper()
	for line := range strings.Lines(out) {
		all = append(all, parse[finding](t, []byte(line)))
	}
	if len(all) == 0 {
		t.Fatal("nothing was printed")
	}
	return all[:len(all)-1], all[len(all)-1]
}

func TestACheckTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^check")[0]
	s := startServer(t, db)
	s.send(a, a.Address, `{"n": 1}`)
	s.end()
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)

	for _, name := range []string{db, backup} {
		r := runRelay(t, "check", name).wantCode(t, 0)
		if !strings.Contains(r.out, "\nchains         ok\n") || !strings.HasSuffix(r.out, "no faults\n") || !strings.Contains(r.out, name+": 1 messages, 1 Mechas") || r.err != "" {
			t.Errorf("%s\n%s", r.out, r.err)
		}
		all, sum := findings(t, runRelay(t, "check", name, "--json").wantCode(t, 0).out)
		if len(all) < 20 || !sum.OK || sum.File != name {
			t.Errorf("%+v, %+v", all, sum)
		}
	}
	wantFiles(t, filepath.Dir(backup), "backup.db")

	flip(t, backup, 3)
	r := runRelay(t, "check", backup).wantCode(t, 1)
	if !strings.HasPrefix(r.out, "file           ") || strings.Contains(r.out, "no faults") || r.err != "" {
		t.Errorf("%s\n%s", r.out, r.err)
	}
	all, sum := findings(t, runRelay(t, "check", backup, "--json").wantCode(t, 1).out)
	if all[0].Check != "file" || all[0].Faults == 0 || len(all[0].Examples) == 0 || sum.OK || sum.Faults == 0 {
		t.Errorf("%+v, %+v", all, sum)
	}
	wantFiles(t, filepath.Dir(backup), "backup.db")

	content, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(backup, int64(len(content)/2)); err != nil {
		t.Fatal(err)
	}
	runRelay(t, "check", backup).wantCode(t, 1, backup, "is damaged", "relay restore")
	wantFiles(t, filepath.Dir(backup), "backup.db")
	run(t, []string{"check", db}, []string{"RELAY_DB=" + backup}, "").wantCode(t, 0)
	runRelay(t, "check", backup, db).wantCode(t, 2, "at most one file")
}

// check reads a backup in a folder that it cannot write to.
func TestACheckNeedsNoRightToWrite(t *testing.T) {
	notOnWindows(t, "directories have no modes")
	if os.Getuid() == 0 {
		t.Skip("root may write everywhere")
	}
	db := tempDB(t)
	issue(t, db, "a^check")
	dir := filepath.Dir(db)
	if err := os.Chmod(db, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	mustRelay(t, "check", db)
	wantFiles(t, dir, "relay.db")
}
