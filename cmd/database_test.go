package cmd_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A user who may not open the database is told whose it is.
func TestNoPermissionOnTheDatabase(t *testing.T) {
	notOnWindows(t, "access is by lists there")
	db := tempDB(t)
	issue(t, db, "a^denied")
	program, whose := []string{binary}, " is yours, but its mode 0000 forbids to "
	mode := os.FileMode(0)
	if os.Geteuid() == 0 { // root may read everything, but for this
		program = []string{tool(t, "setpriv"), "--bounding-set", "-dac_override,-dac_read_search", binary}
		mode, whose = 0o600, "only user 1234567 may "
		if err := os.Chown(db, 1234567, -1); err != nil {
			t.Skip(err)
		}
	}
	if err := os.Chmod(db, mode); err != nil {
		t.Fatal(err)
	}
	refused := func(args string) {
		t.Helper()
		all := append(append([]string{}, program...), strings.Fields(args)...)
		r := finish(t, exec.Command(all[0], append(all[1:], "--db", db)...), nil, "").wantCode(t, 1, db+": permission denied: ", whose)
		if strings.Contains(r.err, "unable to open") {
			t.Errorf("%s: %s", args, r.err)
		}
	}
	for _, args := range present("key list", "mecha list", "message list", "stats", "check", "compact",
		"backup "+db+".copy", "serve --addr 127.0.0.1:0") {
		refused(args)
	}
	finish(t, exec.Command(program[0], append(program[1:], "restore", db, "--db", tempDB(t))...), nil, "").wantCode(t, 1, db+": permission denied: ", whose)

	dir := filepath.Dir(db)
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 1234567, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	whose = dir + " "
	refused("key list")
	refused("mecha list")
}

// A command that only reads does not bring a file up to date that an older relay may still serve: it
// says what does, and leaves the file as it is. The newer relay is one that knows a further schema.
func TestCommandsThatReadLeaveAnOlderFileAsItIs(t *testing.T) {
	notQuick(t) // it builds a relay; TestAnOlderFileIsBroughtUpToDate reads such a file
	t.Parallel()
	newer := buildChanged(t, []change{{"../db/file/schema.go", "var upgrades []string", "var upgrades = []string{`CREATE TABLE further (id INTEGER PRIMARY KEY) STRICT`}"}})
	path := tempDB(t)
	issue(t, path, "a^older")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range present("mecha list", "mecha show a^older", "mecha profile get a^older", "key list", "key list a^older", "message list", "stats", "audit", "why msg_0") {
		r := finish(t, exec.Command(newer, append(strings.Fields(args), "--db", path)...), nil, "")
		r.wantCode(t, 1, "written by an older relay", "relay serve brings it up to date")
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed, or %v", err)
	}
	wantFiles(t, filepath.Dir(path), "relay.db")
}

// An error of SQLite about a damaged page says which file it is, and what to do.
func TestADamagedPageIsReportedWithItsFile(t *testing.T) {
	t.Parallel()
	path := tempDB(t)
	issue(t, path, "a^damage")
	d := byHand(t, path)
	defer d.Close()
	pages, size := map[string]int64{"mecha": 0, "setting": 0, "unlisted": 0}, int64(0)
	for table := range pages {
		var page int64
		if err := d.QueryRow("SELECT page_size, rootpage FROM pragma_page_size, sqlite_schema WHERE name = ?", table).Scan(&size, &page); err != nil {
			t.Fatal(err)
		}
		pages[table] = page
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for table, commands := range map[string][]string{
		"mecha":    {"mecha list", "stats", "key create b^damage", "mecha remove a^damage", "prune --older-than 1d", "compact"},
		"setting":  {"mecha list", "key list", "message list", "key create b^damage", "restore"},
		"unlisted": {"prune --older-than 1d", "compact"},
	} {
		bad := slices.Clone(whole)
		copy(bad[(pages[table]-1)*size:][:size], bytes.Repeat([]byte{0xee}, int(size)))
		for _, args := range present(commands...) {
			path := tempDB(t)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			all := append(strings.Fields(args), "--db", path)
			if args == "restore" {
				all = []string{"restore", path, "--db", tempDB(t)}
			}
			r := runRelay(t, all...).wantCode(t, 1, path+" is damaged (relay restore puts a backup in its place): ")
			if strings.Count(r.err, path) != 1 {
				t.Errorf("%s: %s", args, r.err)
			}
		}
	}
}

// A command that reads says so if an interrupt has kept it from reading everything.
func TestAnInterruptedListSaysSo(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no SIGINT for others")
	var lines strings.Builder
	for i := range 3000 { // six pages of the directory, and more than a pipe holds
		fmt.Fprintf(&lines, `{"mecha_id":"m%d^list","profile":{"description":"number %d of many"}}`+"\n", i, i)
	}
	db := tempDB(t)
	register(t, db, lines.String())
	eventually(t, patience, "a list is interrupted", func() bool { // the interrupt may come when all has been read
		c := exec.Command(binary, "mecha", "list", "--json", "--db", db)
		out, err := c.StdoutPipe()
		var stderr strings.Builder
		c.Env, c.Stderr = environ(), &stderr
		if err = cmp.Or(err, c.Start()); err != nil {
			t.Fatal(err)
		}
		out.Read(make([]byte, 1)) // it has begun, and waits until the rest is read
		c.Process.Signal(os.Interrupt)
		io.Copy(io.Discard, out)
		c.Wait()
		return c.ProcessState.ExitCode() == 1 && strings.Contains(stderr.String(), "interrupted: not everything was read")
	})
}
