package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const unitFile = "/usr/lib/systemd/system/relay.service"

// unit is a service of systemd that is installed below a folder, root.
type unit struct {
	root   string
	values map[string][]string // of each setting, in order
}

func readUnit(file, root string) (unit, error) {
	u := unit{root, map[string][]string{}}
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), "="); found && !strings.HasPrefix(name, "#") {
			u.values[name] = append(u.values[name], value)
		}
	}
	return u, err
}

// command is the server as the unit starts it, with all its folders below root. More
// settings are those that an operator adds.
func (u unit) command(more ...string) (*exec.Cmd, error) {
	words := strings.Fields(u.values["ExecStart"][0])
	c := exec.Command(filepath.Join(u.root, "usr/bin", words[0]), words[1:]...)
	c.Dir = filepath.Join(u.root, u.values["WorkingDirectory"][0])
	c.Env = append(environ(), strings.Fields(strings.ReplaceAll(u.values["Environment"][0], "=/", "="+u.root+"/"))...)
	settings, err := os.ReadFile(filepath.Join(u.root, strings.TrimPrefix(u.values["EnvironmentFile"][0], "-")))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(settings)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			c.Env = append(c.Env, line)
		}
	}
	c.Env = append(c.Env, more...)
	return c, os.MkdirAll(filepath.Join(u.root, "var/lib", u.values["StateDirectory"][0]), 0o700)
}

// The unit does what the page deploying says of it.
func TestTheUnitStartsTheRelayAgain(t *testing.T) {
	u, err := readUnit("../contrib/relay.service", "")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Restart": "always", "RestartPreventExitStatus": "2", "User": "relay", "StateDirectory": "relay", "StateDirectoryMode": "0700", "UMask": "0077", "LimitNOFILE": "131072",
		"ProcSubset": "", // /proc/sys has the boot id, and the length of the queue of new connections
	} {
		if got := strings.Join(u.values[name], " "); got != want {
			t.Errorf("%s=%s, not %q", name, got, want)
		}
	}
}
