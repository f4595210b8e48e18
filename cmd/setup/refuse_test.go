package setup

import (
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// What cannot be understood, or is not ours to change, is refused with its place, and
// nothing is changed: not in the other file of the program either.
func TestWhatCannotBeMergedIsRefused(t *testing.T) {
	for _, c := range []struct{ program, text, says string }{
		{"cursor", `{"mcpServers": {`, `line 1, column 16: unexpected end of JSON input`},
		{"cursor", "{\n  \"mcpServers\": {},\n}", "line 3, column 1: invalid character '}' looking for beginning of object key string"},
		{"cursor", "{\n  // mine\n}", "line 2, column 3: comments are not allowed in this file"},
		{"cursor", `{"a": 01}`, "line 1, column 8: invalid character '1' after object key:value pair"},
		{"cursor", `{"a": tru}`, "line 1, column 10: invalid character '}' in literal true"},
		{"cursor", `{"ä": "\x"}`, "line 1, column 9: invalid character 'x' in string escape code"},
		{"cursor", "{\"a\": \"b\n\"}", `line 1, column 9: invalid character '\n' in string literal`},
		{"cursor", `{} {}`, "line 1, column 4: invalid character '{' after top-level value"},
		{"cursor", `[]`, "line 1, column 1: the file must be an object"},
		{"cursor", `{"mcpServers": []}`, `line 1, column 16: "mcpServers" must be an object`},
		{"cursor", "{\"mcpServers\": {},\n \"mcpServers\": {}}", `line 2, column 2: "mcpServers" stands here a second time`},
		{"cursor", `{"mcpServers": {"relay": {"command": "a"}, "relay": {"command": "b"}}}`, `"relay" stands here a second time`},
		{"cursor", `{"mcpServers": {"relay": {"command": "other"}}}`, `"mcpServers.relay" is there already`},
		{"cursor", "{\"a\": \"\xff\"}", "line 1, column 8: this is not UTF-8"},
		{"cursor", "\xff\xfe{\x00}\x00", "UTF-16"},
		{"cursor", strings.Repeat("[", 100000), "the nesting is too deep"},
		{"vscode", "{ /* no end", "line 1, column 3: parsing comment: unexpected EOF"},
		{"vscode", "{ // a\u2028b\n}", "line 1, column 7: invalid character '\\u2028' in line comment"},
		{"vscode", `{"a": "mk_secret\x"}`, "line 1, column 7: this is not a JSON value. The file"},
		{"vscode", "{\"servers\": {,}}", "line 1, column 14: invalid character ',' at start of value"},
		{"claude-code", `{"mcpServers": {}} x`, "line 1, column 20"},
		{"codex", "a = 1\na = 2\n", "line 2, column 1: key a is already defined"},
		{"codex", "[a]\n[b]\n[a]\n", "line 3, column 2: table a already exists"},
		{"codex", "[a\n", "line 1, column 3: expected ']' to close table name"},
		{"codex", "a = \n", "line 1, column 5: unexpected character U+000A at start of value"},
		{"codex", "a = 1 b = 2\n", "line 1, column 7: expected newline"},
		{"codex", "a = 'x\n", "line 1, column 7: literal strings cannot have new lines"},
		{"codex", "a = \"\"\"x\n", "line 1, column 9: multiline basic string not terminated"},
		{"codex", `a = "\q"`, "line 1, column 6: invalid escape character U+0071"},
		{"codex", "a = [1,\n2", "line 2, column 1: array is incomplete"},
		{"codex", "mcp_servers = { docs = { command = \"d\" } }\n", `line 1, column 1: "mcp_servers" is written as one value`},
		{"codex", "mcp_servers = 3\n", `line 1, column 1: "mcp_servers" must be a table`},
		{"codex", "[[mcp_servers]]\n", `"mcp_servers" must be a table`},
		{"codex", "x = 1\n[mcp_servers.relay]\ncommand = \"other\"\n", `line 2, column 1: "mcp_servers.relay" is there already`},
	} {
		p := newPlace(t)
		targets := p.home.Targets(c.program, testServer)
		p.write(targets[0].Path, c.text)
		tree := p.tree()
		if c.program == "claude-code" { // its second file is as it should be
			p.write(targets[1].Path, "{}\n")
			tree = p.tree()
		}
		_, err := p.book.Plan(targets, nil)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), targets[0].Path+": line ") {
			t.Errorf("%s %.60q: %v", c.program, c.text, err)
		}
		if !reflect.DeepEqual(p.tree(), tree) {
			t.Errorf("%s %.60q: something was changed", c.program, c.text)
		}
	}
}

// Byte order mark, line ends, indentation and a missing line end stay as they are.
func TestTheWayOfWritingStays(t *testing.T) {
	for _, text := range []string{
		"\ufeff{\r\n\t\"mcpServers\": {\r\n\t\t\"a\": {}\r\n\t}\r\n}", "{}", "", "\n", "{\"a\":1}", "{ }\n", "\ufeff",
		"{\n    \"a\": [\n        1\n    ]\n}\n", "{\"mcpServers\":{\"x\":{\"command\":\"y\"}}}",
	} {
		p := newPlace(t)
		path := p.write(p.home.Targets("cursor", testServer)[0].Path, text)
		p.mustSetUp("cursor", testServer)
		got := p.read(path)
		if strings.HasPrefix(text, "\ufeff") != strings.HasPrefix(got, "\ufeff") || strings.Contains(text, "\r\n") && strings.Count(got, "\n") != strings.Count(got, "\r\n") {
			t.Errorf("%q: %q", text, got)
		}
		if d, err := parseJSON([]byte(got), false); err != nil || d.root == nil {
			t.Errorf("%q: %v", got, err)
		}
		p.mustUndo("cursor")
		if got := p.read(path); got != text {
			t.Errorf("%q: %q", text, got)
		}
	}
	p := newPlace(t)
	path := p.write(p.home.Targets("codex", testServer)[0].Path, "\ufeffa = 1\r\nb = 'x'")
	p.mustSetUp("codex", testServer)
	if got := p.read(path); strings.Count(got, "\n") != strings.Count(got, "\r\n") || !strings.HasPrefix(got, "\ufeffa = 1\r\nb = 'x'\r\n\r\n[mcp_servers.relay]\r\n") {
		t.Errorf("%q", got)
	}
}

func TestLinksStayAndOthersFilesAreLeftAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	p := newPlace(t)
	path := p.home.Targets("cursor", testServer)[0].Path
	real := p.write(filepath.Join(p.home.Dir, "dotfiles", "cursor.json"), "{}\n")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	p.mustSetUp("cursor", testServer)
	if to, err := os.Readlink(path); err != nil || to != real || !strings.Contains(p.read(real), "mcp") {
		t.Errorf("%s, %v", to, err)
	}
	p.mustUndo("cursor")
	if p.read(path) != "{}\n" {
		t.Error(p.read(path))
	}
	refused := func(says string) {
		t.Helper()
		tree := p.tree()
		if _, err := p.book.Plan(p.home.Targets("cursor", testServer), nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
		if !reflect.DeepEqual(p.tree(), tree) {
			t.Error("something was changed")
		}
	}
	if err := os.Chmod(real, 0o440); err != nil {
		t.Fatal(err)
	}
	refused("read-only")
	if err := os.Remove(real); err != nil {
		t.Fatal(err)
	}
	refused("broken symbolic link")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	refused("not a regular file")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can make the files of another user")
	}
	p.write(path, "{}")
	if err := os.Chown(path, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	refused("belongs to another user")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(filepath.Dir(path), 12345, 12345); err != nil {
		t.Fatal(err)
	}
	refused("belongs to another user")
}

// Setup follows no link out of a project: somebody else may have made it.
func TestAProjectsLinksLeadNowhereElse(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a right there")
	}
	p := newPlace(t)
	real := filepath.Join(p.home.Dir, "project")
	elsewhere := p.write(filepath.Join(p.home.Dir, "elsewhere", "mcp.json"), "{}\n")
	p.write(filepath.Join(real, "kept.json"), "{}\n")
	p.home.Project = filepath.Join(p.home.Dir, "link-to-project")
	links := map[string]string{p.home.Project: real,
		filepath.Join(real, ".mcp.json"): elsewhere, filepath.Join(real, ".cursor"): filepath.Dir(elsewhere)}
	for link, to := range links {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"claude-code", "cursor"} {
		tree := p.tree()
		if _, err := p.book.Plan(p.home.Targets(program, testServer), nil); err == nil || !strings.Contains(err.Error(), "leads out of the project") {
			t.Errorf("%s: %v", program, err)
		}
		if !reflect.DeepEqual(p.tree(), tree) {
			t.Errorf("%s: something was changed", program)
		}
	}
	if err := os.Remove(filepath.Join(real, ".mcp.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("kept.json", filepath.Join(real, ".mcp.json")); err != nil {
		t.Fatal(err)
	}
	p.mustSetUp("claude-code", testServer) // by a link to the project, and by one within it
	if text := p.read(filepath.Join(real, "kept.json")); !strings.Contains(text, "mcp") {
		t.Error(text)
	}
}
