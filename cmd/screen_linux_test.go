package cmd_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"relay/db/scratch"
)

// A showing is one call of a command that prints what others wrote.
type showing struct {
	args  string // in which $NAME stands for a word of the cast
	until string // appears in the output; then the command is interrupted
	sees  string // appears on the terminal, if the command prints what was sent
}

// showings has every command. A client's commands are shown with a relay that has
// hostile messages, and with relays that are hostile themselves.
var showings = map[string][]showing{
	"ack":                   {{args: "$ID processing --detail $HOSTILE"}, {args: "$HOSTILE"}, {args: "$ID $HOSTILE"}},
	"audit":                 {{sees: `\u202e`}, {args: "--json", sees: `\u202e`}, {args: "--since $HOSTILE"}},
	"backup":                {{args: "$DIR/$LEGAL.db"}, {args: "$DIR/$LEGAL.db"}},
	"bench":                 {{args: "--only $HOSTILE"}, {args: "--url $HOSTILE"}},
	"check":                 {{}, {args: "--quick --json"}, {args: "$DIR/$LEGAL"}},
	"cluster add":           {{args: "$HOSTILE"}, {args: "n4=$HOSTILE --cluster $DIR/$LEGAL"}},
	"cluster init":          {{args: "$HOSTILE n2=b:1 n3=c:1"}, {args: "n1=a:1 n2=b:1 n3=c:1 --cluster $DIR/$LEGAL --db $COPY"}},
	"cluster leave":         {{args: "--db $DIR/$LEGAL"}, {args: "--db $COPY"}},
	"cluster recover":       {{args: "--cluster $DIR/$LEGAL"}, {args: "--cluster $FILE"}},
	"cluster remove":        {{args: "$HOSTILE"}, {args: "n1 --cluster $DIR/$LEGAL"}},
	"cluster status":        {{}, {args: "--db $DIR/$LEGAL"}},
	"compact":               {{args: "--db $COPY"}},
	"completion bash":       {{}},
	"completion fish":       {{}},
	"completion powershell": {{}},
	"completion zsh":        {{}},
	"console":               {{args: "--db $DIR/$LEGAL-none.db"}, {args: "--listen $HOSTILE"}, {args: "--print-url"}},
	"curl": {{args: "GET /api/v1/messages/$ID -i", sees: `\u202e`}, {args: "GET /api/v1/messages/$ID/payload --json", sees: `\u009b`},
		{args: "GET /hostile -i"}, {args: "$HOSTILE $HOSTILE"}, {args: "GET / -H $HOSTILE"}},
	"deliver":              {{args: "$ID"}, {args: "$HOSTILE"}},
	"demo":                 {{}},
	"docs":                 {{}, {args: "protocol"}, {args: "$HOSTILE"}},
	"errors":               {{}, {args: "$HOSTILE"}},
	"help":                 {{}, {args: "$HOSTILE"}},
	"inbox":                {{sees: "evil"}, {args: "--json", sees: `\u202e`}},
	"key create":           {{args: "new^x --label $MARKS"}, {args: "$HOSTILE"}},
	"key list":             {{sees: `\u202e`}, {args: "--json", sees: `\u202e`}, {args: "$HOSTILE"}},
	"key revoke":           {{args: "key_$HOSTILE"}, {args: "$SPARE"}},
	"key rotate":           {{args: "key_$HOSTILE"}, {args: "$SPARE"}, {args: "$SPARE --overlap $HOSTILE"}},
	"listen":               {{args: "--state none", until: "\n    evil", sees: `\u202e`}, {args: "--state none --json", until: `"text":"evil`, sees: `\u202e`}, {args: "--exec $FAIL", until: " failed: "}},
	"man":                  {{args: "$DIR/$LEGAL.d"}},
	"mecha import":         {{args: "$FILE"}, {args: "$FILE --as $HOSTILE"}, {args: "$FILE --as new^x"}},
	"mecha list":           {{sees: `\u202e`}, {args: "--json", sees: `\u202e`}},
	"mecha profile get":    {{args: "bob^x", sees: `\u202e`}, {args: "bob^x --json", sees: `\u202e`}},
	"mecha profile set":    {{args: "bob^x $DIR/$LEGAL"}, {args: "bob^x $FILE"}, {args: "$HOSTILE $FILE"}},
	"mecha remove":         {{args: "spare^x"}, {args: "$HOSTILE"}},
	"mecha show":           {{args: "bob^x", sees: `\u202e`}, {args: "bob^x --json", sees: `\u202e`}, {args: "$HOSTILE"}},
	"message conversation": {{args: "$CONVERSATION", sees: `\u001b`}, {args: "$CONVERSATION --json", sees: `\u202e`}, {args: "$HOSTILE"}},
	"message list":         {{}, {args: "--json", sees: `\u202e`}, {args: "--before $HOSTILE"}},
	"message show":         {{args: "$ID --payload", sees: `\u202e`}, {args: "$ID --payload --json", sees: `\u202e`}, {args: "$ID --raw", sees: `\u202e`}, {args: "$HOSTILE"}},
	"message stats":        {{}},
	"message tail":         {{args: "--last 9 --json", until: "$ID"}, {args: "--last 9", until: "$ID", sees: `\u202e`}},
	"message trace":        {{args: "$ACKED", sees: `\u202e`}, {args: "$ACKED --json", sees: `\u202e`}, {args: "$HOSTILE"}},
	"readyz":               {{}, {args: "--json"}, {args: "--url $HOSTILE"}},
	"restore":              {{args: "$COPY --db $DIR/$LEGAL-restored.db"}, {args: "$FILE"}},
	"search":               {{args: "zzyzx", sees: `\u202e`}, {args: "zzyzx --json", sees: `\u202e`}, {args: "zzyzx --sort $HOSTILE"}},
	"search forget":        {{args: "bob^x"}, {args: "bob^x --json"}, {args: "$HOSTILE"}},
	"ask":                  {{args: "--find zzyzx {} --timeout 5ms"}, {args: "--find $HOSTILE {} --timeout 5ms"}, {args: "bob^x {} --timeout 5ms"}, {args: "$HOSTILE {}"}, {args: "bob^x {} --in-reply-to $HOSTILE"}},
	"reply":                {{args: "$ID {}"}, {args: "$HOSTILE {}"}, {args: "$ID $HOSTILE"}},
	"send":                 {{args: "bob^x {}"}, {args: "bob^x {} --wait-ack 50ms --json"}, {args: "$HOSTILE {}"}, {args: "bob^x $HOSTILE"}, {args: "bob^x {} --wait-reply 5ms"}},
	"serve":                {{args: "--addr 127.0.0.1:0 --db $DIR/$LEGAL-new.db", until: "serving"}, {args: "--addr $HOSTILE"}, {args: "--log-format json --addr 127.0.0.1:0 --db $DIR/$LEGAL-json.db", until: "serving"}},
	"client js":            {{}, {args: "--example"}, {args: "--json"}},
	"client python":        {{}, {args: "--example"}, {args: "--json"}},
	"client ts":            {{}},
	"conformance":          {{args: "$HOSTILE"}, {args: "--only $HOSTILE -- true"}, {args: "--list"}},
	"mcp":                  {{args: "--key-file $HOSTILE"}, {args: "--retry $HOSTILE"}},
	"a2a":                  {{args: "--as $HOSTILE"}, {args: "--as door^x --offer $HOSTILE"}, {args: "--as door^x --token-file $HOSTILE"}, {args: "--as door^x --listen 127.0.0.1:0 --public-url http://$LEGAL.example", until: "A2A as"}},
	"setup":                {{args: "vscode --dry-run"}, {args: "$HOSTILE"}, {args: "codex --dry-run --name $HOSTILE"}, {args: "codex --project $HOSTILE"}},
	"hook wait":            {{args: "--session $HOSTILE --timeout 1s"}, {args: "--session $HOSTILE --timeout 1s --json"}, {args: "--timeout $HOSTILE"}},
	"doctor":               {{args: "--name $HOSTILE"}, {args: "--json"}, {args: "--project $HOSTILE"}},
	"sign":                 {{args: "$HOSTILE"}, {args: "$HOSTILE --json"}},
	"prune":                {{args: "--older-than 1s --dry-run"}},
	"openapi":              {{}},
	"asyncapi":             {{}},
	"stats":                {{}, {args: "--json"}},
	"version":              {{}},
	"whoami":               {{}, {args: "--json"}},
	"why":                  {{args: "$ACKED", sees: `\u202e`}, {args: "$ACKED --json", sees: `\u202e`}, {args: "bob^x"}, {args: "bob^x --json"}, {args: "$HOSTILE"}},
}

// A cast is the store and the words that showings are about.
type cast struct {
	*server
	words map[string]string
	env   []string
	other map[string]string // the keys for commands that handle all messages of a Mecha
}

func newCast(t *testing.T) *cast {
	c := &cast{server: startServer(t, tempDB(t))}
	dir := t.TempDir()
	keys := issue(t, c.db, "alice^x", "bob^x", "carol^x", "spare^x", "door^x", "--label", marks)
	alice, bob, carol := keys[0], keys[1], keys[2]
	profile := `{"display_name":` + inJSON("zzyzx "+hostile) + `,"description":` + inJSON(hostile) + `,"details":` + inJSON(hostile) + `,"languages":["en"]}`
	for _, a := range keys[:2] {
		c.ask(a, "PUT", "/api/v1/mecha/"+a.Address+"/profile", profile).want(t, http.StatusOK)
	}
	body := `{"to":"bob^x","message_type":` + inJSON("t"+marks) + `,"version":` + inJSON("v"+c1+marks[:5]) + `,"correlation_id":` + inJSON(hostile) + `,"payload":{"text":` + inJSON(hostile) + `}}`
	c.ask(alice, "POST", "/api/v1/messages", strings.Replace(body, "bob^x", "carol^x", 1)).want(t, http.StatusCreated)
	sent := parse[record](t, c.ask(alice, "POST", "/api/v1/messages", body).want(t, http.StatusCreated))
	acked := parse[record](t, c.ask(alice, "POST", "/api/v1/messages", body).want(t, http.StatusCreated))
	ack := `{"status":"failed","client_ts":"2026-01-01T00:00:00Z","detail":` + inJSON(hostile) + `}`
	c.ask(bob, "POST", "/api/v1/messages/"+acked.MessageID+"/ack", ack).want(t, http.StatusOK)
	eventually(t, patience, "the profile is found", func() bool {
		return strings.Contains(string(c.search(bob, "zzyzx")), "alice^x")
	})
	c.words = map[string]string{
		"HOSTILE": hostile, "LEGAL": legal, "MARKS": marks, "ID": sent.MessageID, "ACKED": acked.MessageID, "CONVERSATION": sent.ConversationID,
		"SPARE": keys[3].KeyID, "DIR": dir, "COPY": filepath.Join(dir, "copy.db"), "FILE": filepath.Join(dir, "file"),
		"FAIL": "cat >&2; exit 1",
	}
	lines := hostile + "\n" + `{"mecha_id":` + inJSON(hostile) + "}\n" + `{"mecha_id":"bob^y","profile":{"tags":` + inJSON(hostile) + "}}\n"
	if err := os.WriteFile(c.words["FILE"], []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRelay(t, "backup", c.words["COPY"], "--db", c.db)
	c.other = map[string]string{"listen": carol.Key, "a2a": keys[4].Key}
	c.env = []string{"RELAY_URL=" + c.url, "RELAY_KEY=" + bob.Key, "RELAY_DB=" + c.db, "TERM=xterm", "HOME=" + dir, "XDG_STATE_HOME=" + dir, "XDG_CONFIG_HOME=" + dir}
	config := filepath.Join(dir, "Code", "User", "mcp.json")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("{\n  "+inJSON(hostile)+": {}\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// wrong is refused before anything is read.
const wrong = "--$HOSTILE"

// called returns the arguments of a call, with the cast's values for $NAME.
func (c *cast) called(command, args string) []string {
	words := strings.Fields(command + " " + args)
	for i, w := range words {
		words[i] = c.expand(w)
	}
	return words
}

func (c *cast) expand(text string) string {
	return os.Expand(text, func(name string) string { return c.words[name] })
}

// play runs a command on a terminal to its end.
func (c *cast) play(t testing.TB, env []string, command string, sh showing) result {
	t.Helper()
	args := c.called(command, sh.args)
	if here, ok := c.here(t, args, env); ok && sh.until == "" && !scratch.IsLong() {
		return hereOnTerminal(t, here...)
	}
	run := exec.Command(binary, args...)
	run.Dir = c.words["DIR"]
	s := launchOnTerminal(t, run, env)
	if sh.until != "" {
		until := c.expand(sh.until)
		eventually(t, patience, until, func() bool { return strings.Contains(s.stdout.String()+s.stderr.String(), until) || s.ended() })
		s.cmd.Process.Signal(syscall.SIGINT) // it may have ended
	}
	code := s.wait()
	return result{s.stdout.String(), s.stderr.String(), code}
}

// readers are the commands that read the database, which RELAY_DB names, and runsHere allows.
var readers = []string{"audit", "key", "mecha", "message", "stats"}

// here returns the arguments by which a call does the same in this process, without the
// settings in env. It returns false otherwise.
func (c *cast) here(t testing.TB, args, env []string) (flagged []string, ok bool) {
	if slices.Contains(args, c.expand(wrong)) {
		return args, true
	}
	var client []string
	for _, e := range env {
		if strings.HasPrefix(e, "RELAY_URL=") || strings.HasPrefix(e, "RELAY_KEY=") {
			client = append(client, e)
		}
	}
	if flagged, ok = inFlags(t, args, client); ok {
		return flagged, true
	}
	switch {
	case args[0] == "readyz":
		for _, e := range slices.Backward(client) {
			if url, found := strings.CutPrefix(e, "RELAY_URL="); found {
				return slices.Insert(slices.Clone(args), 1, "--url="+url), true
			}
		}
		return nil, false
	case !runsHere(args) || args[0] == "search" || args[0] == "why" || args[0] == "sign" || args[0] == "check":
		return nil, false
	case slices.Contains(readers, args[0]):
		return append(slices.Clone(args), "--db="+c.db), true
	}
	return args, true
}

var ownColours = regexp.MustCompile(`\x1b\[(?:0|3[1-49]|90)m`)

// bars is the commands that draw a bar on stderr, over and over on one line.
var bars = map[string]bool{"backup": true, "bench": true, "check": true, "compact": true, "mecha import": true, "restore": true}

// wantHarmless expects that nothing steers the terminal, and that no line is forged.
func wantHarmless(t testing.TB, call string, r result, bar, raw bool) {
	t.Helper()
	for stream, text := range map[string]string{"stdout": r.out, "stderr": r.err} {
		text = ownColours.ReplaceAllString(text, "")
		if bar && stream == "stderr" {
			text = strings.ReplaceAll(text, "\r", "")
		}
		for at, c := range text {
			wrong := c == utf8.RuneError && text[at] != "\uFFFD"[0]
			if c != '\n' && c != '\t' && unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c) || wrong {
				t.Errorf("%s: %s has %U: %q", call, stream, c, text)
				break
			}
		}
		if !raw && strings.Contains(text, "\nrelay: forged") {
			t.Errorf("%s: a line of %s is forged: %q", call, stream, text)
		}
	}
}

// Text that others wrote cannot steer a terminal, in any command that prints it. The list
// of commands comes from the program itself.
func TestNoCommandLetsOthersSteerTheTerminal(t *testing.T) {
	notShort(t)
	t.Parallel()
	tool(t, "sh", "cat")
	c := newCast(t)
	relays := []string{"RELAY_URL=" + hostileRelay(t), "RELAY_URL=" + hostileRefusals(t)}
	for n, command := range leaves(t) {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			if showings[command] == nil {
				t.Fatal("say in showings how this command prints what others wrote")
			}
			if n%4 != 0 { // all print in the same ways
				notQuick(t)
			}
			client := strings.Contains(helpOf(t, strings.Fields(command)...), "--ca-file")
			calls := append(showings[command], showing{args: wrong})
			for i, sh := range calls {
				call, raw := strings.TrimSpace(command+" "+sh.args), strings.Contains(sh.args, "/hostile") || strings.Contains(sh.args, "--exec")
				env := c.env
				if key := c.other[command]; key != "" {
					env = slices.Concat(env, []string{"RELAY_KEY=" + key})
				}
				r := c.play(t, env, command, sh)
				wantHarmless(t, call, r, bars[command], raw)
				if !strings.Contains(r.out+r.err, sh.sees) {
					t.Errorf("%s: no %s in:\n%s%s", call, sh.sees, r.out, r.err)
				}
				if !client || sh.args == wrong {
					continue
				}
				for k, url := range relays {
					if !scratch.Long(t) && len(calls) > 2 && i%2 != k {
						continue // the command meets each relay, but not with each call
					}
					r := c.play(t, slices.Concat(env, []string{url}), command, sh)
					wantHarmless(t, call, r, bars[command], raw)
				}
			}
		})
	}
}

// leaves returns the commands that do something: those that hold no others.
func leaves(t *testing.T) (all []string) {
	eachCommand(t, nil, func(path []string, _ string) {
		if n := len(all); n > 0 && len(path) > 1 && all[n-1] == strings.Join(path[:len(path)-1], " ") {
			all = all[:n-1] // it holds this one
		}
		if len(path) > 0 {
			all = append(all, strings.Join(path, " "))
		}
	})
	if len(all) < 25 {
		t.Fatalf("%d commands: %v", len(all), all)
	}
	return all
}

// JSON on a terminal has the same value as JSON that goes elsewhere, which is the
// bytes that were sent.
func TestJSONOnATerminalKeepsItsValue(t *testing.T) {
	t.Parallel()
	newCast(t).wantSameJSON(present("message show $ID --payload", "message show $ID --payload --json", "message show $ID --raw", "mecha show bob^x", "mecha profile get bob^x")...)
}

func (c *cast) wantSameJSON(calls ...string) {
	t := c.t
	t.Helper()
	for _, call := range calls {
		args, env := c.called(call, ""), c.env
		if here, ok := c.here(t, args, env); ok {
			args, env = here, nil
		}
		elsewhere := run(t, args, env, "").wantCode(t, 0).out
		if strings.Contains(call, "$ID") != strings.Contains(elsewhere, c1[:2]) && !strings.Contains(elsewhere, marks) {
			t.Errorf("%s: elsewhere it is %q", call, elsewhere)
		}
		shown := c.play(t, c.env, call, showing{}).wantCode(t, 0).out
		a, b := parse[map[string]any](t, []byte(shown)), parse[map[string]any](t, []byte(elsewhere))
		for _, own := range []string{"request_id", "took_ms", "as_of", "created_at", "expires_at"} { // of each search
			delete(a, own)
			delete(b, own)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: on a terminal it is %q, elsewhere %q", call, shown, elsewhere)
		}
		wantHarmless(t, call, result{out: shown}, false, false)
	}
}
