package cmd_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A machine restarts while its disk is full. The relay starts and serves reads; what
// cannot be written gets 507; and with space again it continues on its own.
func TestCrashAStartOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, 24)
	for name, stop := range map[string]func(*server){
		"stopped": func(s *server) { s.terminate() }, // the log and its index must be made again
		"killed":  func(s *server) { s.kill() },      // the log has messages that are nowhere else
	} {
		t.Run(name, func(t *testing.T) {
			db, l := filepath.Join(dir, name+".db"), newLedger()
			keys := issue(t, db, "a^start", "b^start")
			s := startProcess(t, db, "--min-free-disk", "0")
			for n := range 20 {
				l.send(s, keys[0], "b^start", fmt.Sprint(n), 2000)
			}
			stop(s)
			makeRoom := fill(t, dir, 0)
			s = startProcess(t, db, "--min-free-disk", "0")
			startedFull(t, s, l, keys)
			if name == "stopped" && !strings.Contains(s.stderr.String(), "reads are served, and every write gets 507") {
				t.Errorf("the index of the log was made:\n%s", s.stderr)
			}
			runRelay(t, "mecha", "list", "--db", db).wantCode(t, 0)
			makeRoom()
			roomAgain(t, s, l, keys)
			s.kill()
			wantWhole(t, db)
		})
	}
}

// No write succeeds: neither the log nor its index can grow.
func TestCrashAStartWithoutAWrite(t *testing.T) {
	tool(t, "strace")
	t.Parallel()
	db, l := tempDB(t), newLedger()
	keys := issue(t, db, "a^start", "b^start")
	s := startProcess(t, db)
	for n := range 20 {
		l.send(s, keys[0], "b^start", fmt.Sprint(n), 2000)
	}
	s.kill()
	s = launch(t, exec.Command("strace", "-D", "-f", "-o", "/dev/null", "-e", "trace=pwrite64", "-e", "inject=pwrite64:error=ENOSPC:when=1+",
		binary, "serve", "--addr", "127.0.0.1:0", "--db", db, "--min-free-disk", "0"), nil)
	s.url = s.await(s.stderr, `url=(http://\S+)`)[1]
	startedFull(t, s, l, keys)
	s.await(s.stderr, "the disk is full")
	s.ask(keys[0], "POST", "/api/v1/messages", `{"to":"b^start","payload":{}}`).wantProblem(t, 507, "disk_full")
	s.kill()
	wantWhole(t, db)
	s = startProcess(t, db)
	l.compare(s, keys[1])
}

// startedFull expects a server to serve reads, and each write to be done or refused as such.
func startedFull(t *testing.T, s *server, l *ledger, keys []agent) {
	t.Helper()
	l.compare(s, keys[1])
	s.ask(keys[0], "GET", "/api/v1/whoami", "").want(t, 200)
	conn := s.dial(keys[1], "?since_message_id="+s.history(keys[1], "")[0].MessageID)
	if _, frame, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(frame), `"message_id"`) {
		t.Errorf("the socket: %s, %v", frame, err)
	}
	for n := range 300 { // a little may still fit into what the log has
		if l.send(s, keys[0], "b^start", fmt.Sprintf("full-%d", n), 40_000) == 507 {
			break
		}
	}
	for _, m := range s.history(keys[1], "direction=in")[:3] {
		ack := s.ask(keys[1], "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`)
		if ack.status != 200 && ack.code() != "disk_full" {
			t.Errorf("an acknowledgement: %d %s", ack.status, ack.body)
		}
	}
	for code := range l.codes {
		if code != "disk_full" {
			t.Errorf("a send was refused with %s", code)
		}
	}
	if !strings.Contains(s.stderr.String(), "the disk is full") {
		t.Errorf("nothing is said of a full disk:\n%s", s.stderr)
	}
}

// roomAgain expects a server to take writes again, from new keys as well.
func roomAgain(t *testing.T, s *server, l *ledger, keys []agent) {
	t.Helper()
	n := 0
	eventually(t, patience, "messages are accepted", func() bool {
		n++
		return l.send(s, keys[0], "b^start", fmt.Sprintf("room-%d", n), 100) == 201
	})
	for _, m := range s.history(keys[1], "direction=in&state=pending")[:3] {
		s.ask(keys[1], "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
	}
	fresh := issue(t, s.db, "c^start")[0]
	s.send(fresh, "b^start", `{"token":"fresh"}`)
	mustRelay(t, "key", "revoke", fresh.KeyID, "--db", s.db)
	eventually(t, patience, "the revocation is seen", func() bool { return s.ask(fresh, "GET", "/api/v1/whoami", "").status == 401 })
	l.open["fresh"] = true
	l.compare(s, keys[1])
	if !strings.Contains(string(s.ask(keys[0], "GET", "/readyz", "").want(t, 200)), `"accepting_messages":true`) {
		t.Error("readyz says that no messages are accepted")
	}
}
