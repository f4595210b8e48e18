package cmd_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// image is what the last stage of a Dockerfile says.
type image struct {
	env                    []string
	user                   uint32
	workdir, volume        string
	entrypoint, cmd, check []string
	copies                 [][]string // the words of each COPY
}

func readImage(t *testing.T, file string) (i image) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, stage, found := strings.Cut(string(text), "\nFROM scratch\n")
	if !found {
		t.Fatalf("%s has no stage from scratch", file)
	}
	list := func(text string) (words []string) {
		if err := json.Unmarshal([]byte(text), &words); err != nil {
			t.Errorf("%s is not in the form of a list, so a shell would run it: %v", text, err)
		}
		return words
	}
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "ENV":
			i.env = append(i.env, strings.Fields(rest)...)
		case "USER":
			uid, _, _ := strings.Cut(rest, ":")
			n, err := strconv.ParseUint(uid, 10, 32)
			if err != nil {
				t.Errorf("USER %s: there is no /etc/passwd to find a name in", rest)
			}
			i.user = uint32(n)
		case "WORKDIR":
			i.workdir = rest
		case "VOLUME":
			i.volume = rest
		case "COPY":
			i.copies = append(i.copies, strings.Fields(rest))
		case "ENTRYPOINT":
			i.entrypoint = list(rest)
		case "CMD":
			i.cmd = list(rest)
		case "HEALTHCHECK":
			_, check, _ := strings.Cut(rest, "CMD ")
			i.check = list(check)
		}
	}
	return i
}

// The image runs with nothing but the program in it: no libc, no shell, no user
// database, no /proc, no /tmp. Its root is put together by hand.
func TestTheImageRunsFromScratchAsAnotherUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can change the root of a process")
	}
	program := mustMakePackages(t).program(older)
	i := readImage(t, "../contrib/Dockerfile")
	if i.user == 0 || i.volume != "/data" || i.workdir != i.volume || strings.Join(i.check, " ") != "/relay readyz" || len(i.copies) != 3 {
		t.Errorf("%+v", i)
	}
	root := t.TempDir()
	data := filepath.Join(root, i.volume)
	for dir, owner := range map[string]uint32{root: 0, data: i.user} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, int(owner), int(owner)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program) // copied: the folders may be on several file systems
	if err == nil {
		syscall.ForkLock.RLock() // or a process of another test has it open to write for a moment, and it cannot be started
		err = os.WriteFile(filepath.Join(root, "relay"), text, 0o755)
		syscall.ForkLock.RUnlock()
	}
	if err != nil {
		t.Fatal(err)
	}
	inside := func(words []string, more ...string) (*exec.Cmd, []string) {
		c := exec.Command(words[0], words[1:]...)
		c.Path, c.Err, c.Dir = words[0], nil, i.workdir
		c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: i.user, Gid: i.user}}
		return c, append(i.env, more...)
	}
	c, env := inside(append(i.entrypoint, i.cmd...), "RELAY_ADDR=0.0.0.0:0")
	s := launch(t, c, env)
	_, port, err := net.SplitHostPort(s.await(s.stderr, `url"?[=:]"?http://([^\s"]+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://127.0.0.1:" + port
	c, env = inside(append(i.entrypoint, "key", "create", "--json", "a^image"))
	made := finish(t, c, env, "").wantCode(t, 0)
	s.send(agents(t, made.out)[0], "a^image", `{}`)
	c, env = inside(i.check, "RELAY_URL="+s.url)
	finish(t, c, env, "").wantCode(t, 0)
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d: %s", code, s.stderr)
	}
	if info, err := os.Stat(filepath.Join(data, "relay.db")); err != nil || info.Mode().Perm() != 0o600 || info.Sys().(*syscall.Stat_t).Uid != i.user {
		t.Errorf("%v %v", info, err)
	}
}
