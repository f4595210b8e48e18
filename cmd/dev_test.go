package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// pasted returns the two commands that serve --dev prints, as a person copies them.
func pasted(s *server) (send, read string) {
	s.t.Helper()
	s.await(s.stdout, `Ctrl-C`)
	for block := range strings.SplitSeq(s.stdout.String(), "\n\n") {
		switch {
		case strings.HasPrefix(block, "export RELAY_URL="):
			send = block
		case strings.HasPrefix(block, "RELAY_KEY="):
			read = block
		}
	}
	if send == "" || read == "" {
		s.t.Fatalf("no commands in:\n%s", s.stdout)
	}
	return send, read
}

func TestWhatDevPrintsWorksWhenPasted(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{nil, {"REQUIRE_MESSAGE_SIGNATURE=1"}, {"RELAY_REQUIRE_REQUEST_SIGNATURE=1"}} {
		t.Run(strings.Join(append(env, "bash"), " "), func(t *testing.T) {
			tool(t, "bash", "curl", "openssl")
			s := startServerIn(t, env, tempDB(t), "--dev")
			send, read := pasted(s)
			r := finish(t, exec.Command("bash", "-c", send+"\n"+read), nil, "").wantCode(t, 0)
			sent, seen, _ := strings.Cut(r.out, "}}")
			m := parse[record](t, []byte(sent+"}}"))
			page := parse[struct{ Messages []record }](t, []byte(seen))
			if len(page.Messages) != 1 {
				t.Fatalf("bob sees %s", seen)
			}
			got := page.Messages[0]
			if got.MessageID != m.MessageID || !strings.Contains(string(got.Payload), "hello, bob") || !got.Signed {
				t.Errorf("alice sent %+v, bob sees %+v", m, got)
			}
		})
	}
}

func TestWhatDevPrintsWorksOverTLS(t *testing.T) {
	tool(t, "bash", "curl", "openssl")
	ca, dir := newAuthority(t), filepath.Join(t.TempDir(), "bob's folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	send, read := pasted(ca.startTLS(t, dir, tempDB(t), "--dev", "--require-message-signature"))
	r := finish(t, exec.Command("bash", "-c", send+"\n"+read), nil, "").wantCode(t, 0)
	if !strings.Contains(r.out, "message_id") || !strings.Contains(r.out, "hello, bob") {
		t.Errorf("%s", r.out)
	}
}

// go run leaves the program in a temporary folder or in the build cache. Nobody
// should have to paste that path.
func TestDevUnderGoRunPrintsGoRun(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"go-build1448951487/b001/exe", "e8/" + strings.Repeat("e8", 32) + "-d"} {
		dir := filepath.Join(t.TempDir(), folder)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		program := mustLinkProgram(t, dir)
		s := launch(t, exec.Command(program, "serve", "--dev", "--addr", "127.0.0.1:0", "--db", tempDB(t)), nil)
		if _, read := pasted(s); !strings.Contains(read, " go run . curl GET ") {
			t.Errorf("in %s: %s", folder, read)
		}
	}
	if _, read := pasted(startServer(t, tempDB(t), "--dev")); !strings.Contains(read, " "+binary+" curl GET ") {
		t.Errorf("%s", read)
	}
}

// The printed commands work if the program, or the folder it is in, has a name with a space.
func TestWhatDevPrintsNamesTheProgramInQuotationMarks(t *testing.T) {
	notOnWindows(t, "there is no POSIX shell")
	dir := filepath.Join(t.TempDir(), "my tools, it's new")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := launch(t, exec.Command(mustLinkProgram(t, dir), "serve", "--dev", "--addr", "127.0.0.1:0", "--db", tempDB(t)), nil)
	_, read := pasted(s)
	r := finish(t, exec.Command("sh", "-c", "export RELAY_URL="+s.await(s.stdout, `running at (\S+)`)[1]+"\n"+read), nil, "").wantCode(t, 0)
	if !strings.Contains(r.out, `"messages"`) {
		t.Errorf("%s prints %s", read, r.out)
	}
}

func TestDevForMachines(t *testing.T) {
	db := tempDB(t)
	s := startServer(t, db, "--dev", "--json")
	v := parse[map[string]string](t, []byte(s.await(s.stdout, `(?s).*\n`)[0]))
	if v["url"] != s.url || v["db"] != db {
		t.Errorf("%v; the server is at %s with %s", v, s.url, db)
	}
	for _, address := range []string{"alice^demo", "bob^demo"} {
		a := agent{Address: address, Key: v[address]}
		who := parse[map[string]any](t, s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200))
		if who["mecha_id"] != address || who["expires_at"] == nil {
			t.Errorf("%v", who)
		}
	}
}

func TestSignaturesCanBeRequired(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^dev")[0]
	unsigned := func() request {
		r := a.request("GET", "/api/v1/whoami", "")
		r.header.Del("X-Signature")
		return r
	}
	for _, c := range []struct {
		env, args []string
		status    int
	}{
		{nil, nil, 200},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=1"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=true"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=yes"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=0"}, nil, 200},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=false"}, nil, 200},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE="}, nil, 200},
		{nil, []string{"--require-message-signature"}, 401},
		{[]string{"RELAY_REQUIRE_MESSAGE_SIGNATURE=true"}, nil, 401},
		{[]string{"REQUIRE_MESSAGE_SIGNATURE=1"}, []string{"--require-message-signature=false"}, 200},
	} {
		s := startServerIn(t, c.env, db, c.args...)
		ans, err := unsigned().to(s.url)
		if err != nil || ans.status != c.status {
			t.Errorf("%v %v: %v, %d %s; want %d", c.env, c.args, err, ans.status, ans.body, c.status)
		}
		if c.status == 401 && ans.code() != "signature_required" {
			t.Errorf("%v %v: %s", c.env, c.args, ans.body)
		}
		var who map[string]any
		if err := json.Unmarshal(s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200), &who); err != nil || who["signature_required"] != (c.status == 401) {
			t.Errorf("%v %v: %v, %v", c.env, c.args, err, who)
		}
		s.kill()
	}
}

// keyIDs gives the ids of the keys in a database.
func keyIDs(t *testing.T, db string) (ids []string) {
	for line := range strings.Lines(mustRelay(t, "key", "list", "--json", "--db", db)) {
		ids = append(ids, parse[struct {
			ID string `json:"key_id"`
		}](t, []byte(line)).ID)
	}
	return ids
}

// A start shows the keys of the start before and adds none, so that pasted commands still
// work. It replaces a key that no longer works, and only that key.
func TestDevKeepsItsKeys(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	file := db + ".dev-keys"
	start := func() map[string]string {
		t.Helper()
		s := startServer(t, db, "--dev", "--json")
		v := parse[map[string]string](t, []byte(s.await(s.stdout, `(?s).*\n`)[0]))
		for _, address := range []string{"alice^demo", "bob^demo"} {
			s.ask(agent{Address: address, Key: v[address]}, "GET", "/api/v1/whoami", "").want(t, 200)
		}
		s.kill()
		return v
	}
	differ := func(a, b map[string]string) string {
		return fmt.Sprint(a["alice^demo"] != b["alice^demo"], a["bob^demo"] != b["bob^demo"], len(keyIDs(t, db)))
	}
	first := start()
	if again := start(); differ(first, again) != "false false 2" {
		t.Errorf("the second start: alice's key, bob's key differ, and keys: %s", differ(first, again))
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	mustRelay(t, "key", "revoke", keyIDs(t, db)[0], "--db", db)
	second := start()
	if differ(first, second) != "true false 3" {
		t.Errorf("after alice's key was revoked: %s", differ(first, second))
	}
	for name, spoil := range map[string]func() error{
		"removed": func() error { return os.Remove(file) },
		"damaged": func() error { return os.WriteFile(file, []byte("null"), 0o600) },
		"of others": func() error {
			return os.WriteFile(file, []byte(`{"alice^demo":{"key_id":"key_x","key":"mk_x"}}`), 0o600)
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		before, n := second, len(keyIDs(t, db))
		if second = start(); differ(before, second) != fmt.Sprint(true, true, n+2) {
			t.Errorf("%s: %s", name, differ(before, second))
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(file, 0o644); err != nil { // others have seen the keys
		t.Fatal(err)
	}
	if third := start(); third["alice^demo"] == second["alice^demo"] {
		t.Error("keys that others may have read are shown again")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
