package cmd_test

import (
	"bytes"
	"database/sql"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

func TestTwoServersCannotServeOneFile(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	s := startProcess(t, db)
	runRefused(t, []string{"serve", "--addr", "127.0.0.1:0", "--db", db}, nil).wantCode(t, 1, db, "already being served")

	a := issue(t, db, "a^files")[0]
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200) // the first one continues
	s.kill()
	startServer(t, db).ask(a, "GET", "/api/v1/whoami", "").want(t, 200) // the lock ends with the process
}

func TestTwoServersCannotServeOneFileUnderTwoNames(t *testing.T) {
	notOnWindows(t, "links need privileges")
	db := tempDB(t)
	startProcess(t, db)
	link := tempDB(t)
	if err := os.Symlink(db, link); err != nil {
		t.Fatal(err)
	}
	s := launch(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", link), nil)
	if said := s.await(s.stderr, `already being served|msg=serving`)[0]; said == "msg=serving" || s.wait() != 1 {
		t.Errorf("both serve:\n%s", s.stderr)
	}
}

// The offsets in SQLite's header: https://sqlite.org/fileformat.html#the_database_header
const (
	userVersionAt   = 60
	applicationIDAt = 68
)

// patched returns a database that was closed cleanly, with one number of its header changed.
func patched(t *testing.T, at int, value uint32) (db string, content []byte) {
	t.Helper()
	db = tempDB(t)
	issue(t, db, "a^files")
	content, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	content[at], content[at+1], content[at+2], content[at+3] = byte(value>>24), byte(value>>16), byte(value>>8), byte(value)
	if err := os.WriteFile(db, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return db, content
}

func TestAFileThatIsNotOursIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	newer, newerContent := patched(t, userVersionAt, 99)
	foreign, foreignContent := patched(t, applicationIDAt, 0x0f055112)
	early, earlyContent := patched(t, applicationIDAt, 0x524c4159)
	text, textContent := tempDB(t), bytes.Repeat([]byte("These are my notes.\n"), 1000)
	if err := os.WriteFile(text, textContent, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		db      string
		content []byte
		says    string
	}{
		{newer, newerContent, "newer relay (schema 99; this one knows"},
		{foreign, foreignContent, "not relay's"},
		{early, earlyContent, "from before the first release"},
		{text, textContent, "not a database"},
	} {
		for _, args := range [][]string{
			{"serve", "--addr", "127.0.0.1:0"}, {"key", "list"}, {"key", "create", "b^files"}, {"key", "revoke", "key_7h2k9d0m4qx1w8zt"},
		} {
			r := runRefused(t, append(args, "--db", c.db), nil).wantCode(t, 1, c.db, c.says)
			if r.out != "" {
				t.Errorf("%v printed %q", args, r.out)
			}
		}
		if now, err := os.ReadFile(c.db); err != nil || !bytes.Equal(now, c.content) {
			t.Errorf("%s (%s) was changed: %v", c.db, c.says, err)
		}
	}
}

func TestACommandThatOnlyLooksCreatesNoDatabase(t *testing.T) {
	db := tempDB(t)
	for _, args := range [][]string{{"key", "list"}, {"key", "revoke", "key_7h2k9d0m4qx1w8zt"}, {"key", "rotate", "key_7h2k9d0m4qx1w8zt"}} {
		runIn(t, filepath.Dir(db), append(args, "--db", "relay.db")...).wantCode(t, 1, "no database at "+db)
	}
	wantFiles(t, filepath.Dir(db))
}

func TestUsageErrorsCreateNoDatabase(t *testing.T) {
	db := tempDB(t)
	for _, args := range [][]string{
		{"serve", "--clock-skew", "1s"}, {"serve", "--max-headers", "4096"}, {"serve", "--log-format", "xml"}, {"serve", "--max-body=-1"}, {"serve", "now"},
		{"key", "create", "nobody"}, {"key", "create", "a^b", "--expires", "soon"},
	} {
		runRefused(t, append(args, "--db", db), nil).wantCode(t, 2, "Try: relay")
	}
	wantFiles(t, filepath.Dir(db))
}

func TestNobodyElseCanReadTheFiles(t *testing.T) {
	notOnWindows(t, "files have no modes")
	tool(t, "sh")
	t.Parallel()
	db := tempDB(t)
	// The umask forbids nothing.
	c := exec.Command("sh", "-c", `umask 0; exec "$0" key create a^files --create --json --db "$1"`, binary, db)
	a := agents(t, finish(t, c, nil, "").wantCode(t, 0).out)[0]
	wantFiles(t, filepath.Dir(db), "relay.db")

	s := launch(t, exec.Command("sh", "-c", `umask 0; exec "$0" serve --addr 127.0.0.1:0 --db "$1"`, binary, db), nil)
	s.db, s.url = db, s.await(s.stderr, `url=(http://\S+)`)[1]
	s.send(a, "a^files", `{}`)
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db-shm", "relay.db-wal", "relay.db.admin.sock", "relay.db.index", "relay.db.lock")
	if info, err := os.Stat(db + ".index"); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%s.index: %v, %v; want drwx------", db, info.Mode(), err)
	}
	if info, err := os.Stat(db + ".admin.sock"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s.admin.sock: %v, %v; want srw-------", db, info.Mode(), err)
	}
	for _, suffix := range []string{"", "-wal", "-shm", "-nonces", ".lock"} {
		if info, err := os.Stat(db + suffix); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s%s: %v, %v; want -rw-------", db, suffix, info.Mode(), err)
		}
	}
}

// byHand opens a database by SQLite alone, until the test ends.
func byHand(t testing.TB, path string) *sql.DB {
	t.Helper()
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.ToSlash(path)}).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		have = append(have, e.Name())
	}
	if !slices.Equal(have, want) {
		t.Fatalf("%s has %v, want %v", dir, have, want)
	}
}

func TestAPathMayHaveAnyCharacters(t *testing.T) {
	name := "a b%41;c&d=e.db"
	if os.PathSeparator == '/' {
		name = "a b?mode=memory#c%41;d&e=ü^.db"
	}
	db := filepath.Join(t.TempDir(), name)
	a := issue(t, db, "a^files")[0]
	s := startServer(t, db)
	s.send(a, "a^files", `{}`)
	s.end()
	if _, err := os.Stat(db); err != nil {
		t.Error(err)
	}
}

// A file is created in steps, and a kill may come after any of them.
func TestKilledWhileItStartsItStartsAgain(t *testing.T) {
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	n := rounds(t, 4, 60)
	db := tempDB(t)
	made := 0
	for range n {
		s := launch(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", db), nil)
		time.Sleep(rand.N(30 * time.Millisecond)) // any moment is good
		s.kill()
		if rand.IntN(2) == 0 {
			continue // and killed again
		}
		a := issue(t, db, "a^start")[0]
		s = startServer(t, db)
		s.send(a, "a^start", `{}`)
		if h := s.history(a, ""); len(h) != 1 {
			t.Fatalf("%+v", h)
		}
		s.end()
		db = tempDB(t)
		made++
	}
	t.Logf("%d kills, %d files", n, made)
}

func TestManyProcessesMayMakeTheFileAtOnce(t *testing.T) {
	t.Parallel()
	for range rounds(t, 1, 9) {
		db := tempDB(t)
		s := launch(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", db), nil)
		var wg sync.WaitGroup
		results := make([]result, 8)
		for i := range results {
			wg.Go(func() { results[i] = runRelay(t, "key", "create", "a^files", "--create", "--json", "--db", db) })
		}
		wg.Wait()
		s.url = s.await(s.stderr, `url=(http://\S+)`)[1]
		for _, r := range results {
			a := agents(t, r.wantCode(t, 0).out)
			if len(a) == 1 {
				s.ask(a[0], "GET", "/api/v1/whoami", "").want(t, 200)
			}
		}
		s.kill()
	}
}

// A server whose file is no longer a database must stop, with the exit code for
// which a supervisor starts it again.
func TestADamagedFileStopsTheProcess(t *testing.T) {
	notOnWindows(t, "an open file cannot be overwritten")
	db := tempDB(t)
	a := issue(t, db, "a^damage")[0]
	s := startProcess(t, db)
	s.send(a, "a^damage", `{}`)
	for _, name := range []string{db, db + "-wal"} {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte("damage\n"), 40_000), 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	// The answer does not matter: the request makes the server read the damaged part.
	_, _ = a.request("GET", "/api/v1/mecha/a^damage/messages?include=payload", "").to(s.url)
	if code := s.wait(); code != 75 {
		t.Errorf("exit %d, want 75", code)
	}
}
