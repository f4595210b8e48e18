package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// systemd rates what a service may do from 0.0, nothing, to 10.0. It also tells of
// settings that it does not know.
func TestTheUnitMayDoLittle(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relay.service")
	text, err := os.ReadFile("../contrib/relay.service")
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	rated := finish(t, exec.Command(tool(t, "systemd-analyze"), "security", "--offline=true", "--no-pager", file), nil, "")
	m := regexp.MustCompile(`Overall exposure level for relay\.service: ([0-9.]+)`).FindStringSubmatch(rated.out)
	if m == nil {
		t.Skipf("this systemd-analyze does not rate files: %s", rated.err)
	}
	exposure, err := strconv.ParseFloat(m[1], 64)
	if err != nil || exposure > 2 {
		t.Errorf("%v, %v\n%s", exposure, err, rated.out)
	}
	verified := finish(t, exec.Command("systemd-analyze", "verify", "--man=no", file), nil, "")
	if strings.Contains(verified.err, "relay.service:") && !strings.Contains(verified.err, "Command relay is not executable") {
		t.Error(verified.err)
	}
}

// A server that works, and that answers a command by its socket, makes no system call that the unit
// forbids, opens no socket of a family that the unit does not name, and maps no memory both writable and
// executable.
func TestTheUnitForbidsNothingThatTheRelayNeeds(t *testing.T) {
	t.Parallel()
	tool(t, "strace", "systemd-analyze")
	u, err := readUnit("../contrib/relay.service", "")
	if err != nil {
		t.Fatal(err)
	}
	allowed := allowedCalls(t, u.values["SystemCallFilter"])
	families := strings.Fields(strings.Join(u.values["RestrictAddressFamilies"], " "))
	program := mustMakePackages(t).program(older)
	trace, db := filepath.Join(t.TempDir(), "trace"), tempDB(t)
	s := launch(t, exec.Command("strace", "-D", "-f", "-q", "-e", "signal=none", "-o", trace, program, "serve", "--addr", "127.0.0.1:0", "--db", db), nil)
	s.url = s.await(s.stderr, `url"?[=:]"?(http://[^\s"]+)`)[1]
	keys := issue(t, db, "a^unit", "b^unit")
	conn := s.dial(keys[1], "")
	s.send(keys[0], "b^unit", `{"n":1}`)
	if _, _, err := conn.Read(t.Context()); err != nil {
		t.Error(err)
	}
	s.ask(keys[0], "POST", "/api/v1/search", `{"query":"unit"}`, "Prefer", "wait=5").want(t, 200)
	if code := s.terminate(); code != 0 {
		t.Fatalf("exit %d: %s", code, s.stderr)
	}
	var text []byte
	eventually(t, patience, "the trace is whole", func() bool {
		text, err = os.ReadFile(trace)
		return err != nil || regexp.MustCompile(fmt.Sprintf(`(?m)^%d +\+\+\+ exited`, s.cmd.Process.Pid)).Match(text)
	})
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		allowed["fchown"] = true // by SQLite, which gives what root makes to the owner of the database
	}
	called := 0
	for _, m := range regexp.MustCompile(`(?m)^\d+ +(\w+)\((.*)$`).FindAllStringSubmatch(string(text), -1) {
		called++
		name, arguments := m[1], m[2]
		switch {
		case !allowed[name]:
			t.Errorf("forbidden: %s(%s", name, arguments)
		case name == "socket" && !slices.Contains(families, arguments[:strings.IndexByte(arguments, ',')]):
			t.Errorf("of another family: %s(%s", name, arguments)
		case (name == "mmap" || name == "mprotect") && strings.Contains(arguments, "PROT_WRITE|PROT_EXEC"):
			t.Errorf("writable and executable: %s(%s", name, arguments)
		}
	}
	if called < 500 {
		t.Errorf("only %d calls were seen", called)
	}
}

// allowedCalls resolves a filter of system calls as systemd does: groups stand for
// their calls, and a line that begins with ~ takes its calls away.
func allowedCalls(t *testing.T, filter []string) map[string]bool {
	t.Helper()
	groups, group := map[string][]string{}, ""
	r := finish(t, exec.Command("systemd-analyze", "syscall-filter", "--no-pager"), nil, "").wantCode(t, 0)
	for line := range strings.Lines(regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(r.out, "")) {
		name := strings.TrimSpace(line)
		switch {
		case name == "" || strings.HasPrefix(name, "#"):
		case strings.HasPrefix(line, "@"):
			group = name
		default:
			groups[group] = append(groups[group], name)
		}
	}
	allowed := map[string]bool{}
	var set func(names []string, to bool)
	set = func(names []string, to bool) {
		for _, name := range names {
			if strings.HasPrefix(name, "@") {
				set(groups[name], to)
			} else {
				allowed[name] = to
			}
		}
	}
	for _, line := range filter {
		names, takes := strings.CutPrefix(line, "~")
		set(strings.Fields(names), !takes)
	}
	if !allowed["read"] || allowed["mount"] {
		t.Fatalf("the filter was misread: %v", allowed)
	}
	return allowed
}
