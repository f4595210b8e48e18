package cmd_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// Profiles are for this machine, and the address for them must be one of it.
func TestProfilesAreForThisMachineAlone(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{":6060", "0.0.0.0:6060", "10.0.0.7:6060", "localhost:6060", "[::]:6060", "6060"} {
		runRefused(t, []string{"serve", "--db", tempDB(t), "--pprof", addr}, nil).wantCode(t, 2, "--pprof")
	}
	s := startServer(t, tempDB(t), "--pprof", "127.0.0.1:0")
	url := "http://" + s.await(s.stderr, `serving profiles" addr=(\S+)`)[1]
	get := func(path string, header ...string) int {
		t.Helper()
		r, err := http.NewRequest("GET", url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=1"} {
		if status := get(path); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
		if status := get(path, "X-Forwarded-For", "10.0.0.7"); status != 404 {
			t.Errorf("%s, forwarded: %d", path, status)
		}
		if status := get(path, "Sec-Fetch-Site", "cross-site"); status != 404 {
			t.Errorf("%s, by another site: %d", path, status)
		}
	}
	if resp, err := client.Get(s.url + "/debug/pprof/"); err != nil || resp.StatusCode != 404 {
		t.Errorf("at --addr: %v, %v", resp, err)
	}
}

// If the address is taken, no file is left behind. The error names the flag.
func TestATakenAddressBesideLeavesNoFile(t *testing.T) {
	t.Parallel()
	leavesNoFile(t, "--pprof")
}

// leavesNoFile checks that a server whose flag names an address that is taken, or is none, is
// refused before it makes a file.
func leavesNoFile(t *testing.T, flag string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	db := tempDB(t)
	serve := func(addr string) []string { return []string{"serve", "--addr", "127.0.0.1:0", "--db", db, flag, addr} }
	runRefused(t, serve(l.Addr().String()), nil).wantCode(t, 1, l.Addr().String()+" is already in use; "+flag+" 127.0.0.1:")
	runRefused(t, serve("127.0.0.1:99999"), nil).wantCode(t, 2, flag)
	if left, err := filepath.Glob(filepath.Dir(db) + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// At the level debug each request is a line: who asked for what, and what came of it.
func TestEachRequestIsALineAtDebug(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	a := issue(t, db, "a^lines")[0]
	s := startServer(t, db, "--log-format", "json", "--log-level", "debug")
	s.ask(a, "POST", "/api/v1/messages", `{"to":"a^lines","payload":{}}`).want(t, 201)
	s.ask(a, "GET", "/api/v1/mecha/b^lines/messages?limit=1", "").want(t, 403)
	s.ask(agent{Key: "mk_wrong"}, "GET", "/api/v1/whoami", "").want(t, 401)
	s.dial(a, "").CloseNow()
	type line struct {
		Msg, Method, Path, Client string
		Status                    int
		Key                       string `json:"key_id"`
	}
	want := []line{
		{"request", "GET", "/readyz", "127.0.0.1", 200, ""},
		{"request", "POST", "/api/v1/messages", "127.0.0.1", 201, a.KeyID},
		{"request", "GET", "/api/v1/mecha/b^lines/messages", "127.0.0.1", 403, a.KeyID},
		{"request", "GET", "/api/v1/whoami", "127.0.0.1", 401, ""},
		{"request", "GET", "/api/v1/ws/mecha/a^lines", "127.0.0.1", 101, a.KeyID},
	}
	s.await(s.stderr, `"path":"/api/v1/ws/[^\n]*\n`)
	var got []line
	for text := range strings.Lines(s.stderr.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		if l.Msg == "request" {
			got = append(got, l)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the lines are\n%+v, want\n%+v", got, want)
	}
	if s = startServer(t, tempDB(t)); strings.Contains(s.stderr.String(), "msg=request") {
		t.Error("requests are lines at info, too")
	}
}

// The log is JSON where no person reads it, unless a format is set.
func TestTheLogIsJSONElsewhere(t *testing.T) {
	t.Parallel()
	auto := startServer(t, tempDB(t), "--log-format", "auto", "--pprof", "127.0.0.1:0")
	text := startServer(t, tempDB(t), "--log-format", "text")
	if !strings.HasPrefix(auto.stderr.String(), "{") || !strings.HasPrefix(text.stderr.String(), "time=") {
		t.Errorf("%s\n%s", auto.stderr, text.stderr)
	}
	if said := auto.stderr.String(); !strings.Contains(said, `"msg":"serving profiles","addr":"127.0.0.1:`) {
		t.Error(said)
	}
	quiet := startServer(t, tempDB(t), "--log-level", "error")
	if said := quiet.stderr.String(); said != "" {
		t.Errorf("at the level error: %s", said)
	}
	runRefused(t, []string{"serve", "--log-level", "loud"}, nil).wantCode(t, 2, "debug, info, warn, error")
}
