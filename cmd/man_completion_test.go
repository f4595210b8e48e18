package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay/http/docs"
)

// completed asks the program for completions as a shell does. The last word is the
// one that was begun.
func completed(t testing.TB, dir string, words ...string) []string {
	t.Helper()
	return completions(runIn(t, dir, append([]string{"__complete"}, words...)...).wantCode(t, 0).out)
}

// completedOf is completed where the database is db. Commands that have a flag for it are
// asked in this process.
func completedOf(t testing.TB, db string, words ...string) []string {
	t.Helper()
	if slices.Contains([]string{"ask", "errors", "reply", "send"}, words[0]) {
		return completed(t, filepath.Dir(db), words...)
	}
	begun := len(words) - 1
	if strings.HasPrefix(words[begun-1], "--") { // its value is begun
		begun--
	}
	args := slices.Concat([]string{"__complete"}, words[:begun], []string{"--db", db}, words[begun:])
	return completions(runRelay(t, args...).wantCode(t, 0).out)
}

func completions(out string) (values []string) {
	for line := range strings.Lines(out) {
		if value, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(value, ":") {
			values = append(values, value)
		}
	}
	return values
}

// wantCompleted expects values from the database of the server, and none without one.
func (s *server) wantCompleted(words string, want []string) {
	s.t.Helper()
	list := strings.Split(words, " ")
	if got := completedOf(s.t, s.db, list...); !slices.Equal(got, want) {
		s.t.Errorf("relay %s⇥: %q, want %q", words, got, want)
	}
	if got := completedOf(s.t, tempDB(s.t), list...); len(got) > 0 && !strings.Contains(words, "--state") && !strings.HasPrefix(words, "errors") {
		s.t.Errorf("relay %s⇥ without a database: %q", words, got)
	}
}

// Addresses, key ids, message and conversation ids come from the database.
func TestCompletion(t *testing.T) {
	notShort(t)
	s := startServer(t, tempDB(t))
	dir := filepath.Dir(s.db) // where the database has its default name
	k := issue(t, s.db, "alice^x", "bob^x")
	m := s.send(k[0], "bob^x", `{}`)
	for words, want := range map[string][]string{
		"key create ":                    {"alice^x", "bob^x"},
		"key create alice^x ":            {"alice^x", "bob^x"},
		"mecha show al":                  {"alice^x"},
		"mecha profile set alice^x ":     nil, // a file, which the shell completes
		"key revoke key_":                {k[1].KeyID, k[0].KeyID},
		"key revoke " + k[0].KeyID + " ": nil,
		"message show msg_":              {m.MessageID},
		"message trace ":                 {m.MessageID},
		"why msg_":                       {m.MessageID},
		"why al":                         {"alice^x"},
		"message conversation ":          {m.ConversationID},
		"message list --mecha b":         {"bob^x"},
		"message list --state ":          {"pending", "queued", "delivered", "acknowledged", "expired", "dead", "overdue"},
		"message list --before ":         {m.MessageID},
		"message list --conversation ":   {m.ConversationID},
		"errors mailb":                   {"mailbox_full"},
	} {
		if len(present(words)) > 0 {
			s.wantCompleted(words, want)
		}
	}
	for where, want := range map[string][]string{dir: {"alice^x", "bob^x"}, t.TempDir(): nil} {
		if got := completed(t, where, "mecha", "show", ""); !slices.Equal(got, want) {
			t.Errorf("in %s: %q, want %q", where, got, want)
		}
	}
	if got := completed(t, dir, "mecha", "show", "--db", s.db, "b"); !slices.Equal(got, []string{"bob^x"}) {
		t.Errorf("with --db: %q", got)
	}
	mustRelay(t, "key", "revoke", k[0].KeyID, "--db", s.db)
	if got := completed(t, dir, "key", "rotate", ""); !slices.Equal(got, []string{k[1].KeyID}) {
		t.Errorf("a revoked key is offered: %q", got)
	}
}

func TestCompletionOfAClient(t *testing.T) {
	if !docs.Has("agent") {
		t.Skip("there are no commands of a client")
	}
	notShort(t)
	s := startServer(t, tempDB(t))
	k := issue(t, s.db, "alice^x", "bob^x")
	m := s.send(k[0], "bob^x", `{}`)
	for words, want := range map[string][]string{
		"send bob^x {} --in-reply-to ": {m.MessageID},
		"reply ":                       {m.MessageID},
		"ask b":                        {"bob^x"},
	} {
		s.wantCompleted(words, want)
	}
}

// A shell shows the text of a flag as it is.
func TestFlagsAreDescribedInPlainText(t *testing.T) {
	if out := mustRelay(t, "__complete", "serve", "--ret"); !strings.Contains(out, "--retention\tage at which messages are removed, as in 30d") {
		t.Errorf("%q", out)
	}
}

// Every shell gets a script, and bash takes it.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := mustRelay(t, "completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("%s: %.100s", shell, out)
		}
	}
	wantWrongUsage(t, "completion nonsense", "relay completion")
	wantWrongUsage(t, "completion bash now", "relay completion bash")
	bash := exec.Command(tool(t, "bash"), "-n")
	finish(t, bash, nil, mustRelay(t, "completion", "bash")).wantCode(t, 0)
}

// Every command has a manual page, with the sections that readers look for and
// the placeholders that --help has.
func TestMan(t *testing.T) {
	notShort(t)
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "man", "man1")
	if out := mustRelay(t, "man", dir); !strings.Contains(out, dir) {
		t.Errorf("%q", out)
	}
	eachCommand(t, nil, func(path []string, _ string) {
		if slices.Contains(path, "help") {
			return
		}
		page, err := os.ReadFile(filepath.Join(dir, strings.Join(append([]string{"relay"}, path...), "-")+".1"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "ENVIRONMENT", "EXIT STATUS", "EXAMPLES", "SEE ALSO"} {
			if _, text, ok := strings.Cut(string(page), "\n.SH "+section+"\n"); !ok || text == "" || strings.HasPrefix(text, ".SH") {
				t.Errorf("%v: no section %s, or an empty one:\n%s", path, section, page)
			}
		}
	})
	send, err := os.ReadFile(filepath.Join(dir, "relay-send.1"))
	if text := string(send); docs.Has("agent") && (err != nil || !strings.Contains(text, `\fB\-\-ttl\fP \fIduration\fP`) || !strings.Contains(text, "RELAY_TTL")) {
		t.Errorf("%v\n%s", err, text)
	}
	serve, err := os.ReadFile(filepath.Join(dir, "relay-serve.1"))
	if text := string(serve); err != nil || !strings.Contains(text, "\n75\n") || strings.Contains(text, `\-\-store`) {
		t.Errorf("%v\n%s", err, text)
	}
	if _, err := exec.LookPath("man"); err == nil { // man complains of macros that it does not know
		c := exec.Command("man", "--warnings", "-l", filepath.Join(dir, "relay-restore.1"))
		if r := finish(t, c, []string{"LC_ALL=C.UTF-8"}, ""); r.code == 0 && (r.err != "" || !strings.Contains(r.out, "--force")) {
			t.Errorf("man: %s\n%s", r.err, r.out)
		}
	}
	runRelay(t, "man", filepath.Join(dir, "relay.1")).wantCode(t, 1)
}
