package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// completed asks the program what a shell would: the last word is the one begun.
func completed(t testing.TB, dir string, words ...string) (values []string) {
	t.Helper()
	c := exec.Command(binary, append([]string{"__complete"}, words...)...)
	c.Dir = dir
	for line := range strings.Lines(finish(t, c, nil, "").wantCode(t, 0).out) {
		if value, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(value, ":") {
			values = append(values, value)
		}
	}
	return values
}

// Addresses, key ids, message and conversation ids come from the database.
func TestCompletion(t *testing.T) {
	s := startServer(t, tempDB(t))
	dir := filepath.Dir(s.db) // where the database has its default name
	k := issue(t, s.db, "alice^x", "bob^x")
	m := s.send(k[0], "bob^x", `{}`)
	for words, want := range map[string][]string{
		"key create ":                    {"alice^x", "bob^x"},
		"key create alice^x ":            {"alice^x", "bob^x"},
		"mecha show al":                  {"alice^x"},
		"mecha profile set alice^x ":     nil, // a file: the shell's business
		"key revoke key_":                {k[1].KeyID, k[0].KeyID},
		"key revoke " + k[0].KeyID + " ": nil,
		"message show msg_":              {m.MessageID},
		"message trace ":                 {m.MessageID},
		"message conversation ":          {m.ConversationID},
		"message list --mecha b":         {"bob^x"},
		"message list --state ":          {"pending", "queued", "delivered", "acknowledged", "expired"},
		"message list --before ":         {m.MessageID},
		"message list --conversation ":   {m.ConversationID},
	} {
		list := strings.Split(words, " ")
		if got := completed(t, dir, list...); !slices.Equal(got, want) {
			t.Errorf("relay %s⇥: %q, want %q", words, got, want)
		}
		if got := completed(t, t.TempDir(), list...); len(got) > 0 && !strings.Contains(words, "--state") {
			t.Errorf("relay %s⇥ without a database: %q", words, got)
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

// Every shell gets a script, and bash takes it.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := mustRelay(t, "completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("%s: %.100s", shell, out)
		}
	}
	bash := exec.Command(tool(t, "bash"), "-n")
	finish(t, bash, nil, mustRelay(t, "completion", "bash")).wantCode(t, 0)
}

// There is a manual page for every command, and each shows an example.
func TestMan(t *testing.T) {
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
		if text := string(page); !strings.Contains(text, ".SH EXAMPLE") || strings.Contains(text, "Auto generated") {
			t.Errorf("%v: no example, or a generator's mark:\n%s", path, text)
		}
	})
	runRelay(t, "man", filepath.Join(dir, "relay.1")).wantCode(t, 1)
}
