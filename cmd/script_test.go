package cmd_test

import (
	"encoding/json"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// The stories in testdata/script are a manual that is run. Each file tells one
// story, in commands that a person would type. Beside the commands of testscript
// they have these:
//
//	serve [flags]          starts relay serve on relay.db and sets RELAY_URL
//	stop [kill]            ends it, by SIGTERM or by SIGKILL
//	issue NAME ADDRESS …   issues a key; $NAME has it, $NAME_ID its id
//	as NAME                sets RELAY_KEY to that key
//	keep NAME              sets $NAME to what the last command printed
//	until REGEXP COMMAND…  runs a command until its output matches;
//	                       ! until: until it fails with a matching output
func TestStories(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the stories speak to a POSIX shell")
	}
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			e.Values[story{}] = &story{t: e.T()}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": (*story)(nil).serve, "stop": (*story)(nil).stop, "issue": (*story)(nil).issue,
			"as": (*story)(nil).as, "keep": (*story)(nil).keep, "until": (*story)(nil).until,
		},
	})
}

// story has the server that a script runs.
type story struct {
	t      testscript.T
	server *exec.Cmd
	log    *output
}

func of(ts *testscript.TestScript) *story { return ts.Value(story{}).(*story) }

func (*story) serve(ts *testscript.TestScript, neg bool, args []string) {
	s := of(ts)
	addr := "127.0.0.1:0"
	if u, err := url.Parse(ts.Getenv("RELAY_URL")); err == nil && u.Host != "" {
		addr = u.Host // the same address as before, for the clients
	}
	s.log = newOutput()
	s.server = exec.Command(binary, append([]string{"serve", "--addr", addr}, args...)...)
	s.server.Dir, s.server.Env, s.server.Stdout, s.server.Stderr = ts.Getenv("WORK"), environ(), s.log, s.log
	ts.Check(s.server.Start())
	ts.Defer(func() { s.end(os.Kill) })
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

func (s *story) end(sig os.Signal) {
	if s.server == nil {
		return
	}
	s.server.Process.Signal(sig)
	s.server.Wait()
	s.server = nil
}

func (*story) stop(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) > 0 && args[0] == "kill" {
		of(ts).end(os.Kill)
		return
	}
	of(ts).end(os.Interrupt)
}

func (*story) issue(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: issue NAME ADDRESS [flags]")
	}
	c := exec.Command(binary, append([]string{"key", "create", "--json"}, args[1:]...)...)
	c.Dir, c.Env = ts.Getenv("WORK"), environ()
	out, err := c.Output()
	ts.Check(err)
	var a agent
	ts.Check(json.Unmarshal(out, &a))
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
