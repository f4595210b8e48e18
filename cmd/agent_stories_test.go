package cmd_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"relay/db/scratch"
	"relay/http/docs"
)

// The stories in testdata/script are a manual that is run. Each file tells one
// story, in commands that a person would type. Next to the commands of testscript
// they have these:
//
//	serve [flags]          starts relay serve on relay.db and sets RELAY_URL
//	end [kill]             ends it, by SIGINT or by SIGKILL. A line with testscript's
//	                       own stop would end the story, as one that passed
//	issue NAME ADDRESS …   issues a key; $NAME has it, $NAME_ID its id
//	as NAME                sets RELAY_KEY to that key
//	keep NAME              sets $NAME to what the last command printed
//	until REGEXP COMMAND…  runs a command until its output matches;
//	                       ! until: until it fails with a matching output
//	packages               makes the .deb of two versions: $OLDER and $NEWER.
//	                       The condition [packages] reports whether that can be done
//	unit ROOT              starts the service of systemd that is installed below
//	                       ROOT, as systemd would, and sets RELAY_URL
func TestStories(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stories speak to a POSIX shell")
	}
	if !docs.Has("inspect") {
		t.Skip("the stories look into the database")
	}
	t.Parallel()
	scripts, err := filepath.Glob(filepath.Join("testdata", "script", "*.txtar"))
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		if text, err := os.ReadFile(script); err != nil || regexp.MustCompile(`(?m)^(\[.*\] *)?stop\b`).Match(text) {
			t.Errorf("%s says stop, and would end there: %v", script, err)
		}
	}
	if !scratch.Long(t) { // the others are longer
		scripts = slices.DeleteFunc(scripts, func(s string) bool { return !strings.Contains(s, "message") && !strings.Contains(s, "key") })
	}
	testscript.Run(t, testscript.Params{
		Files: scripts,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Values[story{}] = &story{t: e.T(), addr: scratch.Addr(t)}
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "packages" {
				return false, fmt.Errorf("there is no condition %s", name)
			}
			return whyNoPackages(t) == "", nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": (*story)(nil).serve, "end": (*story)(nil).end, "issue": (*story)(nil).issue,
			"as": (*story)(nil).as, "keep": (*story)(nil).keep, "until": (*story)(nil).until,
			"packages": (*story)(nil).packages, "unit": (*story)(nil).unit,
		},
	})
}

// story has the server that a script runs.
type story struct {
	t      testscript.T
	addr   string // of the server, even after a restart
	server *exec.Cmd
	log    *output
}

func of(ts *testscript.TestScript) *story { return ts.Value(story{}).(*story) }

func (*story) serve(ts *testscript.TestScript, neg bool, args []string) {
	server := exec.Command(binary, append([]string{"serve"}, args...)...)
	server.Dir, server.Env = ts.Getenv("WORK"), environ("RELAY_ADDR="+of(ts).addr)
	of(ts).start(ts, server)
}

// start starts a server and waits for its address.
func (s *story) start(ts *testscript.TestScript, server *exec.Cmd) {
	s.log = newOutput()
	s.server, server.Stdout, server.Stderr = server, s.log, s.log
	ts.Check(s.server.Start())
	ts.Defer(func() { s.signal(os.Kill) })
	at, late := regexp.MustCompile(`url=(http://\S+)`), time.After(patience)
	for {
		text, more := s.log.read()
		if m := at.FindStringSubmatch(text); m != nil {
			ts.Setenv("RELAY_URL", m[1])
			return
		}
		select {
		case <-more:
		case <-late:
			ts.Fatalf("the server does not start:\n%s", text)
		}
	}
}

func (*story) packages(ts *testscript.TestScript, _ bool, _ []string) {
	p, err := makePackages()
	ts.Check(err)
	ts.Setenv("OLDER", p.file(ts, "relay_"+older+"_*.deb"))
	ts.Setenv("NEWER", p.file(ts, "relay_"+newer+"_*.deb"))
}

func (*story) unit(ts *testscript.TestScript, _ bool, args []string) {
	root := ts.MkAbs(args[0])
	u, err := readUnit(root+unitFile, root)
	ts.Check(err)
	server, err := u.command("RELAY_ADDR=" + of(ts).addr)
	ts.Check(err)
	of(ts).start(ts, server)
}

func (s *story) signal(sig os.Signal) {
	if s.server == nil {
		return
	}
	s.server.Process.Signal(sig)
	s.server.Wait()
	s.server = nil
}

func (*story) end(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) > 0 && args[0] == "kill" {
		of(ts).signal(os.Kill)
		return
	}
	of(ts).signal(os.Interrupt)
}

func (*story) issue(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: issue NAME ADDRESS [flags]")
	}
	ts.Check(ts.Exec("relay", append([]string{"key", "create", "--json"}, args[1:]...)...))
	var a agent
	ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &a))
	ts.Setenv(args[0], a.Key)
	ts.Setenv(args[0]+"_ID", a.KeyID)
}

func (*story) as(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("RELAY_KEY", ts.Getenv(args[0]))
}

func (*story) keep(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

func (*story) until(ts *testscript.TestScript, neg bool, args []string) {
	re := regexp.MustCompile(args[0])
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if (err != nil) == neg && re.MatchString(ts.ReadFile("stdout")+ts.ReadFile("stderr")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no %s in the output of %s: %v", args[0], strings.Join(args[1:], " "), err)
		}
	}
}
