package cmd_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db/scratch"
	"relay/http/docs"
)

// aheadOfTime is the recorded request of a client whose clock is a minute ahead.
const aheadOfTime = "read by a clock that is ahead"

// mustRecord sends requests of every kind. It returns what somebody on the way could have
// recorded: the requests as they were sent, and others for which their headers are good.
func (s *server) mustRecord(alice, bob agent) map[string]request {
	s.t.Helper()
	handshake := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="}
	socket := "/api/v1/ws/mecha/" + bob.Address
	one, two := s.send(alice, bob.Address, `{"n":1}`).MessageID, s.send(alice, bob.Address, `{"n":2}`).MessageID
	other := s.send(alice, bob.Address, `{"n":3}`).MessageID
	path := func(id, what string) string { return "/api/v1/messages/" + id + what }
	const ack = `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`
	s.ask(bob, "POST", path(one, "/deliver"), "").want(s.t, 200)
	s.ask(bob, "POST", path(two, "/ack"), ack).want(s.t, 200)
	all := map[string]request{}
	take := func(name string, status int, r request) request {
		if got := s.statusOf(r); got != status {
			s.t.Fatalf("%s: status %d, want %d", name, got, status)
		}
		all[name] = r
		return r
	}
	read := take("read", 200, bob.request("GET", "/api/v1/mecha/"+bob.Address+"/inbox", ""))
	open := take("handshake", http.StatusSwitchingProtocols, bob.request("GET", socket, "", handshake...))
	same := take("delivery that changed nothing", 200, bob.request("POST", path(one, "/deliver"), ""))
	again := take("acknowledgement that changed nothing", 200, bob.request("POST", path(two, "/ack"), ack))
	take("send", 201, alice.request("POST", "/api/v1/messages", `{"to":"`+bob.Address+`","payload":{}}`))
	take("request that was forbidden", 403, alice.request("POST", path(one, "/deliver"), ""))
	take("request for nothing", 404, bob.request("GET", path("msg_none", ""), ""))
	// The same headers are good for other requests with the same body.
	all["read as a delivery"] = request{"POST", path(other, "/deliver"), "", read.header}
	all["handshake as a delivery"] = request{"POST", path(other, "/deliver"), "", open.header}
	all["read as a handshake"] = request{"GET", socket, "", join(read.header, open.header)}
	all["delivery of another message"] = request{"POST", path(other, "/deliver"), "", same.header}
	all["acknowledgement of another message"] = request{"POST", path(other, "/ack"), ack, again.header}
	take(aheadOfTime, 200, bob.requestAt(time.Now().Add(time.Minute), "GET", "/api/v1/whoami", ""))
	return all
}

// statusOf sends a request, gives the status of the answer, and hangs up: after a
// handshake, the answer has no end.
func (s *server) statusOf(r request) int {
	s.t.Helper()
	req, err := http.NewRequest(r.method, s.url+r.path, strings.NewReader(r.body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = r.header.Clone()
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// join makes a WebSocket handshake with the credentials of another request.
func join(credentials, handshake http.Header) http.Header {
	h := credentials.Clone()
	for name, values := range handshake {
		if h[name] == nil {
			h[name] = values
		}
	}
	return h
}

// wantRefused replays everything.
func (s *server) wantRefused(recorded map[string]request, codes ...string) {
	s.t.Helper()
	for name, r := range recorded {
		ans, err := r.to(s.url)
		if err != nil {
			s.t.Fatal(err)
		}
		code := ans.code()
		if ans.status != 401 || !strings.Contains(" "+strings.Join(codes, " ")+" ", " "+code+" ") {
			s.t.Errorf("a replayed %s got %d %s, want %v", name, ans.status, ans.body, codes)
		}
		if code == "timestamp_out_of_range" {
			now := parse[struct {
				ServerTime time.Time `json:"server_time"`
			}](s.t, ans.body).ServerTime
			if time.Since(now).Abs() > patience {
				s.t.Errorf("%s: server_time is %v", name, now)
			}
		}
	}
}

// wantWorking sends fresh requests of each kind.
func (s *server) wantWorking(alice, bob agent) {
	s.t.Helper()
	s.send(alice, bob.Address, `{}`)
	s.ask(bob, "GET", "/api/v1/whoami", "").want(s.t, 200)
	s.dial(bob, "").CloseNow()
}

// A recorded request is refused whenever the relay has been killed or stopped since.
func TestNoRecordedRequestWorksAfterAKillOrAStop(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	all := issue(t, db, "alice^replay", "bob^replay")
	alice, bob := all[0], all[1]
	s := startProcess(t, db)
	recorded := s.mustRecord(alice, bob)
	ends := map[string]func(*server){
		"kill":                func(s *server) { s.kill() },
		"stop":                func(s *server) { s.terminate() },
		"a command meanwhile": func(s *server) { s.kill(); mustRelay(t, "key", "list", "--db", db); wantWhole(t, db) },
	}
	if docs.Has("compact") {
		ends["compacted"] = func(s *server) { s.terminate(); mustRelay(t, "compact", "--db", db) }
	}
	for name, end := range ends {
		end(s)
		s = startProcess(t, db)
		before := len(s.history(bob, "state=delivered"))
		s.wantRefused(recorded, "nonce_reused")
		if strings.Contains(s.stderr.String(), "signed before this start") {
			t.Errorf("%s: the relay did not believe its own file: %s", name, s.stderr)
		}
		truncated := bob.requestAt(time.Now().Truncate(time.Second), "GET", "/api/v1/whoami", "")
		if ans, err := truncated.to(s.url); err != nil || ans.status != 200 {
			t.Errorf("%s: a request that is as old as its second got %d %s, %v", name, ans.status, ans.body, err)
		}
		s.wantWorking(alice, bob)
		if after := len(s.history(bob, "state=delivered")); after != before {
			t.Errorf("%s: replays delivered %d messages", name, after-before)
		}
	}
}

// After a power cut, the newest entries of the ring may be missing, or all of it. Then
// the time of the start refuses what was recorded before it.
func TestNoRecordedRequestWorksAfterAPowerCut(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	all := issue(t, db, "alice^replay", "bob^replay")
	alice, bob := all[0], all[1]
	s := startProcess(t, db)
	first := s.mustRecord(alice, bob)
	backup := tempDB(t)
	mustRelay(t, "backup", backup, "--db", db)
	s.kill()
	delete(first, aheadOfTime) // its timestamp is not before the start
	cuts := map[string]func(){
		"the ring is gone":    func() { os.Remove(db + "-nonces") },
		"the ring is damaged": func() { os.WriteFile(db+"-nonces", []byte("no ring"), 0o600) },
	}
	if scratch.Long(t) {
		cuts["an old copy of the ring"] = func() {
			b, _ := os.ReadFile(db + "-nonces")
			os.Remove(db + "-nonces")
			os.WriteFile(db+"-nonces", b, 0o600)
		}
		cuts["a folder in the ring's place"] = func() { os.Remove(db + "-nonces"); os.MkdirAll(db+"-nonces/x", 0o700) }
	}
	for name, cut := range cuts {
		cut()
		s = startProcess(t, db)
		s.await(s.stderr, "signed before this start")
		s.wantRefused(first, "timestamp_out_of_range", "nonce_reused")
		s.wantWorking(alice, bob)
		// The rule outlives a stop and a kill.
		for _, end := range []func(){func() { s.terminate() }, func() { s.kill() }} {
			end()
			s = startProcess(t, db)
			s.wantRefused(first, "timestamp_out_of_range", "nonce_reused")
			s.wantWorking(alice, bob)
		}
		s.kill()
		os.RemoveAll(db + "-nonces/x")
		if t.Failed() {
			t.Fatal("after: ", name)
		}
	}
	mustRelay(t, "restore", backup, "--db", db, "--force")
	s = startProcess(t, db)
	s.wantRefused(first, "timestamp_out_of_range", "nonce_reused")
	s.wantWorking(alice, bob)
}

// Without room for the file of nonces the relay continues, and the next start refuses what
// was signed before it.
func TestCrashTheDiskIsFullForTheNonces(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, 24)
	db := filepath.Join(dir, "relay.db")
	a := issue(t, db, "a^nonces")[0]
	s := startProcess(t, db, "--min-free-disk", "0")
	makeRoom := fill(t, dir, 0)
	read := a.request("GET", "/api/v1/whoami", "")
	if got := s.statusOf(read); got != 200 {
		t.Fatalf("a read got %d", got)
	}
	s.await(s.stderr, "the file of used nonces cannot be written")
	if got := s.statusOf(read); got != 401 {
		t.Errorf("a replay got %d", got)
	}
	makeRoom()
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
	if code := s.terminate(); code != 0 {
		t.Errorf("exit %d: %s", code, s.stderr)
	}
	s = startProcess(t, db)
	s.wantRefused(map[string]request{"read": read}, "timestamp_out_of_range")
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)

	// A start on a full disk continues with the file that is there.
	read = a.request("GET", "/api/v1/whoami", "")
	if got := s.statusOf(read); got != 200 {
		t.Fatalf("a read got %d", got)
	}
	s.kill()
	makeRoom = fill(t, dir, 0)
	defer makeRoom()
	s = startProcess(t, db)
	s.wantRefused(map[string]request{"read": read}, "nonce_reused", "timestamp_out_of_range")
	s.ask(a, "GET", "/api/v1/whoami", "").want(t, 200)
}
