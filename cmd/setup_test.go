package cmd_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// house is a user's home folder, and the environment of a shell in it.
type house struct {
	t   *testing.T
	dir string
	env []string
}

func newHouse(t *testing.T, env ...string) *house {
	t.Helper()
	dir := t.TempDir()
	env = append([]string{"HOME=" + dir, "USERPROFILE=" + dir, "APPDATA=" + filepath.Join(dir, "AppData", "Roaming"), "XDG_CONFIG_HOME=", "XDG_STATE_HOME=", "CLAUDE_CONFIG_DIR=", "CODEX_HOME="}, env...)
	return &house{t, dir, env}
}

func (h *house) path(name string) string { return filepath.Join(h.dir, filepath.FromSlash(name)) }

func (h *house) write(name, text string) string {
	h.t.Helper()
	path := h.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return path
}

func (h *house) read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

// files returns all files in the house by their names, but for the relay's own state.
func (h *house) files() map[string]string {
	h.t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(h.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.Contains(name, "state/relay") {
			all[name] = h.read(name)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h *house) relay(args ...string) result {
	h.t.Helper()
	return run(h.t, args, h.env, "")
}

// claudeHook is the hook that Claude Code's settings name, as its shell runs it.
func (h *house) claudeHook() (command string) {
	h.t.Helper()
	settings := parse[struct {
		Hooks struct {
			Stop []struct {
				Hooks []struct {
					Type, Command string
					AsyncRewake   bool
					Timeout       int
				}
			}
		}
	}](h.t, []byte(h.read(".claude/settings.json")))
	for _, group := range settings.Hooks.Stop {
		for _, hook := range group.Hooks {
			if hook.Type == "command" && hook.AsyncRewake && hook.Timeout > 24*60*60 {
				command = hook.Command
			}
		}
	}
	return command
}

// From a key to a session that is woken: the configuration that setup writes is used as
// the program would, and undone.
func TestSetupOfClaudeCode(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "the hook is a line of sh")
	p := newPair(t)
	h := newHouse(t, "RELAY_URL="+p.url, "RELAY_KEY="+p.bob.Key)
	h.write(".claude.json", "{\n  \"numStartups\": 4\n}\n")
	h.write(".claude/settings.json", `{"model": "opus"}`)
	before := h.files()

	dry := h.relay("setup", "claude-code", "--dry-run").wantCode(t, 0, "Nothing was changed")
	if !strings.Contains(dry.out, "\n+   \"mcpServers\": {\n") || !strings.Contains(dry.out, "would be changed") || len(h.files()) != len(before) {
		t.Errorf("%s", dry.out)
	}
	r := h.relay("setup", "claude-code").wantCode(t, 0, "Restart Claude Code")
	if strings.Count(r.out, "changed; before: ") != 2 {
		t.Errorf("%s", r.out)
	}
	keys := 0
	for name, text := range h.files() {
		if strings.Contains(text, p.bob.Key) {
			keys++
			if info, err := os.Stat(h.path(name)); err != nil || info.Mode() != 0o600 || !strings.HasSuffix(name, ".key") {
				t.Errorf("the key is in %s: %v, %v", name, info.Mode(), err)
			}
		}
	}
	if keys != 1 {
		t.Errorf("the key is in %d files", keys)
	}
	after := h.files()
	if r := h.relay("setup", "claude-code").wantCode(t, 0); strings.Count(r.out, "nothing to change") != 2 || len(h.files()) != len(after) {
		t.Errorf("%s", r.out)
	}

	// The hook, by a shell as Claude Code has it: with neither key nor URL in the environment.
	c := exec.Command("sh", "-c", h.claudeHook())
	c.Stdin = strings.NewReader(`{"session_id":"abc","hook_event_name":"Stop"}`)
	hook := launch(t, c, newHouse(t, "HOME="+h.dir).env)
	id := p.send(p.alice, "bob^talk", `{}`).MessageID
	hook.wantBell(id)

	r = h.relay("setup", "claude-code", "--undo", "--dry-run").wantCode(t, 0)
	if strings.Count(r.out, "would be as it was before") != 2 || len(h.files()) != len(after) {
		t.Errorf("%s", r.out)
	}
	h.relay("setup", "claude-code", "--undo").wantCode(t, 0)
	for name, text := range h.files() {
		if before[name] != text {
			t.Errorf("%s is left: %s", name, text)
		}
	}
	if r := h.relay("setup", "claude-code", "--undo").wantCode(t, 0); strings.Count(r.out, "nothing to change") != 2 {
		t.Errorf("%s", r.out)
	}
}

// The server that is configured gets its key from a file, as relay mcp would: whoami
// stands for it here.
func TestSetupOfTheOthers(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	project := t.TempDir()
	for program, file := range map[string]string{"cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json"} {
		h := newHouse(t)
		key := h.write("my key.txt", p.bob.Key+"\n")
		r := h.relay("setup", program, "--url", p.url, "--key-file", key, "--project", project, "--json").wantCode(t, 0)
		path := filepath.Join(project, filepath.FromSlash(file))
		if c := parse[map[string]any](t, []byte(r.out)); c["change"] != "create" || c["file"] != path {
			t.Errorf("%s", r.out)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		type servers map[string]struct {
			Type, Command string
			Args          []string
			Env           map[string]string
		}
		all := parse[struct {
			MCPServers servers `json:"mcpServers"`
			Servers    servers
		}](t, text)
		s := all.Servers["relay"]
		if program == "cursor" {
			s = all.MCPServers["relay"]
		}
		if s.Type != "stdio" || strings.Join(s.Args, " ") != "mcp" || s.Env["RELAY_KEY_FILE"] != key || len(s.Env) != 2 {
			t.Errorf("%s: %+v", program, s)
		}
		var env []string
		for k, v := range s.Env {
			env = append(env, k+"="+v)
		}
		if out := finish(t, exec.Command(s.Command, "whoami", "--json"), env, "").wantCode(t, 0).out; !strings.Contains(out, `"bob^talk"`) {
			t.Errorf("%s", out)
		}
		h.relay("setup", program, "--project", project, "--undo").wantCode(t, 0)
	}
	if left, err := os.ReadDir(project); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
	h := newHouse(t, "RELAY_KEY="+p.bob.Key, "RELAY_SIGNING_SECRET=ms_x")
	h.relay("setup", "codex", "--url", p.url).wantCode(t, 0)
	if text := h.read(".codex/config.toml"); !strings.Contains(text, "[mcp_servers.relay]\n") || !strings.Contains(text, "RELAY_SIGNING_SECRET_FILE = ") || strings.Contains(text, "ms_x") {
		t.Errorf("%s", text)
	}
}

func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	k := issue(t, tempDB(t), "bob^x")[0]
	h := newHouse(t, "RELAY_KEY="+k.Key)
	h.write(".cursor/mcp.json", "{\n  \"mcpServers\": [\n}\n")
	open := h.write("open.key", k.Key)
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	before := h.files()
	for _, c := range []struct {
		code int
		says string
		args string
	}{
		{2, `unknown program "cursr"; did you mean "cursor"?`, "cursr"},
		{2, "one program: claude-code, codex, cursor, vscode", ""},
		{1, "mcp.json: line 3, column 1: invalid character '}' looking for beginning of value. The file was left as it is", "cursor"},
		{1, "mcp.json: line 3, column 1", "cursor --undo"},
		{2, "has a password", "codex --url http://ann:secret@127.0.0.1:1"},
		{2, "must begin with http", "codex --url nowhere"},
		{2, "the folder \"/nowhere/at/all\" does not exist", "codex --project /nowhere/at/all"},
		{1, "absent", "codex --key-file /absent"},
		{1, "has no certificate", "codex --ca-file " + open},
	} {
		r := h.relay(append([]string{"setup"}, strings.Fields(c.args)...)...).wantCode(t, c.code, c.says)
		if strings.Contains(r.err+r.out, "secret") {
			t.Errorf("%s: %s", c.args, r.err)
		}
	}
	if runtime.GOOS != "windows" {
		h.relay("setup", "codex", "--key-file", open).wantCode(t, 1, "others may read", "chmod 600")
	}
	run(t, []string{"setup", "codex"}, append(h.env, "RELAY_KEY=mk_wrong"), "").wantCode(t, 1, "not of the form mk_")
	run(t, []string{"setup", "codex"}, append(h.env, "RELAY_KEY="), "").wantCode(t, 2, "no key")
	if after := h.files(); len(after) != len(before) {
		t.Errorf("%v", after)
	}
}

type diagnosis struct {
	OK       bool
	Findings []struct{ Check, State, Text, Cure string }
}

// doctor runs relay doctor, and gives the texts of each check.
func (h *house) doctor(code int, args ...string) (all diagnosis) {
	h.t.Helper()
	r := h.relay(append([]string{"doctor", "--json"}, args...)...).wantCode(h.t, code)
	if err := json.Unmarshal([]byte(r.out), &all); err != nil || all.OK != (code == 0) {
		h.t.Fatalf("%v: %s%s", err, r.out, r.err)
	}
	return all
}

func (f diagnosis) want(t *testing.T, check, state, text string) {
	t.Helper()
	for _, one := range f.Findings {
		if one.Check == check && one.State == state && strings.Contains(one.Text, text) {
			return
		}
	}
	t.Errorf("no %s of %s with %q in %+v", state, check, text, f.Findings)
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	p := newPairWithProcess(t)
	h := newHouse(t)
	h.doctor(1).want(t, "key", "problem", "There is no key")

	h.env = append(h.env, "RELAY_URL="+p.url, "RELAY_KEY="+p.bob.Key)
	p.send(p.alice, "bob^talk", `{}`)
	f := h.doctor(0)
	f.want(t, "server", "ok", "is ready")
	f.want(t, "key", "ok", "belongs to bob^talk ("+p.bob.KeyID+")")
	f.want(t, "clock", "ok", "agrees")
	f.want(t, "messages", "note", "bob^talk has 1 pending message")
	f.want(t, "program", "note", "Codex is not configured")

	for _, program := range []string{"claude-code", "codex", "cursor", "vscode"} {
		h.relay("setup", program).wantCode(t, 0)
	}
	h.env = h.env[:len(h.env)-2] // from here on, by what the programs have
	f = h.doctor(0)
	for _, title := range []string{"Claude Code", "Codex", "Cursor", "VS Code"} {
		f.want(t, "program", "ok", title+" is configured to start "+binary+" mcp.")
	}
	f.want(t, "key", "ok", "The key of Claude Code belongs to bob^talk")
	f.want(t, "bell", "note", "No session waits now")
	if text := h.relay("doctor").wantCode(t, 0).out; !strings.HasPrefix(text, "ok       Claude Code is configured") || strings.Contains(text, "problem") {
		t.Errorf("%s", text)
	}

	if runtime.GOOS != "windows" {
		hook := func() *server {
			c := exec.Command("sh", "-c", h.claudeHook())
			c.Stdin = strings.NewReader(`{"session_id":"the one"}`)
			return launch(t, c, h.env)
		}
		if code := hook().wait(); code != 2 {
			t.Errorf("exit %d", code)
		}
		h.doctor(0).want(t, "bell", "note", `The session "the one" does not wait for bob^talk now`)
		waiting := hook()
		eventually(t, patience, "the hook waits", func() bool {
			for _, one := range h.doctor(0).Findings {
				if one.Check == "bell" && strings.Contains(one.Text, `The session "the one" waits for bob^talk`) && strings.Contains(one.Text, "not answered yet") {
					return true
				}
			}
			return false
		})
		select { // the doctor has not disturbed it
		case <-waiting.exited:
			t.Errorf("exit %d: %s", waiting.cmd.ProcessState.ExitCode(), waiting.stderr)
		case <-time.After(2 * time.Second):
		}
	}

	// Each fault is reported with its fix.
	settings := h.read(".claude/settings.json")
	h.write(".claude/settings.json", "{}")
	h.write(".codex/config.toml", strings.Replace(h.read(".codex/config.toml"), binary, "/nowhere/relay", 1))
	h.write(".cursor/mcp.json", "{")
	f = h.doctor(1)
	f.want(t, "program", "problem", "Claude Code has the MCP server, but not the hook")
	f.want(t, "program", "problem", "Codex starts /nowhere/relay, which is not a program")
	f.want(t, "program", "problem", "Cursor: the configuration cannot be used")
	h.write(".claude/settings.json", settings)
	h.relay("setup", "codex", "--url", p.url, "--key-file", h.write("k", p.bob.Key)).wantCode(t, 0)
	mustRelay(t, "key", "revoke", p.bob.KeyID, "--db", p.db)
	eventually(t, patience, "the key is refused", func() bool {
		return strings.Contains(h.relay("doctor").out, "The relay refuses the key of Claude Code")
	})
	p.kill()
	f = h.doctor(1)
	f.want(t, "server", "problem", "The relay at "+p.url+" does not answer")
	for _, one := range f.Findings {
		if one.State == "problem" && one.Check == "server" && !strings.Contains(one.Cure, "relay serve") {
			t.Errorf("%+v", one)
		}
	}
}
