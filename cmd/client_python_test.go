package cmd_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestClientsOfOtherLanguagesArePrinted(t *testing.T) {
	t.Parallel()
	version := parse[map[string]string](t, []byte(mustRelay(t, "version", "--json")))["version"]
	text, example := mustRelay(t, "client", "python"), mustRelay(t, "client", "python", "--example")
	if !strings.Contains(text, "\n__version__ = \""+version+"\"\n") || strings.Contains(text, "unstamped") || !strings.Contains(example, "import Relay") {
		t.Errorf("version %s:\n%.3000s\n%s", version, text, example)
	}
	printed := parse[map[string]string](t, []byte(mustRelay(t, "client", "python", "--json")))
	if printed["file"] != "relay_client.py" || printed["version"] != version || printed["text"] != text {
		t.Errorf("%.300v", printed)
	}
	if n := strings.Count(example, "\n"); n > 40 {
		t.Errorf("the example has %d lines", n)
	}
	runRelay(t, "client", "pithon").wantCode(t, 2, `did you mean "client python"?`)
	runRelay(t, "client", "python", "3").wantCode(t, 2, "no arguments")
}

// python is a folder with the printed client and its example, and how to run programs in it.
type python struct {
	t   *testing.T
	dir string
}

func newPython(t *testing.T) python {
	t.Helper()
	tool(t, "python3")
	p := python{t, t.TempDir()}
	for _, f := range []struct{ name, text string }{
		{"relay_client.py", mustRelay(t, "client", "python")}, {"example.py", mustRelay(t, "client", "python", "--example")},
	} {
		if err := os.WriteFile(filepath.Join(p.dir, f.name), []byte(f.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// command is a program of the folder or of testdata. Warnings are errors.
func (p python) command(program string, args ...string) *exec.Cmd {
	p.t.Helper()
	file := filepath.Join(p.dir, program)
	if _, err := os.Stat(file); err != nil {
		if file, err = filepath.Abs(filepath.Join("testdata/client", program)); err != nil {
			p.t.Fatal(err)
		}
	}
	return exec.Command("python3", append([]string{"-B", "-X", "dev", "-W", "error", file}, args...)...)
}

func (p python) env(url string, a agent, more ...string) []string {
	return append([]string{"PYTHONPATH=" + p.dir, "RELAY_URL=" + url, "RELAY_KEY=" + a.Key}, more...)
}

var pythonComplains = regexp.MustCompile(`Warning|Exception ignored|never awaited|never retrieved`)

// The file is read by Python 3.9: by its grammar, and by such a Python where there is one.
func TestThePythonClientIsForPython39(t *testing.T) {
	t.Parallel()
	p := newPython(t)
	const program = `
import ast, sys
for file in sys.argv[1:]:
    with open(file, encoding="utf-8") as f:
        tree = ast.parse(f.read(), file, feature_version=(3, 9))
    known = getattr(sys, "stdlib_module_names", None)
    for node in ast.walk(tree):
        for name in [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module] if isinstance(node, ast.ImportFrom) else []:
            assert known is None or name.split(".")[0] in known or name == "relay_client", name
import relay_client, inspect
for kind in (relay_client.Relay, relay_client.Message, relay_client.Listener):
    for name, f in inspect.getmembers(kind, inspect.isfunction):
        assert name[0] == "_" or f.__doc__, name
        twin = getattr(getattr(relay_client, "Async" + kind.__name__), {"close": "aclose"}.get(name, name) if kind is relay_client.Listener else name, None)
        if name[0] != "_":
            assert list(inspect.signature(f).parameters) == list(inspect.signature(twin).parameters), name
`
	for _, version := range []string{"python3", "python3.9", "python3.10", "python3.12", "python3.13"} {
		if out, err := exec.Command(version, "--version").CombinedOutput(); err != nil {
			t.Logf("no %s here: %s", version, out)
			continue
		}
		c := exec.Command(version, "-B", "-W", "error", "-c", program, "relay_client.py", "example.py")
		c.Dir = p.dir
		if r := finish(t, c, nil, "").wantCode(t, 0); r.err != "" {
			t.Errorf("%s: %s", version, r.err)
		}
	}
}

func TestThePythonClient(t *testing.T) {
	notShort(t)
	t.Parallel()
	p, db := newPython(t), tempDB(t)
	var names []string
	for i := range 64 {
		names = append(names, "m"+string(rune('a'+i/8))+string(rune('a'+i%8))+"^py")
	}
	keys := slices.Concat(issue(t, db, names...), agents(t, mustRelay(t, "key", "create", "--json", "--db", db, "--signing-secret", "secret^py")), issue(t, db, "gone^py"))
	mustRelay(t, "key", "revoke", "--db", db, keys[len(keys)-1].KeyID)
	s := startServer(t, db, "--require-request-signature", "--rate-limit", "0")
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	env := p.env(s.url, keys[0], "KEYS="+string(text), "VECTOR="+signingVector(t))
	r := finish(t, p.command("check_client.py"), env, "").wantCode(t, 0)
	if m := pythonComplains.FindString(r.err); m != "" || !strings.Contains(r.err, "\nOK") {
		t.Errorf("%s in:\n%s", m, r.err)
	}
}

// signingVector is the table of the page "signing", as JSON.
func signingVector(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../http/docs/signing.md")
	if err != nil {
		t.Fatal(err)
	}
	vector := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| ([a-z ]+?) +\\| `(.*)` +\\|$").FindAllStringSubmatch(string(page), -1) {
		vector[m[1]] = m[2]
	}
	text, err := json.Marshal(vector)
	if err != nil || vector["request signature"] == "" {
		t.Fatal(err, vector)
	}
	return string(text)
}
