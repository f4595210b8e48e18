package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fill takes space on a file system until less than left bytes are free; 0
// takes the last byte. The function that it returns makes room again.
func fill(t *testing.T, dir string, left int64) (makeRoom func()) {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int64{1 << 20, 4096} {
		block := make([]byte, size)
		for left == 0 || free(t, f) >= left+size-4096 {
			if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
				break // a part of the block may have been written
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// Below the floor only messages are refused: who cannot be sent more can still
// read, acknowledge, and so come to the end of it.
func TestCrashBelowTheFloorOfFreeDiskOnlySendsAreRefused(t *testing.T) {
	t.Parallel()
	dir := mountTmpfs(t, 24)
	db, l := filepath.Join(dir, "relay.db"), newLedger()
	keys := issue(t, db, "a^floor", "b^floor")
	a, b := keys[0], keys[1]
	s := startProcess(t, db, "--min-free-disk", "8000000")
	conn := s.dial(b, "")
	l.send(s, a, "b^floor", "first", 10)
	m := s.send(a, "b^floor", `{"token":"second"}`)
	l.accepted[m.MessageID] = "second"
	makeRoom := fill(t, dir, 7_000_000)
	ready := func(accepting string) func() bool {
		return func() bool {
			return strings.Contains(string(s.ask(a, "GET", "/readyz", "").want(t, 200)), `"accepting_messages":`+accepting)
		}
	}
	eventually(t, patience, "it notices", ready("false"))
	s.ask(a, "POST", "/api/v1/messages", `{"to":"b^floor","payload":{}}`).wantProblem(t, 507, "disk_full")
	ack := fmt.Sprintf(`{"type":"ack","message_id":%q,"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`, m.MessageID)
	if err := conn.Write(t.Context(), 1, []byte(ack)); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, "the acknowledgement over the socket", func() bool {
		return strings.Contains(string(s.ask(a, "GET", "/api/v1/messages/"+m.MessageID, "").want(t, 200)), `"state":"acknowledged"`)
	})
	for id := range l.accepted {
		s.ask(b, "POST", "/api/v1/messages/"+id+"/deliver", "").want(t, 200)
		s.ask(b, "POST", "/api/v1/messages/"+id+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(t, 200)
		s.ask(b, "GET", "/api/v1/messages/"+id+"/payload", "").want(t, 200)
	}
	makeRoom()
	eventually(t, patience, "it notices", ready("true"))
	if status := l.send(s, a, "b^floor", "third", 10); status != 201 {
		t.Errorf("status %d", status)
	}
	l.compare(s, b)
}

// The disk fills to the last byte, while the relay writes and nothing warns it.
// Whatever was being written is refused; reads continue; and with space again it
// continues on its own.
func TestCrashTheDiskFillsInTheMiddleOfWrites(t *testing.T) {
	notQuick(t)
	t.Parallel()
	for range rounds(t, 1, 4) { // each with a new file: the comparison of a long history takes long
		fillsInTheMiddleOfWrites(t, rounds(t, 1, 10))
	}
}

func fillsInTheMiddleOfWrites(t *testing.T, n int) {
	dir := mountTmpfs(t, rounds(t, 40, 128))
	db, l := filepath.Join(dir, "relay.db"), newLedger()
	keys := issue(t, db, "a^full", "b^full", "c^full", "d^full")
	began := time.Now()
	s := startProcess(t, db, "--min-free-disk", "0", "--rate-limit", "0")
	for round := range n {
		stop := make(chan struct{})
		wait := l.goOn(s, keys[:3], "d^full", 10+1000*(round%4), stop)
		before := l.count()
		eventually(t, patience, "messages are accepted", func() bool { return l.count() > before+20 })
		makeRoom := fill(t, dir, 0)
		refused := l.refusals("disk_full")
		eventually(t, patience, "messages are refused", func() bool { fill(t, dir, 0); return l.refusals("disk_full") > refused+5 })
		if h := s.history(keys[3], ""); len(h) < before {
			t.Errorf("history has %d", len(h))
		}
		put := s.ask(keys[0], "PUT", "/api/v1/mecha/a^full/profile", `{"description":"small"}`)
		if put.status != 200 && put.code() != "disk_full" { // a little may still fit into what the log has
			t.Errorf("a profile: %d %s", put.status, put.body)
		}
		if round%2 == 1 { // killed while nothing can be written
			s.kill()
			wait()
			makeRoom()
			wantWhole(t, db)
			s.wantQuietLog(time.Since(began), "the disk is full")
			began = time.Now()
			s = startProcess(t, db, "--min-free-disk", "0", "--rate-limit", "0")
			l.compare(s, keys[3])
			continue
		}
		makeRoom()
		before = l.count()
		eventually(t, patience, "messages are accepted again", func() bool { return l.count() > before+20 })
		s.await(s.stderr, "there is room on the disk again")
		close(stop)
		wait()
		s.wantQuietLog(time.Since(began), "the disk is full")
		l.compare(s, keys[3])
		s.acknowledgeAll(keys[3])
	}
	s.ask(keys[0], "PUT", "/api/v1/mecha/a^full/profile", fmt.Sprintf(`{"description":"zanzibar%d"}`, n)).want(t, 200)
	eventually(t, patience, "the profile is found", func() bool {
		found := s.ask(keys[1], "POST", "/api/v1/search", fmt.Sprintf(`{"query":"zanzibar%d"}`, n), "Prefer", "wait=5")
		return strings.Contains(string(found.body), `"mecha_id":"a^full"`)
	})
	t.Logf("%d times full: %d messages accepted, answers: %v; none lost, doubled or out of order", n, l.count(), l.codes)
	s.kill()
}

// acknowledgeAll finishes a few of what is pending, so that acknowledgements are compared too.
func (s *server) acknowledgeAll(a agent) {
	s.t.Helper()
	for _, m := range s.history(a, "direction=in&state=pending")[:3] {
		s.ask(a, "POST", "/api/v1/messages/"+m.MessageID+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`).want(s.t, 200)
	}
}

// wantQuietLog expects lines in the log, and that no fault has filled it: each is
// logged at most once a minute.
func (s *server) wantQuietLog(ran time.Duration, lines ...string) {
	s.t.Helper()
	log := s.stderr.String()
	for _, line := range lines {
		if !strings.Contains(log, line) {
			s.t.Errorf("the log does not say %q:\n%s", line, log)
		}
	}
	fault := regexp.MustCompile(`level=(?:WARN|ERROR) (msg="[^"]*").*?(error=.*?)?(?: repeated=\d+)?$`)
	count := map[string]int{}
	for line := range strings.Lines(log) {
		if m := fault.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			count[m[1]+" "+m[2]]++
		}
	}
	for what, n := range count {
		if most := 1 + int(ran/time.Minute); n > most {
			s.t.Errorf("%d times in %v: %s", n, ran, what)
		}
	}
}
