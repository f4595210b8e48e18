package cmd_test

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var commandLine = regexp.MustCompile(`(?m)^  ([a-z-]+) +(\S.*)$`)

var helps sync.Map // by command: its help text, which is always the same

func helpOf(t *testing.T, command ...string) string {
	t.Helper()
	name := strings.Join(command, " ")
	if text, known := helps.Load(name); known {
		return text.(string)
	}
	text := mustRelay(t, append(slices.Clone(command), "--help")...)
	helps.Store(name, text)
	return text
}

// eachCommand visits every command that --help leads to, with its help text.
func eachCommand(t *testing.T, path []string, f func(path []string, help string)) {
	help := helpOf(t, path...)
	f(path, help)
	_, rest, _ := strings.Cut(help, "\nExamples:\n")
	_, rest, _ = strings.Cut(rest, "\n\n")
	list, _, _ := strings.Cut(rest, "Flags:\n") // the commands, by subject
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		if len(strings.TrimSpace(m[2])) < 8 {
			t.Errorf("%v %s has no short description", path, m[1])
		}
		eachCommand(t, append(slices.Clone(path), m[1]), f)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	notShort(t)
	t.Parallel()
	n := 0
	eachCommand(t, nil, func(path []string, help string) {
		n++
		name := strings.Join(append([]string{"relay"}, path...), " ")
		_, examples, ok := strings.Cut(help, "\nExamples:\n")
		if !ok || !strings.Contains(examples, "relay") || strings.TrimSpace(strings.Split(help, "\n")[0]) == "" {
			t.Errorf("%s --help has no example:\n%s", name, help)
		}
		if !strings.Contains(help, "\nUsage:\n  "+name) || !strings.Contains(help, "--json") {
			t.Errorf("%s --help:\n%s", name, help)
		}
		_, lists, _ := strings.Cut(examples, "\n\n") // of commands and flags
		for line := range strings.Lines(lists) {
			if line = strings.TrimSuffix(line, "\n"); len([]rune(line)) > 80 && !strings.Contains(line, "://") {
				t.Errorf("%s --help is wider than 80 columns:\n%s", name, line)
			}
		}
		if path == nil {
			return
		}
		code := 2
		if name == "relay hook wait" { // whose 2 is the bell
			code = 1
		}
		r := runRelay(t, append(path, "--no-such-flag")...).wantCode(t, code, "--no-such-flag", "Try: "+name+" --help")
		if r.out != "" {
			t.Errorf("%s --no-such-flag printed %q", name, r.out)
		}
	})
	if n < 15 {
		t.Errorf("only %d commands were found", n)
	}
}

func TestWrongUsageIsTwo(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, c := range []struct{ args, try string }{
		{"nonsense", "relay"}, {"nonsense --help=no", "relay"}, {"--nonsense", "relay"},
		{"key nonsense", "relay key"}, {"key create", "relay key create"}, {"key create nobody", "relay key create"},
		{"key create a^b --expires soon", "relay key create"}, {"key create a^b --expires=-1h", "relay key create"},
		{"key list a^b c^d", "relay key list"}, {"key list nobody", "relay key list"},
		{"key revoke", "relay key revoke"}, {"key rotate", "relay key rotate"}, {"key rotate key_x --overlap never", "relay key rotate"},
		{"mecha nonsense", "relay mecha"}, {"mecha list a^b", "relay mecha list"}, {"mecha show nobody", "relay mecha show"},
		{"mecha remove", "relay mecha remove"}, {"mecha profile nonsense", "relay mecha profile"},
		{"serve now", "relay serve"}, {"serve --max-body=much", "relay serve"}, {"serve --max-pending=-1", "relay serve"},
		{"serve --clock-skew 16m", "relay serve"}, {"serve --clock-skew=29s", "relay serve"}, {"serve --log-format xml", "relay serve"},
		{"version now", "relay version"}, {"errors a b", "relay errors"},
		{"help nonsense", "relay help"}, {"help key nonsense", "relay help"},
	} {
		wantWrongUsage(t, c.args, c.try)
	}
}

func wantWrongUsage(t *testing.T, args, try string) {
	t.Helper()
	r := runRefused(t, strings.Fields(args), nil)
	if r.code != 2 || r.out != "" || !strings.HasPrefix(r.err, "relay: ") || !strings.HasSuffix(r.err, "\nTry: "+try+" --help\n") {
		t.Errorf("relay %s: exit %d\nstdout: %s\nstderr: %s", args, r.code, r.out, r.err)
	}
}

// A mistyped word gets the suggestion that was probably meant.
func TestSlipsGetASuggestion(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"key lst":                               `there is no command "key lst"; did you mean "key list"?`,
		"mecha profile gte":                     `there is no command "mecha profile gte"; did you mean "mecha profile get"?`,
		"hlep":                                  `there is no command "hlep"; did you mean "help"?`,
		"help key crate":                        `there is no command "key crate"; did you mean "key create"?`,
		"mec":                                   `there is no command "mec"; did you mean "mecha"?`,
		"nonsense":                              `there is no command "nonsense"` + "\n",
		"version -json":                         `unknown flag "-json"; did you mean "--json"?`,
		"version -x":                            `unknown flag "-x"` + "\n",
		"serve --nonsense":                      `unknown flag "--nonsense"` + "\n",
		"serve --db":                            `--db needs a value: --db FILE`,
		"serve --max-body much":                 `--max-body: "much" is not a whole number`,
		"serve --max-body 99999999999999999999": `--max-body: 99999999999999999999 is too large`,
		"serve --retention 30":                  `--retention: "30" is not a duration, as in 30d or 12h`,
		"prune --older-than 1.5d":               `--older-than: "1.5d" is not a duration, as in 30d or 12h`,
		"serve --body-timeout 5":                `--body-timeout: "5" is not a duration, as in 30s or 5m`,
		"serve --require-message-signature=yo":  `--require-message-signature: "yo" is not true or false`,
		"serve --addr 8080":                     `--addr must be host:port, as in 127.0.0.1:8080; "8080" is not`,
		"serve --addr 127.0.0.1:99999":          `--addr must be host:port`,
		"sevre":                                 `there is no command "sevre"; did you mean "serve"?`,
		"sevre now --max-body 3":                `there is no command "sevre"; did you mean "serve"?`,
		"serve --max-bdoy 3":                    `unknown flag "--max-bdoy"; did you mean "--max-body"?`,
		"key create":                            "key create takes one or more addresses",
	} {
		wantSuggestion(t, args, says)
	}
}

func wantSuggestion(t *testing.T, args, says string) {
	t.Helper()
	if r := runRefused(t, strings.Fields(args), nil).wantCode(t, 2, "relay: "+says); r.out != "" {
		t.Errorf("relay %s printed %q", args, r.out)
	}
}

// An empty duration is refused: as 0 it would turn off, say, the removal of expired
// messages, or end a rotated key at once.
func TestAnEmptyLengthOfTimeIsNotZero(t *testing.T) {
	for variable, command := range map[string]string{"RELAY_KEEP_EXPIRED": "serve", "RELAY_RETENTION": "serve", "RELAY_OVERLAP": "key rotate key_7h2k9d0m4qx1w8zt", "RELAY_EXPIRES": "key create a^b"} {
		runAlone(t, append(strings.Fields(command), "--db", tempDB(t)), []string{variable + "="}).wantCode(t, 2, `"" is not a duration`)
	}
}

func TestHelpCanBeAskedForInEveryWay(t *testing.T) {
	for _, args := range []string{"", "help", "--help", "-h"} {
		if out := mustRelay(t, strings.Fields(args)...); !strings.Contains(out, "Operating:") {
			t.Errorf("relay %s:\n%s", args, out)
		}
	}
	if a, b := mustRelay(t, "help", "key", "create"), mustRelay(t, "key", "create", "--help"); a != b {
		t.Errorf("help key create:\n%s\nkey create --help:\n%s", a, b)
	}
}

func TestEveryFlagCanBeSetInTheEnvironment(t *testing.T) {
	db := tempDB(t)
	s := startServerIn(t, []string{"RELAY_ADDR=127.0.0.1:1", "RELAY_DB=/nowhere/relay.db", "RELAY_LOG_FORMAT=json", "RELAY_MAX_BODY=100"}, db)
	if !strings.HasPrefix(s.stderr.String(), "{") {
		t.Errorf("RELAY_LOG_FORMAT=json: %s", s.stderr)
	}
	a := agents(t, runAlone(t, []string{"key", "create", "a^env"}, []string{"RELAY_DB=" + db, "RELAY_JSON=true"}).wantCode(t, 0).out)[0]
	s.ask(a, "POST", "/api/v1/messages", `{"to":"a^env","payload":{"text":"`+strings.Repeat("x", 100)+`"}}`).wantProblem(t, 413, "payload_too_large")

	// The flag is stronger than the environment.
	for _, f := range []struct{ env, flag string }{{"RELAY_DB=/nowhere/relay.db", db}, {"RELAY_DB=" + db, db}} {
		runAlone(t, []string{"key", "list", "--db", f.flag}, []string{f.env}).wantCode(t, 0)
	}
	runAlone(t, []string{"key", "list", "--db", "/nowhere/relay.db"}, []string{"RELAY_DB=" + db}).wantCode(t, 1, filepath.FromSlash("/nowhere/relay.db"))
	r := runAlone(t, []string{"version", "--json=false"}, []string{"RELAY_JSON=true"}).wantCode(t, 0)
	if !strings.HasPrefix(r.out, "relay ") {
		t.Errorf("%s", r.out)
	}
}

func TestABadValueInTheEnvironmentIsNamed(t *testing.T) {
	db := tempDB(t)
	for _, c := range []struct{ command, name, value string }{
		{"serve", "RELAY_MAX_BODY", "lots"}, {"serve", "RELAY_CLOCK_SKEW", "5"},
		{"serve", "RELAY_REQUIRE_MESSAGE_SIGNATURE", "perhaps"}, {"serve", "RELAY_RATE_LIMIT", "fast"},
		{"version", "RELAY_JSON", "perhaps"}, {"errors", "RELAY_JSON", "perhaps"},
	} {
		args := []string{c.command}
		if c.command == "serve" {
			args = append(args, "--db", db)
		}
		r := runAlone(t, args, []string{c.name + "=" + c.value}).wantCode(t, 2, c.name, c.value, "Try: relay "+c.command+" --help")
		if r.out != "" {
			t.Errorf("%s=%s: it printed %q", c.name, c.value, r.out)
		}
	}
	wantFiles(t, filepath.Dir(db))
}

func TestErrorsAreListed(t *testing.T) {
	text := mustRelay(t, "errors")
	codes := map[string]bool{}
	for line := range strings.Lines(mustRelay(t, "errors", "--json")) {
		v := parse[struct {
			Code, Meaning string
			Status        int
		}](t, []byte(line))
		if v.Code == "" || v.Meaning == "" || codes[v.Code] || v.Status > 599 {
			t.Errorf("%s", line)
		}
		codes[v.Code] = true
		if !strings.Contains(text, v.Code) {
			t.Errorf("%s is in the JSON only", v.Code)
		}
	}
	one := mustRelay(t, "errors", "nonce_reused")
	if strings.Count(one, "\n") != 1 || !strings.HasPrefix(one, "nonce_reused") || !strings.Contains(one, "401") {
		t.Errorf("%s", one)
	}
	for code, says := range map[string]string{"no_such_code": "relay errors lists them all", "nonce_resued": `did you mean "nonce_reused"?`} {
		if r := runRelay(t, "errors", code).wantCode(t, 1, code, says); r.out != "" {
			t.Errorf("%s", r.out)
		}
	}
}

// An error for programs is one line of JSON, and < and > are not escaped in it.
func TestErrorsForPrograms(t *testing.T) {
	r := runRelay(t, "errors", "<code>", "--json").wantCode(t, 1)
	v := parse[struct {
		Error string
		Code  *string
		Exit  int
	}](t, []byte(r.err))
	if !strings.Contains(v.Error, `"<code>"`) || v.Code != nil || v.Exit != 1 || !strings.Contains(r.err, `<code>`) || strings.Count(r.err, "\n") != 1 {
		t.Errorf("%s", r.err)
	}
}

func TestVersion(t *testing.T) {
	var v map[string]string
	if err := json.Unmarshal([]byte(mustRelay(t, "version", "--json")), &v); err != nil || v["version"] == "" || v["commit"] == "" || v["go"] == "" {
		t.Errorf("%v, %v", v, err)
	}
	if out := mustRelay(t, "version"); !strings.Contains(out, v["version"]) || !strings.Contains(out, v["go"]) {
		t.Errorf("%s", out)
	}
	s := startServer(t, tempDB(t))
	resp, err := client.Get(s.url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var served map[string]string
	if err := json.NewDecoder(resp.Body).Decode(&served); err != nil || served["version"] != v["version"] {
		t.Errorf("%v, %v; want %v", served, err, v)
	}
}

func TestATakenAddress(t *testing.T) {
	s := startServer(t, tempDB(t))
	_, port, err := net.SplitHostPort(s.host())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	db := tempDB(t)
	runRefused(t, []string{"serve", "--db", db, "--addr", s.host()}, nil).
		wantCode(t, 1, fmt.Sprintf("%s is already in use; --addr 127.0.0.1:%d uses another port", s.host(), (n+1)%(1<<16)))
	// TEST-NET-3 (RFC 5737) belongs to no machine.
	runRefused(t, []string{"serve", "--db", db, "--addr", "203.0.113.1:8080"}, nil).wantCode(t, 1, "cannot listen on --addr 203.0.113.1:8080")
	wantFiles(t, filepath.Dir(db))
}
