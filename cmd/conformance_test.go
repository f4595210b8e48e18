package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// conformanceReport is what relay conformance --json prints.
type conformanceReport struct {
	Passed  bool
	Failed  int
	Results []struct {
		Name, Must string
		Passed     bool
		Beyond     bool
		Why        []string
		Skipped    string
	}
}

// The program's own commands do what the kit asks of a client; a program that does
// nothing fails, with a reason and a sentence for its author.
func TestConformanceJudgesAProgram(t *testing.T) {
	t.Parallel()
	notOnWindows(t, "there is no sh")
	script := filepath.Join(t.TempDir(), "agent.sh")
	text := "case $1 in\nworker) exec '" + binary + "' listen --reply --exec 'sed s/n/echo/' ;;\n" +
		"asker) for i in $(seq $2); do '" + binary + `' ask "$RELAY_TO" "{\"n\":$i}" >/dev/null || exit 1; echo $i; done ;;` + "\nesac\n"
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := mustRelay(t, "conformance", "--only", "signatures,lost-ack,refused", "--timeout", "3m", "--", tool(t, "sh"), script)
	if strings.Count(out, " yes") != 3 || !strings.Contains(out, "3 cases, none failed") {
		t.Errorf("%s", out)
	}
	r := runRelay(t, "conformance", "--json", "--only", "refused", "--", "true").wantCode(t, 1)
	report := parse[conformanceReport](t, []byte(r.out))
	if report.Passed || report.Failed != 1 || len(report.Results) != 1 || len(report.Results[0].Why) == 0 || report.Results[0].Must == "" {
		t.Errorf("%s", r.out)
	}
	r = runRelay(t, "conformance", "--only", "refused", "--", "true").wantCode(t, 1)
	if !strings.Contains(r.out, "1 of 1 case failed. What to fix:\n  refused: "+report.Results[0].Must) {
		t.Errorf("%s", r.out)
	}
	runRelay(t, "conformance", "--only", "refused", "--", filepath.Join(t.TempDir(), "none")).wantCode(t, 1, "none")
}

func TestConformanceJudgesAServer(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^judged", "b^judged", "--signing-secret")
	s := startServer(t, db)
	env := []string{"RELAY_KEY=" + keys[0].Key, "RELAY_SIGNING_SECRET=" + *keys[0].Secret,
		"RELAY_SECOND_KEY=" + keys[1].Key, "RELAY_SECOND_SIGNING_SECRET=" + *keys[1].Secret}
	args := []string{"conformance", s.url, "--only", "send,signature,signature-wrong,push,whoami,socket-send"}
	r := run(t, args, env, "").wantCode(t, 0)
	if strings.Count(r.out, " yes") != 6 || !strings.Contains(r.out, "push  §6 Events") || !strings.Contains(r.out, "none failed") {
		t.Errorf("%s", r.out)
	}
	report := parse[conformanceReport](t, []byte(run(t, append(args, "--json"), env, "").wantCode(t, 0).out))
	if !report.Passed || len(report.Results) != 6 || !report.Results[4].Beyond {
		t.Errorf("%+v", report)
	}
	swapped := append(env, "RELAY_SECOND_KEY="+keys[0].Key, "RELAY_SECOND_SIGNING_SECRET="+*keys[0].Secret)
	run(t, args, swapped, "").wantCode(t, 1, "of the same Mecha")
	run(t, []string{"conformance", "http://127.0.0.1:1", "--first", "a^x", "--second", "b^x"}, env, "").wantCode(t, 1, "cannot be asked")
}

func TestConformanceIsUsedRightly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		says string
	}{
		{"", "either the URL of a server, or -- and a program"},
		{"http://127.0.0.1:1 -- true", "either the URL of a server, or -- and a program"},
		{"python3 agent.py", "a program comes after --, as in relay conformance -- python3 agent.py"},
		{"http://127.0.0.1:1", "no key"},
		{"--only restrat -- true", `unknown name "restrat"; did you mean "restart"?`},
		{"--role boss -- true", "--role must be asker or worker"},
		{"--timeout 1ms -- true", "--timeout must be at least 1s"},
	} {
		runRefused(t, append([]string{"conformance"}, strings.Fields(c.args)...), nil).wantCode(t, 2, c.says)
	}
	out := mustRelay(t, "conformance", "--list")
	for _, text := range []string{"program  lost-answer (the relay drops the connection", "server  send (§4 Send Message)", "Idempotency-Key"} {
		if !strings.Contains(out, text) {
			t.Errorf("the list lacks %q:\n%s", text, out)
		}
	}
}
