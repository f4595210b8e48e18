package cmd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"relay/http/docs"
)

// pasted returns the two commands that serve --dev prints, as a person copies them.
func pasted(s *server) (send, read string) {
	s.t.Helper()
	s.await(s.stdout, `Ctrl-C`)
	for block := range strings.SplitSeq(s.stdout.String(), "\n\n") {
		switch {
		case strings.HasPrefix(block, "export RELAY_URL="):
			send = block
		case strings.HasPrefix(block, "RELAY_KEY="):
			read = block
		}
	}
	if read == "" && !docs.Has("agent") {
		s.t.Skip("there is no relay curl to read with")
	}
	if send == "" || read == "" {
		s.t.Fatalf("no commands in:\n%s", s.stdout)
	}
	return send, read
}

func TestWhatDevPrintsWorksWhenPasted(t *testing.T) {
	t.Parallel()
	for _, env := range [][]string{nil, {"REQUIRE_MESSAGE_SIGNATURE=1"}, {"RELAY_REQUIRE_REQUEST_SIGNATURE=1"}} {
		t.Run(strings.Join(append(env, "bash"), " "), func(t *testing.T) {
			tool(t, "bash", "curl", "openssl")
			s := startServerIn(t, env, tempDB(t), "--dev")
			send, read := pasted(s)
			r := finish(t, exec.Command("bash", "-c", send+"\n"+read), nil, "").wantCode(t, 0)
			sent, seen, _ := strings.Cut(r.out, "}}")
			m := parse[record](t, []byte(sent+"}}"))
			page := parse[struct{ Messages []record }](t, []byte(seen))
			if len(page.Messages) != 1 {
				t.Fatalf("bob sees %s", seen)
			}
			got := page.Messages[0]
			if got.MessageID != m.MessageID || !strings.Contains(string(got.Payload), "hello, bob") || !got.Signed {
				t.Errorf("alice sent %+v, bob sees %+v", m, got)
			}
		})
	}
}

func TestWhatDevPrintsWorksOverTLS(t *testing.T) {
	tool(t, "bash", "curl", "openssl")
	ca, dir := newAuthority(t), filepath.Join(t.TempDir(), "bob's folder")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	send, read := pasted(ca.startTLSProcess(t, dir, tempDB(t), "--dev", "--require-message-signature"))
	r := finish(t, exec.Command("bash", "-c", send+"\n"+read), nil, "").wantCode(t, 0)
	if !strings.Contains(r.out, "message_id") || !strings.Contains(r.out, "hello, bob") {
		t.Errorf("%s", r.out)
	}
}

// go run leaves the program in a temporary folder or in the build cache. Nobody
// should have to paste that path.
func TestDevUnderGoRunPrintsGoRun(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"go-build1448951487/b001/exe", "e8/" + strings.Repeat("e8", 32) + "-d"} {
		dir := filepath.Join(t.TempDir(), folder)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		program := mustLinkProgram(t, dir)
		s := launch(t, exec.Command(program, "serve", "--dev", "--addr", "127.0.0.1:0", "--db", tempDB(t)), nil)
		if _, read := pasted(s); !strings.Contains(read, " go run . curl GET ") {
			t.Errorf("in %s: %s", folder, read)
		}
	}
	if _, read := pasted(startProcess(t, tempDB(t), "--dev")); !strings.Contains(read, " "+binary+" curl GET ") {
		t.Errorf("%s", read)
	}
}

// The printed commands work if the program, or the folder it is in, has a name with a space.
func TestWhatDevPrintsNamesTheProgramInQuotationMarks(t *testing.T) {
	notOnWindows(t, "there is no POSIX shell")
	dir := filepath.Join(t.TempDir(), "my tools, it's new")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := launch(t, exec.Command(mustLinkProgram(t, dir), "serve", "--dev", "--addr", "127.0.0.1:0", "--db", tempDB(t)), nil)
	_, read := pasted(s)
	r := finish(t, exec.Command("sh", "-c", "export RELAY_URL="+s.await(s.stdout, `running at (\S+)`)[1]+"\n"+read), nil, "").wantCode(t, 0)
	if !strings.Contains(r.out, `"messages"`) {
		t.Errorf("%s prints %s", read, r.out)
	}
}
