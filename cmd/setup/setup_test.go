package setup

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the merged files in testdata")

var testServer = Server{
	Name: "relay", Command: "/usr/local/bin/relay", Args: []string{"mcp"},
	Env:  []Field{{"RELAY_URL", "http://127.0.0.1:8080"}, {"RELAY_KEY_FILE", "/home/ann/.config/relay/keys/k.key"}},
	Hook: "exec /usr/local/bin/relay hook wait --url http://127.0.0.1:8080 --key-file /home/ann/.config/relay/keys/k.key",
}

// place is a user's folder with files of the shapes that the programs have.
type place struct {
	t    *testing.T
	home Home
	book Book
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	return &place{t, Home{Dir: dir, System: "linux", Getenv: func(string) string { return "" }}, Book(filepath.Join(t.TempDir(), "book"))}
}

func (p *place) write(path, text string) string {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		p.t.Fatal(err)
	}
	return path
}

func (p *place) read(path string) string {
	p.t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// tree is all files below the user's folder.
func (p *place) tree() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(p.home.Dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			all[path] = p.read(path)
		} else if err == nil && path != p.home.Dir {
			all[path] = d.Type().String()
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

func (p *place) mustSetUp(program string, s Server) []*Change {
	p.t.Helper()
	changes, err := p.book.Plan(p.home.Targets(program, s), nil)
	if err == nil {
		err = p.book.Apply(changes, nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return changes
}

func (p *place) mustUndo(program string) []*Change {
	p.t.Helper()
	changes, err := p.book.PlanUndo(p.home.Targets(program, testServer))
	if err == nil {
		err = p.book.Apply(changes, nil)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.book.Forget(changes)
	return changes
}

// shapes are the files of a program as they are found, and what its own text looks like
// afterwards.
func shapes(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for _, program := range Names {
		files, err := filepath.Glob(filepath.Join("testdata", program, "*.before"))
		if err != nil || len(files) == 0 {
			t.Fatal(program, files, err)
		}
		all[program] = files
	}
	return all
}

// Each file is merged as shown next to it, a second time changes nothing, and undoing gives
// it back byte for byte.
func TestFilesAreMergedAndUndone(t *testing.T) {
	for program, files := range shapes(t) {
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".before")
			t.Run(program+" "+name, func(t *testing.T) {
				p := newPlace(t)
				before := p.read(file)
				i := 0
				if strings.HasPrefix(name, "settings") {
					i = 1
				}
				path := p.write(p.home.Targets(program, testServer)[i].Path, before)
				tree := p.tree()
				if c := p.mustSetUp(program, testServer)[i]; c.What != "change" || c.Backup == "" || p.read(c.Backup) != before {
					t.Errorf("%s, backup %q", c.What, c.Backup)
				}
				got, golden := p.read(path), strings.TrimSuffix(file, ".before")+".after"
				if *update {
					if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				if got != p.read(golden) {
					t.Errorf("merged:\n%s", got)
				}
				if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o640 {
					t.Errorf("%v, %v", info.Mode(), err)
				}
				after := p.tree()
				for _, c := range p.mustSetUp(program, testServer) {
					if c.What != "nothing" {
						t.Errorf("a second time: %s %s", c.What, c.Path)
					}
				}
				if !reflect.DeepEqual(p.tree(), after) {
					t.Error("a second time changed something")
				}
				if c := p.mustUndo(program)[i]; c.What != "restore" {
					t.Error(c.What)
				}
				if !reflect.DeepEqual(p.tree(), tree) {
					t.Errorf("undone:\n%s", p.read(path))
				}
			})
		}
	}
}

// Where there is no file, one is made, and undoing leaves nothing.
func TestMissingFilesAreMadeAndRemoved(t *testing.T) {
	for _, program := range Names {
		p := newPlace(t)
		for _, c := range p.mustSetUp(program, testServer) {
			if c.What != "create" || c.Backup != "" {
				t.Errorf("%s: %+v", program, c)
			}
			if info, err := os.Stat(c.Path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		}
		for _, c := range p.mustSetUp(program, testServer) {
			if c.What != "nothing" {
				t.Errorf("%s: %s", program, c.What)
			}
		}
		for _, c := range p.mustUndo(program) {
			if c.What != "remove" {
				t.Errorf("%s: %s", program, c.What)
			}
		}
		if tree := p.tree(); len(tree) != 0 {
			t.Errorf("%s leaves %v", program, tree)
		}
		for _, c := range p.mustUndo(program) {
			if c.What != "nothing" {
				t.Errorf("%s: %s", program, c.What)
			}
		}
	}
}

// What somebody else has written since then stays, even if setup runs once more.
func TestOnlyOurPartIsTakenFromAChangedFile(t *testing.T) {
	p := newPlace(t)
	targets := p.home.Targets("claude-code", testServer)
	servers := p.write(targets[0].Path, "{\n  \"numStartups\": 4\n}\n")
	p.mustSetUp("claude-code", testServer)
	edited := strings.Replace(p.read(servers), `"numStartups": 4`, `"numStartups": 5,`+"\n  \"theme\": \"dark\"", 1)
	p.write(servers, edited)

	other := testServer
	other.Env = []Field{{"RELAY_URL", "https://relay.example.com"}, testServer.Env[1]}
	other.Hook = "exec /usr/local/bin/relay hook wait --url https://relay.example.com"
	p.mustSetUp("claude-code", other)
	if got := p.read(servers); !strings.Contains(got, `"theme": "dark"`) || strings.Contains(got, "8080") || !strings.Contains(got, "relay.example.com") {
		t.Errorf("%s", got)
	}
	if got := p.read(targets[1].Path); strings.Count(got, "hook wait") != 1 || !strings.Contains(got, "relay.example.com") {
		t.Errorf("%s", got)
	}
	p.write(servers, strings.Replace(p.read(servers), `"numStartups": 5`, `"numStartups": 6`, 1))
	p.mustUndo("claude-code")
	if got := p.read(servers); got != "{\n  \"numStartups\": 6,\n  \"theme\": \"dark\"\n}\n" {
		t.Errorf("%s", got)
	}
	if _, err := os.Stat(targets[1].Path); !os.IsNotExist(err) {
		t.Errorf("the settings are still there: %v", err)
	}
	if left, _ := filepath.Glob(servers + "*"); len(left) != 1 {
		t.Errorf("left: %v", left)
	}

	// Codex keeps its own settings of a server in tables below it: they go with it.
	config := p.write(p.home.Targets("codex", testServer)[0].Path, "model = \"o5\" # mine\n\n[mcp_servers.docs]\ncommand = \"docs\"\n")
	p.mustSetUp("codex", testServer)
	p.write(config, p.read(config)+"\n[mcp_servers.relay.tools.send_message]\napproval_mode = \"approve\"\n\n[projects.\"/home/ann\"]\ntrust_level = \"trusted\"\n")
	p.mustUndo("codex")
	if got := p.read(config); got != "model = \"o5\" # mine\n\n[mcp_servers.docs]\ncommand = \"docs\"\n\n[projects.\"/home/ann\"]\ntrust_level = \"trusted\"\n" {
		t.Errorf("%s", got)
	}
}

// A hook of ours that somebody has put into a group of others goes alone.
func TestAHookAmongOthers(t *testing.T) {
	p := newPlace(t)
	path := p.home.Targets("claude-code", testServer)[1].Path
	p.write(path, `{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}, {"type": "command", "command": "relay hook wait"}]}]}}`)
	p.mustUndo("claude-code")
	if got := p.read(path); got != `{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]}}` {
		t.Errorf("%s", got)
	}
}

// If the second file of a program cannot be written, the first is as before.
func TestAllFilesOrNone(t *testing.T) {
	p := newPlace(t)
	targets := p.home.Targets("claude-code", testServer)
	for _, t := range targets {
		p.write(t.Path, "{}\n")
	}
	tree := p.tree()
	changes, err := p.book.Plan(targets, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.write(targets[1].Path, "{ }\n") // by the program itself, just now
	tree[targets[1].Path] = "{ }\n"
	if err := p.book.Apply(changes, nil); err == nil || !strings.Contains(err.Error(), "somebody else at this moment") {
		t.Error(err)
	}
	if got := p.tree(); !reflect.DeepEqual(got, tree) {
		t.Errorf("%v", got)
	}
	if notes, _ := filepath.Glob(filepath.Join(string(p.book), "*")); len(notes) != 0 {
		t.Errorf("%v", notes)
	}
}

// A file of ours is for its owner only, and goes when the last file that names it is undone.
func TestSecrets(t *testing.T) {
	p := newPlace(t)
	key := Secret{filepath.Join(p.home.Dir, "keys", "k.key"), "mk_x\n"}
	for _, program := range []string{"codex", "cursor"} {
		changes, err := p.book.Plan(p.home.Targets(program, testServer), []Secret{key})
		if err == nil {
			err = p.book.Apply(changes, []Secret{key})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(key.Path); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	p.mustUndo("codex")
	if p.read(key.Path) != key.Text {
		t.Error("the key of Cursor is gone")
	}
	p.mustUndo("cursor")
	if _, err := os.Stat(key.Path); !os.IsNotExist(err) {
		t.Error(err)
	}
}

func TestWhereTheFilesAre(t *testing.T) {
	env := map[string]string{}
	for _, c := range []struct {
		system, program, variable, value, project, want string
	}{
		{"linux", "claude-code", "", "", "", "/h/.claude.json /h/.claude/settings.json"},
		{"linux", "claude-code", "CLAUDE_CONFIG_DIR", "/c", "", "/c/.claude.json /c/settings.json"},
		{"linux", "claude-code", "", "", "/p", "/p/.mcp.json /p/.claude/settings.local.json"},
		{"linux", "codex", "", "", "", "/h/.codex/config.toml"},
		{"linux", "codex", "CODEX_HOME", "/c", "", "/c/config.toml"},
		{"linux", "codex", "CODEX_HOME", "relative", "", "/h/.codex/config.toml"},
		{"linux", "codex", "CODEX_HOME", "/c", "/p", "/p/.codex/config.toml"},
		{"darwin", "cursor", "", "", "", "/h/.cursor/mcp.json"},
		{"linux", "vscode", "", "", "", "/h/.config/Code/User/mcp.json"},
		{"linux", "vscode", "XDG_CONFIG_HOME", "/x", "", "/x/Code/User/mcp.json"},
		{"darwin", "vscode", "", "", "", "/h/Library/Application Support/Code/User/mcp.json"},
		{"windows", "vscode", "", "", "", "/h/AppData/Roaming/Code/User/mcp.json"},
		{"linux", "vscode", "", "", "/p", "/p/.vscode/mcp.json"},
	} {
		if runtime.GOOS == "windows" {
			t.Skip("the paths are those of other systems")
		}
		clear(env)
		env[c.variable] = c.value
		h := Home{"/h", c.system, func(name string) string { return env[name] }, c.project}
		var got []string
		for _, t := range h.Targets(c.program, testServer) {
			got = append(got, t.Path)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestDiff(t *testing.T) {
	c := &Change{Before: []byte("a\nb\nc\nd\n"), After: []byte("a\nb\nc\nx\nd\n")}
	if got := c.Diff(); got != "  b\n  c\n+ x\n  d\n" {
		t.Errorf("%q", got)
	}
	if got := (&Change{After: []byte("a\n")}).Diff(); got != "+ a\n" {
		t.Errorf("%q", got)
	}
	if got := (&Change{Before: []byte("a")}).Diff(); got != "- a\n" {
		t.Errorf("%q", got)
	}
}

// Our commands are recognised however they are quoted, and nothing else is.
func TestOurs(t *testing.T) {
	for command, want := range map[string]bool{
		testServer.Hook: true, `exec '/a b/relay' hook wait --url x`: true, `"C:\x\relay.exe" hook wait`: true, "relay hook wait": true,
		"relay hook waiter": false, "myrelay hook wait": false, "say relay": false, "": false,
	} {
		if isHook(map[string]any{"command": command}) != want {
			t.Errorf("%q", command)
		}
	}
	for command, want := range map[string]bool{"/a/relay": true, `C:\relay.exe`: true, "relay": true, "/a/relay-other": false, "": false} {
		if isServer(map[string]any{"command": command, "args": []any{"mcp"}}) != want || isServer(map[string]any{"command": command, "args": []any{"send"}}) {
			t.Errorf("%q", command)
		}
	}
	if isServer(nil) || isHook(nil) || isHook([]any{}) || bytes.Contains([]byte(testServer.Hook), []byte("mk_")) {
		t.Error("nothing is taken for ours")
	}
}
