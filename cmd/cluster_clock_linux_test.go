//go:build cluster && (amd64 || arm64)

package cmd_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// clockEnv names the file of a clock, of which the programs of withClock read by how many seconds it
// is wrong.
const clockEnv = "RELAY_TEST_CLOCK"

// withClock builds the program with another time.Now: one that is wrong by as many seconds as a file
// says, from one moment to the next. All that measures durations stays as it is.
func withClock(t *testing.T) (program string) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	return buildChanged(t, []change{
		{file, "\t_ \"unsafe\" // for go:linkname\n", "\t\"syscall\"\n\t\"unsafe\"\n"},
		{file, "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", `
var wrongBy = func() *int64 {
	path, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return new(int64)
	}
	file, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	b, err := syscall.Mmap(file, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&b[0]))
}()

func Now() Time {
	sec, nsec, mono := runtimeNow()
	sec += *wrongBy
`},
	})
}

// A wrongClock is the clock of a node.
type wrongClock struct {
	t    *testing.T
	path string
}

// ownClock sets a clock of its own in a node.
func (n *clusterNode) ownClock() *wrongClock {
	c := &wrongClock{n.trio.t, filepath.Join(n.folder, "clock")}
	if err := os.WriteFile(c.path, make([]byte, 8), 0o600); err != nil {
		c.t.Fatal(err)
	}
	n.env = append(n.env, clockEnv+"="+c.path)
	return c
}

// set has the clock jump.
func (c *wrongClock) set(by time.Duration) {
	c.t.Helper()
	var b [8]byte // little-endian, as the processors are that this file is for
	for i := range b {
		b[i] = byte(int64(by/time.Second) >> (8 * i))
	}
	f, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b[:], 0)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// The clock of the node that leads the log jumps by ten minutes, ahead and back, and another node
// takes over with the right time. Ids continue upwards, nothing that was answered is lost, doubled or
// moved, and all nodes agree on what has expired.
func TestClusterWhoseLeadersClockJumps(t *testing.T) {
	notQuick(t)
	program := withClock(t)
	c := newTrio(t)
	clocks := map[*clusterNode]*wrongClock{}
	for _, n := range c.nodes {
		n.stop()
		n.program, n.args = program, []string{"--clock-skew", "15m"}
		clocks[n] = n.ownClock()
	}
	c.start()
	all := c.nodes[0].issue(append(trioAddresses(clusterSenders), "boss^trio", "late^trio")...)
	boss, late := all[clusterSenders], all[clusterSenders+1]
	l := c.load(all[:clusterSenders])
	l.calm(200)
	limited := func(end time.Time) (ids []string) {
		t.Helper()
		for range 10 {
			body := fmt.Sprintf(`{"to":%q,"payload":{},"expires_at":%q}`, late.Address, end.UTC().Format(time.RFC3339Nano))
			ids = append(ids, parse[record](t, c.nodes[0].server.ask(boss, "POST", "/api/v1/messages", body).want(t, 201)).MessageID)
		}
		return ids
	}
	ack := func(n *clusterNode, id string) answer {
		t.Helper()
		return n.server.ask(late, "POST", "/api/v1/messages/"+id+"/ack", `{"status":"completed","client_ts":"2026-01-01T00:00:00Z"}`)
	}
	expire := func(count int) {
		t.Helper()
		for _, n := range c.nodes {
			n.until(fmt.Sprintf("%d messages have expired in its file", count), func() bool { return n.expired() == count })
		}
	}
	takeOver := func(leader *clusterNode) {
		t.Helper()
		leader.kill() // the next one has the right time
		silence := l.calm(500)
		clocks[leader].set(0)
		c.start()
		c.leader().whole()
		l.calm(200)
		t.Logf("the longest time without any 201, when the node with the wrong clock was killed: %.2f s", silence.Seconds())
	}

	// By a clock that was put back nothing expires: the time of the log stands still.
	end := time.Now().Add(20 * time.Second)
	ids := limited(end)
	leader := c.leader()
	clocks[leader].set(-10 * time.Minute)
	time.Sleep(time.Until(end.Add(time.Second))) // the right clocks have come there
	l.calm(500)
	for _, n := range leader.others() {
		ack(n, ids[0]).want(t, 200)
		if got := n.expired(); got != 0 {
			t.Errorf("%s: %d messages have expired", n.name, got)
		}
	}
	clocks[leader].set(0)
	expire(len(ids) - 1)
	clocks[leader].set(-10 * time.Minute)
	l.calm(200)
	takeOver(leader)
	expire(len(ids) - 1)

	// By a clock that is ahead they have expired, at all nodes, whatever their own clocks say.
	ids = limited(time.Now().Add(9 * time.Minute))
	leader = c.leader()
	clocks[leader].set(10 * time.Minute)
	l.calm(500)
	for i, n := range leader.others() {
		ack(n, ids[i]).wantProblem(t, 409, "message_expired")
	}
	clocks[leader].set(0)
	l.calm(200)
	clocks[leader].set(10 * time.Minute)
	l.calm(200)
	takeOver(leader)
	for i, n := range c.nodes {
		ack(n, ids[3+i]).wantProblem(t, 409, "message_expired") // with the right clock again
	}
	l.end()
	l.verify()
	t.Logf("%d messages, %d attempts that had no 201; %d equal rows", l.acked.Load(), l.retries.Load(), c.compare())
}

// expired counts the messages in the node's file that have expired.
func (n *clusterNode) expired() (count int) {
	d := open(n.trio.t, n.db)
	defer d.Close()
	if err := d.QueryRow("SELECT count(*) FROM message WHERE state = 3").Scan(&count); err != nil {
		n.trio.t.Fatal(err)
	}
	return count
}
