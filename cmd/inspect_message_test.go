package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/http/docs"
)

// step is an event as trace and tail print it with --json.
type step struct {
	At        string `json:"at"`
	AfterMS   int64  `json:"after_ms"`
	Event     string `json:"event"`
	MessageID string `json:"message_id"`
	From      string `json:"from"`
	To        string `json:"to"`
	KeyID     string `json:"key_id"`
	KeyLabel  string `json:"key_label"`
	Status    string `json:"status"`
	Detail    string `json:"detail"`
}

type trace struct {
	Message record `json:"message"`
	Retried bool   `json:"idempotency_key"`
	Steps   []step `json:"steps"`
}

func (t trace) events() (all []string) {
	for _, s := range t.Steps {
		all = append(all, strings.TrimSpace(s.Event+" "+s.Status))
	}
	return all
}

// ids returns the ids that message list prints with the filters.
func listIDs(t testing.TB, db string, filters ...string) (ids []string) {
	t.Helper()
	for _, r := range lines[record](t, mustRelay(t, append([]string{"message", "list", "--json", "--db", db}, filters...)...)) {
		ids = append(ids, r.MessageID)
	}
	return ids
}

// While a server runs, message list finds the messages that pass its filters,
// newest first, in pages.
func TestMessageList(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x", "carol^x")
	alice, bob, carol := k[0], k[1], k[2]
	first := s.send(alice, "bob^x", `{"text":"the First of all"}`).MessageID
	began := time.Now().Truncate(time.Millisecond).Add(time.Millisecond) // times are kept to the millisecond
	for time.Now().Before(began) {
	}
	second := parse[record](t, s.ask(bob, "POST", "/api/v1/messages", `{"to":"carol^x","payload":{"n":2},"message_type":"question","priority":"high","conversation_id":"talk"}`).want(t, 201)).MessageID
	third := parse[record](t, s.ask(carol, "POST", "/api/v1/messages", `{"to":"bob^x","payload":{"n":3},"conversation_id":"talk","ttl_seconds":1}`).want(t, 201)).MessageID
	s.ask(bob, "POST", "/api/v1/messages/"+first+"/deliver", "").want(t, 200)
	s.ask(carol, "POST", "/api/v1/messages/"+second+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
	since := began.UTC().Format(time.RFC3339Nano)
	for filters, want := range map[string][]string{
		"":                                    {third, second, first},
		"--oldest":                            {first, second, third},
		"--mecha alice^x":                     {first},
		"--mecha bob^x":                       {third, second, first},
		"--mecha bob^x --direction out":       {second},
		"--mecha bob^x --peer carol^x":        {third, second},
		"--peer alice^x":                      {first},
		"--conversation talk":                 {third, second},
		"--conversation nothing":              nil,
		"--state delivered":                   {first},
		"--state acknowledged":                {second},
		"--status completed":                  {second},
		"--status failed":                     nil,
		"--type question":                     {second},
		"--priority high":                     {second},
		"--since " + since:                    {third, second},
		"--until " + since:                    {first},
		"--since 1h":                          {third, second, first},
		"--text first":                        {first},
		"--text nowhere":                      nil,
		"--limit 2":                           {third, second},
		"--limit 2 --before " + second:        {first},
		"--oldest --limit 1 --after " + first: {second},
	} {
		if got := listIDs(t, s.db, strings.Fields(filters)...); !slices.Equal(got, want) {
			t.Errorf("list %s: %q, want %q", filters, got, want)
		}
	}
	eventually(t, patience, "the third expires", func() bool {
		return slices.Equal(listIDs(t, s.db, "--state", "expired"), []string{third})
	})
	r := runRelay(t, "message", "list", "--db", s.db, "--limit", "1")
	if r.wantCode(t, 0, "--before "+third); strings.Contains(r.out, "\x1b") || !strings.Contains(r.out, "CREATED") || !strings.Contains(r.out, "carol^x") {
		t.Errorf("no plain table: %q", r.out)
	}
}

func TestMessageListRefusals(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	issue(t, db, "alice^x")
	for args, want := range map[string]string{
		"--state done":           "pending, queued",
		"--mecha nobody":         "address",
		"--direction up":         "in, out or all",
		"--direction in":         "--mecha",
		"--since yesterday":      "not a time",
		"--limit 0":              "at least 1",
		"--mecha nobody^nowhere": "not registered",
		"--before msg_nonsense":  "not a message id",
		"something":              "no arguments",
	} {
		code := 2
		if strings.Contains(args, "nowhere") || strings.Contains(args, "nonsense") {
			code = 1
		}
		runRelay(t, append([]string{"message", "list", "--db", db}, strings.Fields(args)...)...).wantCode(t, code, want)
	}
}

// A file that is not a database is named by its absolute path, and no file is created.
func TestInspectionCreatesNothing(t *testing.T) {
	notShort(t)
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign.db")
	if err := os.WriteFile(foreign, []byte(strings.Repeat("this is no database. ", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"message", "list"}, {"message", "show", "msg_x"}, {"message", "tail"}, {"message", "trace", "msg_x"},
		{"message", "conversation", "conv_x"}, {"stats"}, {"message", "stats"}} {
		for _, name := range []string{"missing.db", "foreign.db", "empty.db", "."} {
			path := filepath.Join(dir, name)
			if args[0] != "stats" {
				runRefused(t, append(args, "--db", path), nil).wantCode(t, 1, path)
				continue
			}
			runIn(t, dir, append(args, "--db", name)...).wantCode(t, 1, path)
		}
	}
	wantFiles(t, dir, "empty.db", "foreign.db")
}

// A trace shows what happened to a message, in order, and by which keys.
func TestTrace(t *testing.T) {
	s := startServer(t, tempDB(t))
	alice, bob := issue(t, s.db, "alice^x")[0], issue(t, s.db, "bob^x", "--label", "laptop")[0]
	conn := s.dial(bob, "?sync_limit=0")
	sent := parse[record](t, s.ask(alice, "POST", "/api/v1/messages", `{"to":"bob^x","payload":{}}`, "Idempotency-Key", "once").want(t, 201))
	if _, _, err := conn.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := s.dial(bob, "") // a second socket gets it by its sync
	if _, _, err := again.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := "/api/v1/messages/" + sent.MessageID
	s.ask(bob, "POST", at+"/deliver", "").want(t, 200)
	s.ask(bob, "POST", at+"/ack", `{"status":"processing","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
	ack := `{"type":"ack","message_id":"` + sent.MessageID + `","status":"failed","client_ts":"2026-01-01T00:00:00Z","detail":"no such flight"}`
	if err := conn.Write(t.Context(), websocket.MessageText, []byte(ack)); err != nil {
		t.Fatal(err)
	}
	var got trace
	want := []string{"accepted", "pushed", "pushed", "delivered", "progress processing", "acknowledged failed"}
	eventually(t, patience, "the trace is complete", func() bool {
		got = parse[trace](t, []byte(mustRelay(t, "message", "trace", sent.MessageID, "--json", "--db", s.db)))
		return len(got.Steps) >= len(want)
	})
	if !slices.Equal(got.events(), want) || !got.Retried || got.Message.MessageID != sent.MessageID {
		t.Fatalf("%q, want %q (%+v)", got.events(), want, got)
	}
	for i, st := range got.Steps {
		key := bob.KeyID
		if i == 0 {
			key = alice.KeyID
		}
		if st.KeyID != key || (st.KeyLabel == "laptop") != (i > 0) || st.AfterMS < 0 {
			t.Errorf("step %d: %+v", i, st)
		}
	}
	text := mustRelay(t, "message", "trace", sent.MessageID, "--db", s.db)
	for _, w := range []string{"signed, with an Idempotency-Key", "to a socket of this key", "no such flight", "(laptop)", "+"} {
		if !strings.Contains(text, w) {
			t.Errorf("the trace lacks %q:\n%s", w, text)
		}
	}
	runRelay(t, "message", "trace", "msg_00000000000000000000000000", "--db", s.db).wantCode(t, 1, "no message")
}

// A push is noted without waiting for another write, and the note survives the server.
func TestAPushIsNotedWhenNothingElseIsWritten(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x")
	sent := s.send(k[0], "bob^x", `{}`)
	conn := s.dial(k[1], "")
	if _, _, err := conn.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the push is noted", func() bool {
		got := parse[trace](t, []byte(mustRelay(t, "message", "trace", sent.MessageID, "--json", "--db", s.db)))
		return slices.Equal(got.events(), []string{"accepted", "pushed"})
	})
	live := s.send(k[0], "bob^x", `{}`)
	if _, _, err := conn.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.end() // at once: the notes are written on the way out
	got := parse[trace](t, []byte(mustRelay(t, "message", "trace", live.MessageID, "--json", "--db", s.db)))
	if !slices.Equal(got.events(), []string{"accepted", "pushed"}) {
		t.Errorf("after the stop: %q", got.events())
	}
}

// tail prints every commit of another process once, in order.
func TestTail(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x", "carol^x")
	s.send(k[0], "carol^x", `{}`) // before tail begins, so it is not printed
	tail := launchHere(t, []string{"message", "tail", "--json", "--db", s.db}, nil)
	of := launchHere(t, []string{"message", "tail", "--mecha", "carol^x", "--last", "5", "--db", s.db}, nil)
	of.await(of.stdout, "accepted .* alice\\^x → carol\\^x") // tail prints, so it has begun
	// The other tail has nothing to print yet: send until it prints.
	eventually(t, patience, "tail follows", func() bool {
		s.send(k[1], "bob^x", `{"warm":"up"}`)
		text, more := tail.stdout.read()
		if text != "" {
			return true
		}
		select {
		case <-more:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	var want []string
	for n := range 300 {
		m := s.send(k[0], "bob^x", fmt.Sprintf(`{"n":%d}`, n))
		want = append(want, "accepted "+m.MessageID)
		if n%3 == 0 {
			s.ask(k[1], "POST", "/api/v1/messages/"+m.MessageID+"/deliver", "").want(t, 200)
			want = append(want, "delivered "+m.MessageID)
		}
		if n%5 == 0 {
			s.ask(k[1], "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
			want = append(want, "acknowledged "+m.MessageID)
		}
	}
	last := strings.Fields(want[len(want)-1])[1]
	tail.await(tail.stdout, `"accepted","message_id":"`+last)
	var got []string
	for _, e := range lines[step](t, tail.stdout.String()) {
		if e.From == "alice^x" {
			got = append(got, e.Event+" "+e.MessageID)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("tail printed %d events, want %d, or in another order", len(got), len(want))
	}
	if code := tail.terminate(); code != 0 || tail.stderr.String() != "" {
		t.Errorf("exit %d, stderr %q", code, tail.stderr)
	}
	if n := strings.Count(of.stdout.String(), "\n"); n != 1 {
		t.Errorf("--mecha carol^x printed %d lines:\n%s", n, of.stdout)
	}
}

func TestMessageShowAndConversation(t *testing.T) {
	t.Parallel()
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x")
	payload := `{ "text" : "hello", "n": 1.50e2 }`
	m := s.send(k[0], "bob^x", payload)
	if out := mustRelay(t, "message", "show", m.MessageID, "--raw", "--db", s.db); out != payload {
		t.Errorf("--raw: %q", out)
	}
	api := string(s.ask(k[0], "GET", "/api/v1/messages/"+m.MessageID, "").want(t, 200))
	wantSameJSON(t, mustRelay(t, "message", "show", m.MessageID, "--db", s.db), api)
	if out := mustRelay(t, "message", "show", m.MessageID, "--json", "--payload", "--db", s.db); !strings.Contains(out, `"payload":{"text":"hello","n":1.50e2}}`) {
		t.Errorf("--payload --json: %s", out)
	}
	reply := `{"to":"alice^x","conversation_id":"` + m.ConversationID + `","payload":{"text":"and\nyou\u0007"}}`
	r := parse[record](t, s.ask(k[1], "POST", "/api/v1/messages", reply).want(t, 201))
	s.ask(k[0], "POST", "/api/v1/messages/"+r.MessageID+"/ack", `{"status":"rejected","detail":"rude","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
	out := mustRelay(t, "message", "conversation", m.ConversationID, "--db", s.db)
	for _, w := range []string{"alice^x → bob^x", "bob^x → alice^x", "    \"n\": 1.50e2\n", "    and\n    you\\u0007\n", "(rejected: rude)"} {
		if !strings.Contains(out, w) {
			t.Errorf("the dialogue lacks %q:\n%s", w, out)
		}
	}
	if all := lines[record](t, mustRelay(t, "message", "conversation", m.ConversationID, "--json", "--db", s.db)); len(all) != 2 || all[0].MessageID != m.MessageID {
		t.Errorf("--json: %+v", all)
	}
	runRelay(t, "message", "conversation", "conv_unknown", "--db", s.db).wantCode(t, 1, "no message")
}

func TestStats(t *testing.T) {
	db := tempDB(t)
	s := startServer(t, db)
	k := issue(t, db, "alice^x", "bob^x")
	a, b := s.send(k[0], "bob^x", `{}`), s.send(k[0], "bob^x", `{"n":1}`)
	s.send(k[1], "alice^x", `{}`)
	s.ask(k[1], "POST", "/api/v1/messages/"+a.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
	mustRelay(t, "key", "revoke", k[1].KeyID, "--db", db)
	got := parse[struct {
		Mechas, Keys, Messages map[string]any
		Oldest                 struct {
			ID string `json:"message_id"`
		} `json:"oldest_pending"`
		Busiest []struct {
			Mecha                   string `json:"mecha_id"`
			Sent, Received, Pending int
		}
		Files struct {
			Path  string
			File  int64 `json:"file_bytes"`
			Index int64 `json:"index_bytes"`
		}
	}](t, []byte(mustRelay(t, "stats", "--json", "--db", db)))
	if got.Mechas["registered"] != 2.0 || got.Keys["live"] != 1.0 || got.Keys["revoked"] != 1.0 || got.Messages["total"] != 3.0 ||
		got.Messages["pending"] != 2.0 || got.Messages["acknowledged"] != 1.0 || got.Messages["payload_bytes"] != 11.0 {
		t.Errorf("%+v", got)
	}
	if got.Oldest.ID != b.MessageID || got.Files.Path != db || got.Files.File < 8192 || got.Files.Index == 0 {
		t.Errorf("%+v", got)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(db, link); err == nil { // on Windows it needs a privilege
		type files struct {
			Files struct {
				Log int64 `json:"wal_bytes"`
			}
		}
		want, have := parse[files](t, []byte(mustRelay(t, "stats", "--json", "--db", db))), parse[files](t, []byte(mustRelay(t, "stats", "--json", "--db", link)))
		if want != have || have.Files.Log == 0 {
			t.Errorf("by a symbolic link: %+v, want %+v", have, want)
		}
	}
	if len(got.Busiest) != 2 || got.Busiest[1].Mecha != "bob^x" || got.Busiest[1].Received != 2 || got.Busiest[1].Pending != 1 || got.Busiest[1].Sent != 1 {
		t.Errorf("%+v", got.Busiest)
	}
	if out := mustRelay(t, "message", "stats", "--db", db); !strings.Contains(out, b.MessageID+" has waited for bob^x for ") {
		t.Error(out)
	}
}

// States have colours on a terminal, but not with NO_COLOR.
func TestColours(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "script makes the terminal")
	tool(t, "script")
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x")
	s.send(k[0], "bob^x", `{}`)
	for _, c := range []struct {
		env      []string
		coloured bool
	}{{[]string{"TERM=xterm"}, true}, {[]string{"TERM=xterm", "NO_COLOR=1"}, false}, {[]string{"TERM=dumb"}, false}} {
		inTerminal := exec.Command("script", "-qec", binary+" message list --db "+s.db, os.DevNull)
		r := finish(t, inTerminal, c.env, "").wantCode(t, 0)
		if !strings.Contains(r.out, "alice^x") || strings.Contains(r.out, "\x1b[") != c.coloured {
			t.Errorf("%v: %q", c.env, r.out)
		}
	}
}

// A database on a medium that cannot be written, such as a snapshot of a disk,
// can be looked into; with a log next to it, the error says what to do.
func TestInspectionWhereNothingCanBeWritten(t *testing.T) {
	notOnWindows(t, "permissions are others")
	t.Parallel()
	s := startServer(t, tempDB(t))
	keys := issue(t, s.db, "alice^x", "bob^x")
	sent := s.send(keys[0], "bob^x", `{}`)
	s.end()
	dir := filepath.Dir(s.db)
	read := func(args ...string) result {
		c := exec.Command(binary, append(args, "--db", s.db)...)
		if os.Geteuid() == 0 { // root may write everywhere, but for this
			c = exec.Command(tool(t, "setpriv"), append([]string{"--bounding-set", "-dac_override", binary}, c.Args[1:]...)...)
		}
		return finish(t, c, nil, "")
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"message", "list"}, {"message", "show", sent.MessageID}, {"message", "trace", sent.MessageID}, {"stats", "--json"}} {
		if r := read(args...).wantCode(t, 0); !strings.Contains(r.out, sent.MessageID) {
			t.Errorf("%v: %s", args, r.out)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s = startProcess(t, s.db)
	s.send(keys[0], "bob^x", `{}`)
	s.kill()
	if err := os.Remove(s.db + "-shm"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	read("message", "list").wantCode(t, 1, s.db+"-wal", "copy both")

	// A log that is empty says nothing, and does not refuse.
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	startServer(t, s.db).end()
	if err := os.WriteFile(s.db+"-wal", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	read("message", "list").wantCode(t, 0)
	if docs.Has("check") {
		read("check").wantCode(t, 0)
	}
}
