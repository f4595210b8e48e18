package setup

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tailscale/hujson"
)

func addShapes(f *testing.F, programs ...string) {
	f.Helper()
	for _, program := range programs {
		for _, ending := range []string{"before", "after"} {
			files, err := filepath.Glob(filepath.Join("testdata", program, "*."+ending))
			if err != nil || len(files) == 0 {
				f.Fatal(files, err)
			}
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					f.Fatal(err)
				}
				f.Add(text)
			}
		}
	}
}

// jsonToken is a string or a comment.
var jsonToken = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|` + jsonComment.String())

// remarks are the comments of a text, in order.
func (d *jsonDoc) remarks() (all []string) {
	for _, at := range jsonToken.FindAllIndex(d.text, -1) {
		if d.text[at[0]] == '/' {
			all = append(all, strings.TrimRight(string(d.text[at[0]:at[1]]), "\r"))
		}
	}
	return all
}

func (d *jsonDoc) all() any {
	if d.root == nil {
		return nil
	}
	return plain(d.root)
}

var fuzzHome = Home{Dir: "/h", System: "linux", Getenv: func(string) string { return "" }}

// FuzzJSON merges into any text that parses: nothing that was there is lost, no comment
// either, and taking our entries out gives what was there.
func FuzzJSON(f *testing.F) {
	addShapes(f, "claude-code", "cursor", "vscode")
	for _, text := range []string{
		"{}", "", " ", "{ // a\n}", "{/* a */}", `{"servers":{"a":1,}, /*b*/}`, `{"hooks":{"Stop":[ // a` + "\n]}}", `{"hooks":{"Stop":[1, /* x */]}}`, "// a",
		"{\n\"servers\": {} // b\n, \"x\": 1}", `{"servers": {"relay": {"command": "relay", "args": ["mcp"]} /* c */ , "b": 1}}`,
		"{\"servers\": { // a\n\"relay\": {\"command\": \"relay\", \"args\": [\"mcp\"]}, \"b\": 1 }}", "{\"servers\": {\"a\": 1, // a\n\"relay\": {\"command\": \"relay\", \"args\": [\"mcp\"]} }}",
	} {
		f.Add([]byte(text))
	}
	targets := append(fuzzHome.Targets("claude-code", testServer), fuzzHome.Targets("vscode", testServer)...)
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := parseJSON(text, false)
		if valid := json.Valid(bytes.TrimPrefix(text, []byte(byteOrderMark))); utf8.Valid(text) && len(text) < maxDepth && len(strings.Trim(string(text), byteOrderMark+" \t\r\n")) > 0 && valid != (err == nil) {
			t.Fatalf("valid JSON: %t; %v", valid, err)
		}
		for _, target := range targets {
			target.Format = JSONC
			d, err := parseJSON(text, true)
			if err != nil {
				if _, _, e := merge(JSONC, text, target.Entries); e == nil {
					t.Fatalf("merged though %v", err)
				}
				continue
			}
			mergeAndStrip(t, target, d)
		}
	})
}

func mergeAndStrip(t *testing.T, target Target, d *jsonDoc) {
	look := func(*jsonDoc, *hujson.Value, int, *hujson.Value) []byte { return nil }
	if eachOurs(JSONC, d.text, target.Entries[0], look) != nil {
		return // a name is there twice, or is something else
	}
	base, err := strip(JSONC, d.text, target.Entries, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, d.text)
	}
	before, err := parseJSON(base, true)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before.remarks(), d.remarks()) && !strings.Contains(string(d.text), "relay") {
		t.Fatalf("comments are lost: %s", base)
	}
	after, made, err := merge(JSONC, base, target.Entries)
	if err != nil {
		return
	}
	merged, err := parseJSON(after, true)
	if err != nil {
		t.Fatalf("%v: %s", err, after)
	}
	if ok, err := has(JSONC, after, target.Entries); !ok || err != nil {
		t.Fatalf("%t, %v: %s", ok, err, after)
	}
	if !reflect.DeepEqual(merged.remarks(), before.remarks()) {
		t.Fatalf("comments are lost: %s", after)
	}
	back, err := strip(JSONC, after, target.Entries, made)
	if err != nil {
		t.Fatal(err)
	}
	if back == nil && before.root != nil {
		t.Fatal("the file is gone")
	}
	undone, err := parseJSON(back, true)
	if err != nil {
		t.Fatalf("%v: %s", err, back)
	}
	same := reflect.DeepEqual(undone.all(), before.all())
	if before.root == nil { // an object was made around the entry, and comments may keep it
		same = undone.root == nil || reflect.DeepEqual(undone.all(), map[string]any{})
	}
	if !same || back != nil && !reflect.DeepEqual(undone.remarks(), before.remarks()) {
		t.Fatalf("not as before:\n%q\n%q\n%q", base, after, back)
	}
}

// FuzzTOML does the same with TOML; here what was there comes back byte for byte.
func FuzzTOML(f *testing.F) {
	addShapes(f, "codex")
	for _, text := range []string{
		"", "a.b = 1\n", "[mcp_servers]\n", "mcp_servers.a.b = 1\n", "[mcp_servers]\na = {}\n", "[[a]]\n[[a]]\n[a.b]\n", "a = [ # x\n1, # y\n]\n", "x = {a = {b = 1}, c.d = 2}\n",
		"'a b'.\"c\\u00e4\" = 1979-05-27 07:32:00\n", "a = '''\n[x]\n'''\n", "a = +0x1\n", "a = 1\r\n#x\r", "[mcp_servers.relay]\ncommand = 'relay'\nargs = ['mcp']\n[mcp_servers.relay.env]\nA = 'b'\n# c\n[x]\n",
	} {
		f.Add([]byte(text))
	}
	target := fuzzHome.Targets("codex", testServer)[0]
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := parseTOML(text); err != nil {
			if _, _, e := merge(TOML, text, target.Entries); e == nil {
				t.Fatalf("merged though %v", err)
			}
			return
		}
		base, err := strip(TOML, text, target.Entries, nil)
		if err != nil {
			t.Fatalf("%v: %q", err, text)
		}
		d, err := parseTOML(base)
		if err != nil {
			t.Fatal(err)
		}
		after, made, err := merge(TOML, base, target.Entries)
		if err != nil {
			return
		}
		merged, err := parseTOML(after)
		if err != nil {
			t.Fatalf("%v: %q", err, after)
		}
		if ok, err := has(TOML, after, target.Entries); !ok || err != nil {
			t.Fatalf("%t, %v: %q", ok, err, after)
		}
		now := merged.root
		servers := now["mcp_servers"].(map[string]any)
		delete(servers, "relay")
		was := d.root
		if _, there := was["mcp_servers"]; !there {
			delete(now, "mcp_servers")
		}
		if !reflect.DeepEqual(now, was) {
			t.Fatalf("something is lost: %q", after)
		}
		back, err := strip(TOML, after, target.Entries, made)
		if err != nil || !bytes.Equal(back, base) && string(back) != string(base)+lineEnd(base) {
			t.Fatalf("%v\n%q\n%q\n%q", err, base, after, back)
		}
	})
}
