package setup

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tailscale/hujson"
)

// hostile are files as people and programs really write them, each with something that a careless editor would lose.
var hostile = []struct {
	name   string
	format Format
	under  string // where the entry belongs; "hooks.Stop" for a hook
	text   string
}{
	{"claude: a name that ends like a comment", JSON, "mcpServers", `{"projects":{"/home/ann/**/x":{"history":["a // b","/* c"]}},"mcpServers":{"x//y":{"command":"c"}}}`},
	{"claude: numbers that no float holds", JSON, "mcpServers", "{\n \"lastCost\": 0.1000000000000000055511151231257827,\n \"id\": 12345678901234567890,\n \"e\": 1E+400,\n \"z\": -0.0\n}\n"},
	{"claude: escapes", JSON, "mcpServers", "{\n\t\"\\u006dcpServers2\": \"\\ud83d\\ude00\\/\\u0000 \\ud800\",\n\t\"q\\\"\": \"{[}]\"\n}"},
	{"claude: the path is escaped", JSON, "mcpServers", `{"\u006dcpServers": {"docs": {"command": "d"}}, "z": 1}`},
	{"claude: line separators in a string", JSON, "mcpServers", "{\"a\": \"\u2028\u2029\u0085\", \"mcpServers\": {\"b\": null}}\n\n\n"},
	{"claude: tabs and spaces at the ends of lines", JSON, "mcpServers", "{ \t\n  \"a\" : 1 ,\t \n\n\n  \"mcpServers\" :\t{ \n    \"b\" : { } \t\n  } \t\n} \n \t"},
	{"claude: doubled elsewhere", JSON, "mcpServers", `{"a": 1, "a": 2, "projects": {"p": {"x": 1, "x": 2}}, "mcpServers": {"b": {"env": {"E": "1", "E": "2"}}}}`},
	{"claude: braces on lines of their own", JSON, "mcpServers", "{\n  \"mcpServers\":\n  {\n    \"b\":\n    {\n    }\n  }\n}\n"},
	{"claude: commas first", JSON, "mcpServers", "{ \"mcpServers\":\n  { \"a\": {}\n  , \"b\": {}\n  }\n, \"z\": 1\n}\n"},
	{"claude: old line ends", JSON, "mcpServers", "{\r  \"a\": 1,\r  \"mcpServers\": {\r    \"b\": {}\r  }\r}\r"},
	{"claude: all kinds of line ends", JSON, "mcpServers", "{\r\n  \"a\": 1,\n  \"mcpServers\": {\r\n    \"b\": {}\n  }\r\n}\n"},
	{"claude: hooks of others", JSON, "hooks.Stop", "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"matcher\": \"\",\n        \"hooks\": [{\"type\": \"command\", \"command\": \"echo 'relay hook' # wait\"}]\n      },\n      {\"hooks\": \"none\"},\n      7,\n      {}\n    ],\n    \"PreToolUse\": []\n  }\n}\n"},
	{"claude: hooks on one line", JSON, "hooks.Stop", `{ "hooks" : { "Stop" : [ { "hooks" : [ { "type" : "command", "command" : "x" } ] } ] } }`},
	{"cursor: byte order mark and CRLF", JSON, "mcpServers", "\ufeff{\r\n    \"mcpServers\": {\r\n        \"b\": { \"url\": \"https://x\" }\r\n    }\r\n}"},
	{"gemini: settings", JSONC, "mcpServers", "{\n  // trusted folders: see /help\n  \"theme\": \"GitHub\",\n  \"contextFileName\": [\"AGENTS.md\", \"GEMINI.md\"],\n  \"mcpServers\": {\n    \"py\": {\n      \"command\": \"python\",\n      \"args\": [\"-m\", \"srv\", \"--port\", \"8080\"],\n      \"env\": { \"KEY\": \"$MY_KEY\" /* from the shell */ },\n      \"timeout\": 15000\n    } // keep\n    /* \"old\": { \"httpUrl\": \"http://localhost:3000/mcp\" } */\n  }\n}\n"},
	{"opencode: schema and trailing commas", JSONC, "mcp", "{\n  \"$schema\": \"https://opencode.ai/config.json\", // do not remove\n  \"mcp\": {\n    // \"jira\": { \"type\": \"remote\", \"url\": \"https://jira.example.com/mcp\", \"enabled\": true },\n    \"ev\": {\n      \"type\": \"local\",\n      \"command\": [\"npx\", \"-y\", \"@x/server-everything\",],\n      \"environment\": { \"A\": \"{env:A}\", },\n    }, // last\n    // the end\n  },\n}\n// vim: ft=jsonc"},
	{"opencode: only comments within", JSONC, "mcp", "{\n  \"mcp\": {\n    // none yet, see https://opencode.ai/docs\n\n    /* or\n       here */\n  },\n}\n"},
	{"opencode: a comment before the comma", JSONC, "mcp", "{\n  \"mcp\": {\n    \"a\": {} // one\n    , \"b\": {} /* two */\n  } /* three */ , // four\n  \"model\": \"x\" // five\n}"},
	{"vscode: a comment at the very end", JSONC, "servers", "{\"servers\": {\"a\": {\"url\": \"http://x\"}}}// no line end"},
	{"vscode: commented out", JSONC, "servers", "{\n\t\"servers\": {\n\t\t// \"relay\": { \"command\": \"relay\", \"args\": [\"mcp\"] },\n\t\t\"a\": { \"type\": \"http\", \"url\": \"https://x/*y*/\" },\n\t\t/* \"relay\": {} */\n\t},\n\t/* \"servers\": {} */\n\t\"inputs\": [],\n}\n"},
	{"vscode: many comments in a line", JSONC, "servers", "/**/{/*a*/\"servers\"/*b*/:/*c*/{/*d*/\"x\"/*e*/:/*f*/{}/*g*/,/*h*/\n}/*i*/}/*j*/"},
	{"vscode: a comment of several lines after the last", JSONC, "servers", "{\n  \"servers\": {\n    \"a\": {} /* one\n    two */ // three\n    // four\n  }\n}\n"},
	{"vscode: CRLF and comments", JSONC, "servers", "{\r\n\t\"servers\": {\r\n\t\t\"a\": {} // one  \r\n\t\t// two\r\n\t}\r\n}\r\n"},
	{"zed: deep and wide", JSONC, "context_servers", "// Zed settings\n//\n// For information, see the documentation.\n{\n  \"languages\": { \"Go\": { \"tab_size\": 4, \"formatter\": { \"external\": { \"command\": \"gofmt\", \"arguments\": [], }, }, }, },\n  \"context_servers\": { \"a\": { \"source\": \"custom\", \"command\": \"b\", \"args\": [], \"env\": {} } },\n}\n"},
	{"codex: headers within strings", TOML, "mcp_servers", "a = \"\"\"\n[mcp_servers.relay]\ncommand = \"x\"\n\"\"\"\nb = '''\n[mcp_servers.relay]'''\nc = [\n  \"[mcp_servers.relay]\", # [mcp_servers.relay]\n]\n"},
	{"codex: indented, aligned, upside down", TOML, "mcp_servers", "\t[mcp_servers.b.env]\n\t\tA   =  \"1\"   # one\n\n\n\n[ mcp_servers . \"b\" ]\ncommand=\"x\"\n  [ 'mcp_servers' . c ]   # c\n  url = 'https://x'\n"},
	{"codex: TOML 1.1", TOML, "mcp_servers", "t = 07:32\ne = \"\\e[0m\\x41\"\n[mcp_servers.b]\nenv = {\n  A = \"1\", # one\n  B = \"2\",\n}\n"},
	{"codex: byte order mark, CRLF, no line end", TOML, "mcp_servers", "\ufeffmodel = 'x'\r\n\r\n[mcp_servers.b]\r\ncommand = 'C:\\b.exe'\r\nnote = \"\"\"a\r\nb\"\"\""},
	{"codex: profiles and arrays of tables", TOML, "mcp_servers", "[[skills.config]]\npath = '/a'\n[skills.config.x]\ny = 1\n[[skills.config]]\n[profiles.\"a.b\"]\nmodel = \"\"\n[tui]\n# nothing\n[mcp_servers]\n# none\n"},
	{"codex: all kinds of values", TOML, "mcp_servers", "i = 0xDEAD_beef\nf = -1_0.5e+3\nn = nan\nm = +inf\nd = 1979-05-27 00:32:00.999999-07:00\nld = 1979-05-27\nb = false\n\"\" = 1\n'a\"b' = { x.y = [[], [{}]], \"z\" = '' }\n3.14 = 15\n\n# the end"},
	{"codex: comments of ours and theirs", TOML, "mcp_servers", "# top\n\n# of model\nmodel = \"x\" # here\n\n# of b\n[mcp_servers.b] # b\n# in b\ncommand = \"x\"\n# below b\n\n\n"},
}

func hostileEntry(under string) Entry {
	if under == "hooks.Stop" {
		return fuzzHome.Targets("claude-code", testServer)[1].Entries[0]
	}
	return Entry{Path: []string{under}, Key: "relay", Value: fuzzHome.Targets("codex", testServer)[0].Entries[0].Value, Ours: isServer}
}

// Of every file, all that was there stays: values, comments and their order, line ends, and each byte outside of the
// entry. Taking the entry out of it gives the file back, and undoing does so byte for byte.
func TestHostileFiles(t *testing.T) {
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			e := hostileEntry(c.under)
			after, _, ok := addAndRemove(t, c.format, []byte(c.text), e)
			if !ok {
				t.Fatal("was refused")
			}
			if strings.HasPrefix(c.text, byteOrderMark) != bytes.HasPrefix(after, []byte(byteOrderMark)) {
				t.Errorf("the byte order mark: %q", after)
			}
			if crlf := strings.Count(c.text, "\r\n"); crlf > 0 && crlf == strings.Count(c.text, "\n") && bytes.Count(after, []byte("\r\n")) != bytes.Count(after, []byte("\n")) {
				t.Errorf("line ends: %q", after)
			}
			undo(t, c.format, c.text, e)
		})
	}
}

// An entry of ours that somebody has moved, laid out again or commented goes, and its neighbours stay as they are.
func TestOursAmongComments(t *testing.T) {
	const r = `"relay": {"args": ["mcp" /* . */,], "command": "relay"}`
	for _, c := range []struct {
		format     Format
		text, want string
	}{
		{JSONC, `{"servers": {"a": 1 /* a */, ` + r + `}}`, `{"servers": {"a": 1 /* a */}}`},
		{JSONC, `{"servers": {"a": 1 /* a */, ` + r + `,}}`, `{"servers": {"a": 1 /* a */,}}`},
		{JSONC, `{"servers": {` + r + ` /* ours */, "b": 1}}`, `{"servers": { /* ours */ "b": 1}}`},
		{JSONC, `{"servers": {"a": 1, ` + r + ` /* ours */ , /* b */}}`, `{"servers": {"a": 1, /* ours */  /* b */}}`},
		{JSONC, "{\"servers\": { // a\n  " + r + ", \"b\": 1 }}", "{\"servers\": { // a\n   \"b\": 1 }}"},
		{JSONC, "{\"servers\": { // */\n  " + r + " }}", "{\"servers\": { // */\n   }}"},
		{JSONC, "{\"servers\": {\n  // a\n  " + r + ", // ours\n  // b\n  \"b\": 1\n}}", "{\"servers\": {\n  // a\n   // ours\n  // b\n  \"b\": 1\n}}"},
		{JSONC, "{\"servers\": { \"a\": 1 // a\n  , " + r + " // ours\n}}", "{\"servers\": { \"a\": 1 // a\n   // ours\n}}"},
		{JSONC, `{"servers": {/* a */ ` + r + ` }}`, `{"servers": {/* a */ }}`},
		{JSONC, `{"servers": { ` + r + ` }}`, `{"servers": {}}`},
		{TOML, "[mcp_servers.relay]\nargs = [ # [x]\n  \"mcp\",\n\n]\ncommand = '''\nrelay''' # ours\n# b\n[b]\n", "# b\n[b]\n"},
		{TOML, "[mcp_servers]\n a.command = 'a'\n relay.command = 'relay'\n relay.args = ['mcp']\n b.command = 'b'\n", "[mcp_servers]\n a.command = 'a'\n b.command = 'b'\n"},
		{TOML, "[mcp_servers]\nrelay = { command = 'relay', args = ['mcp'] }\n", "[mcp_servers]\nrelay = { command = 'relay', args = ['mcp'] }\n"},
		{TOML, "[mcp_servers.relay.env]\r\nA = '1'\r\n\r\n[a]\r\n\r\n# ours\r\n[mcp_servers.relay]\r\ncommand = 'relay'\r\nargs = ['mcp']", "\r\n[a]\r\n\r\n# ours\r\n"},
		{TOML, "[mcp_servers.\"relay\"]\ncommand = 'other'\nargs = ['mcp']\n", "[mcp_servers.\"relay\"]\ncommand = 'other'\nargs = ['mcp']\n"},
	} {
		under := map[Format]string{JSONC: "servers", TOML: "mcp_servers"}[c.format]
		got, err := strip(c.format, []byte(c.text), []Entry{hostileEntry(under)}, nil)
		if err != nil || string(got) != c.want {
			t.Errorf("%v: %q\n%q, want\n%q", err, c.text, got, c.want)
		}
	}
}

// undo sets up a file and undoes it. Nothing of the file or next to it may have changed then, nor by a refusal.
func undo(t *testing.T, f Format, text string, e Entry) {
	t.Helper()
	p := newPlace(t)
	path := p.write(filepath.Join(p.home.Dir, "config"), text)
	tree := p.tree()
	targets := []Target{{Path: path, Format: f, Entries: []Entry{e}}}
	changes, err := p.book.Plan(targets, nil)
	if err != nil {
		if !errors.As(err, new(*ParseError)) || !reflect.DeepEqual(p.tree(), tree) {
			t.Errorf("refused: %v: %q", err, p.read(path))
		}
		return
	}
	if err := p.book.Apply(changes, nil); err != nil {
		t.Fatal(err)
	}
	was := changes[0].What
	if changes, err = p.book.PlanUndo(targets); err == nil {
		err = p.book.Apply(changes, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.book.Forget(changes)
	if was == "change" && !reflect.DeepEqual(p.tree(), tree) {
		t.Errorf("was %q, is %q", text, p.read(path))
	}
}

// addAndRemove adds an entry to a text in which there is none of ours, and removes it. It returns both texts, unless the
// text was refused.
func addAndRemove(t *testing.T, f Format, text []byte, e Entry) (after, back []byte, ok bool) {
	t.Helper()
	before, err := read(f, text)
	if err != nil {
		if _, _, e := merge(f, text, []Entry{e}); e == nil {
			t.Fatalf("merged though %v", err)
		}
		return nil, nil, false
	}
	after, made, err := merge(f, text, []Entry{e})
	if err != nil {
		return nil, nil, false
	}
	merged, err := read(f, after)
	if err != nil {
		t.Fatalf("%v: %q", err, after)
	}
	if ok, err := has(f, after, []Entry{e}); !ok || err != nil {
		t.Fatalf("%t, %v: %q", ok, err, after)
	}
	if !reflect.DeepEqual(merged.comments, before.comments) {
		t.Fatalf("comments were %q, are %q", before.comments, merged.comments)
	}
	if lost := before.lost(merged); lost != "" {
		t.Fatalf("%s is lost: %q", lost, after)
	}
	if !encloses(after, text) {
		t.Fatalf("other bytes have changed:\n%q\n%q", text, after)
	}
	if back, err = strip(f, after, []Entry{e}, made); err != nil {
		t.Fatal(err)
	}
	if !sameBytes(f, text, back, e) {
		t.Fatalf("not as before:\n%q\n%q\n%q", text, after, back)
	}
	return after, back, true
}

// shown is a text as its program reads it. Doubled names are all there.
type shown struct {
	values   map[string]int // a path and a value, and how often it is there
	comments []string
}

func read(f Format, text []byte) (s shown, err error) {
	s.values = map[string]int{}
	if f == TOML {
		d, err := parseTOML(text)
		if err == nil {
			s.addAll("", d.root)
			s.comments = tomlComments(d.text)
		}
		return s, err
	}
	d, err := parseJSON(text, f == JSONC)
	if err != nil {
		return s, err
	}
	s.comments = d.remarks()
	if d.root != nil {
		s.addTree("", d.root)
	}
	return s, nil
}

// lost returns a value that is no longer there.
func (s shown) lost(now shown) string {
	for _, value := range slices.Sorted(maps.Keys(s.values)) {
		if now.values[value] < s.values[value] {
			return value
		}
	}
	return ""
}

func (s shown) addAll(path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for name, c := range v {
			s.addAll(fmt.Sprintf("%s.%q", path, name), c)
		}
	case []any:
		for i, c := range v {
			s.addAll(fmt.Sprintf("%s.%d", path, i), c)
		}
	default:
		s.values[fmt.Sprintf("%s = %#v", path, v)]++
	}
}

func (s shown) addTree(path string, v *hujson.Value) {
	n := listOf(v)
	if n == nil {
		s.values[fmt.Sprintf("%s = %s", path, v.Value)]++
		return
	}
	for i := range n.len() {
		name := fmt.Sprint(i)
		if o, ok := n.(object); ok {
			name = fmt.Sprint(o.Members[i].Name.Value)
		}
		s.addTree(path+"."+name, n.value(i))
	}
}

// tomlComments are the lines that have a comment, or look like it: an entry of ours has no such line.
func tomlComments(text []byte) (all []string) {
	for line := range strings.Lines(string(text)) {
		if _, c, ok := strings.Cut(strings.TrimRight(line, "\r\n"), "#"); ok {
			all = append(all, c)
		}
	}
	return all
}

// encloses reports whether all bytes of part are in text in the same order, but for white space.
func encloses(text, part []byte) bool {
	for _, c := range bytes.Join(bytes.Fields(part), nil) {
		i := bytes.IndexByte(text, c)
		if i < 0 {
			return false
		}
		text = text[i+1:]
	}
	return true
}

// sameBytes reports whether a text is as it was. Unless undo does it, by its backup, three things need not come back:
// white space in the object or array that was empty, a missing line end at the end of TOML, and the lack of an object in
// a file of comments.
func sameBytes(f Format, was, is []byte, e Entry) bool {
	if f == TOML {
		return bytes.Equal(is, was) || string(is) == string(was)+lineEnd(was)
	}
	if bytes.Equal(is, was) {
		return true
	}
	bare := func(text []byte) string { return strings.Join(strings.Fields(string(text)), "") }
	d, err := parseJSON(was, true)
	if err != nil {
		return false
	}
	for i := len(e.Path); d.root != nil; i-- {
		at, err := d.walk(e.Path[:i], '{')
		if i == len(e.Path) && e.Key == "" {
			at, err = d.walk(e.Path, '[')
		}
		if err != nil {
			return false
		}
		if at != nil {
			return listOf(at).len() == 0 && bare(is) == bare(was)
		}
	}
	return bare(is) == bare(was) || bare(is) == bare(was)+"{}"
}

// FuzzUndo sets up any text as a file of each format: undoing gives it back byte for byte, and a refusal leaves it.
func FuzzUndo(f *testing.F) {
	for _, c := range hostile {
		f.Add([]byte(c.text))
	}
	addShapes(f, Names...)
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, c := range []struct {
			format Format
			under  string
		}{{JSON, "mcpServers"}, {JSON, "hooks.Stop"}, {JSONC, "servers"}, {TOML, "mcp_servers"}} {
			if e := hostileEntry(c.under); !bytes.Contains(text, []byte("relay")) {
				undo(t, c.format, string(text), e)
			}
		}
	})
}

// A nesting that would use up the stack is refused, in each format.
func TestDeepNesting(t *testing.T) {
	deep := bytes.Repeat([]byte("["), maxBytes)
	for _, f := range []Format{JSON, JSONC} {
		if _, _, err := merge(f, deep, []Entry{hostileEntry("mcpServers")}); err == nil || !strings.Contains(err.Error(), "too deep") {
			t.Errorf("%.100v", err)
		}
	}
	if _, _, err := merge(TOML, append([]byte("a = "), deep...), []Entry{hostileEntry("mcp_servers")}); err == nil {
		t.Error("merged")
	}
}
