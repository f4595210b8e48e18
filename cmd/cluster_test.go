//go:build cluster && !windows

package cmd_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/db/scratch"
)

// trio is a cluster that runs: three nodes, or more, each with a folder of its own as on a
// machine of its own.
type trio struct {
	t     *testing.T
	dir   string
	nodes []*clusterNode
}

type clusterNode struct {
	trio    *trio
	name    string
	folder  string // has the database, and the node's copy of the cluster file
	db      string
	wrap    []string // the command that runs the program; nil: none
	args    []string // more arguments of relay serve
	env     []string // next to that of the test
	program string   // that it runs; "": that of the tests
	addr    string   // where clients reach it, from its first start on
	server  *server  // nil: it was not started
}

// newTrio founds a cluster on the database of its first node, and starts it.
func newTrio(t *testing.T, database ...string) *trio {
	t.Helper()
	c := foundTrio(t, database...)
	c.start()
	return c
}

// foundTrio founds a cluster on the database of its first node. No node runs.
func foundTrio(t *testing.T, database ...string) *trio {
	t.Helper()
	c := &trio{t: t, dir: scratch.Dir(t)}
	var members []string
	for _, name := range []string{"n1", "n2", "n3"} {
		n := c.machine(name)
		members = append(members, name+"="+scratch.Addr(t))
		c.nodes = append(c.nodes, n)
	}
	first := c.nodes[0]
	for _, path := range database {
		mustCopy(t, path, first.db)
	}
	mustRelay(t, append([]string{"cluster", "init", "--cluster", first.file(), "--db", first.db}, members...)...)
	c.handOut(first)
	return c
}

// machine makes the folder of a node.
func (c *trio) machine(name string) *clusterNode {
	c.t.Helper()
	folder := filepath.Join(c.dir, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		c.t.Fatal(err)
	}
	return &clusterNode{trio: c, name: name, folder: folder, db: filepath.Join(folder, "relay.db"), addr: scratch.Addr(c.t)}
}

func (n *clusterNode) file() string { return filepath.Join(n.folder, "relay.cluster") }

// handOut copies the cluster file of a node to the others.
func (c *trio) handOut(from *clusterNode) {
	c.t.Helper()
	for _, n := range c.nodes {
		if n != from {
			mustCopy(c.t, from.file(), n.file())
		}
	}
}

func mustCopy(t testing.TB, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		os.Remove(to)
		err = os.WriteFile(to, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the nodes that do not run, and waits until all are ready.
func (c *trio) start() {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.server == nil {
			n.launch()
		}
	}
	for _, n := range c.nodes {
		n.ready()
	}
}

// launch starts a node, and does not wait. It has its address from its first start on.
func (n *clusterNode) launch() {
	n.trio.t.Helper()
	args := append(slices.Clone(n.wrap), cmp.Or(n.program, binary), "serve", "--addr", n.addr, "--db", n.db, "--cluster", n.file(), "--node", n.name,
		"--rate-limit", "0", "--auth-failure-limit", "0", "--max-pending", "0")
	args = append(args, n.args...)
	n.server = launch(n.trio.t, exec.Command(args[0], args[1:]...), n.env)
	n.server.db, n.server.url, n.server.node = n.db, "http://"+n.addr, true
}

// askOnce is ask, and gives the first answer, even if that is "not now".
func (n *clusterNode) askOnce(a agent, method, path, body string) answer {
	n.trio.t.Helper()
	ans, err := a.request(method, path, body).to(n.server.url)
	if err != nil {
		n.trio.t.Fatal(err)
	}
	return ans
}

// ready waits until a node answers requests.
func (n *clusterNode) ready() {
	n.trio.t.Helper()
	for end := time.Now().Add(patience); !isReady(n.server.url); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			n.trio.t.Fatalf("%s is not ready:\n%s", n.name, n.server.stderr)
		}
	}
}

// kill is kill -9. The node can be started again.
func (n *clusterNode) kill() {
	n.server.kill()
	n.server = nil
}

// stop stops a node as an operator does.
func (n *clusterNode) stop() {
	n.trio.t.Helper()
	if code := n.server.terminate(); code != 0 {
		n.trio.t.Errorf("%s has ended with %d:\n%s", n.name, code, n.server.stderr)
	}
	n.server = nil
}

// running returns the nodes that run.
func (c *trio) running() (all []*clusterNode) {
	for _, n := range c.nodes {
		if n.server != nil {
			all = append(all, n)
		}
	}
	return all
}

// clusterState is what relay cluster status --json tells.
type clusterState struct {
	Leader  string
	Fresh   bool
	Last    uint64 `json:"last_entry"`
	Members []struct {
		Name    string
		Live    bool
		Follows bool
		Holds   bool   `json:"holds_log"`
		Applied uint64 `json:"applied_entry"`
		Differs bool
		Version string
		Rules   int64
		Knows   int64 `json:"knows_rules"`
	}
}

func (n *clusterNode) status() clusterState {
	n.trio.t.Helper()
	return parse[clusterState](n.trio.t, []byte(mustRelay(n.trio.t, "cluster", "status", "--json", "--db", n.db)))
}

// leader returns the node that leads the log, once there is one among those that run.
func (c *trio) leader() *clusterNode {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		for _, asked := range c.running() {
			name := asked.status().Leader
			for _, n := range c.running() {
				if n.name == name {
					return n
				}
			}
		}
	}
	c.t.Fatal("no node leads the log")
	return nil
}

// follower returns a running node that does not lead.
func (c *trio) follower() *clusterNode {
	c.t.Helper()
	leader := c.leader()
	others := slices.DeleteFunc(c.running(), func(n *clusterNode) bool { return n == leader })
	return others[rand.IntN(len(others))]
}

// level waits until all running nodes have applied the same entry, the last one.
func (c *trio) level() {
	c.t.Helper()
	var last []clusterState
	for end := time.Now().Add(patience); time.Now().Before(end); {
		last = nil
		applied, ends := map[uint64]bool{}, false
		for _, n := range c.running() {
			st := n.status()
			last = append(last, st)
			for _, m := range st.Members {
				if m.Differs {
					c.t.Fatalf("%s says that %s differs", n.name, m.Name)
				}
				if m.Name == n.name {
					applied[m.Applied] = true
					ends = m.Applied == st.Last
				}
			}
		}
		if len(applied) == 1 && ends {
			return
		}
	}
	c.t.Fatalf("the nodes do not come to the same entry: %+v", last)
}

// nodeTables are the tables whose rows all nodes share.
var nodeTables = []string{"mecha", "profile", "kept_nonce", "mecha_key", "word", "message", "payload", "receipt", "progress", "conversation_limit", "attempt",
	"participant", "dormant", "clock_ahead", "audit", "exchange", "learner", "learned", "replica", "origin", "entry_nonce"}

// open opens a database to read it.
func open(t testing.TB, path string) *sql.DB {
	t.Helper()
	d, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: "mode=ro"}).String())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dump returns the rows of a database that all nodes share, one after the other.
func dump(t testing.TB, path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		d := open(t, path)
		defer d.Close()
		for _, table := range nodeTables {
			if !rowsOf(t, d, table, yield) {
				return
			}
		}
	}
}

// rowsOf returns the rows of a table, and reports whether more are wanted.
func rowsOf(t testing.TB, d *sql.DB, table string, yield func(string) bool) (more bool) {
	all, err := d.Query("SELECT * FROM " + table + " ORDER BY 1, 2")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	names, _ := all.Columns()
	values := make([]any, len(names))
	for all.Next() {
		for i := range values {
			values[i] = new(any)
		}
		if err := all.Scan(values...); err != nil {
			t.Fatal(err)
		}
		row := table
		for _, v := range values {
			row += fmt.Sprintf("|%x", *v.(*any))
		}
		if !yield(row) {
			return false
		}
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return true
}

// compare kills all nodes and compares their databases.
func (c *trio) compare() (rows int) {
	c.t.Helper()
	c.level()
	stopped := c.running()
	for _, n := range stopped {
		n.kill()
	}
	first := stopped[0]
	for _, n := range stopped[1:] {
		rows = c.compareTwo(first, n)
	}
	for _, n := range stopped {
		wantWhole(c.t, n.db)
	}
	return rows
}

// compareTwo compares the databases of two nodes row by row, and returns how many are equal.
func (c *trio) compareTwo(a, b *clusterNode) (rows int) {
	c.t.Helper()
	next, stop := iter.Pull(dump(c.t, b.db))
	defer stop()
	for want := range dump(c.t, a.db) {
		if got, _ := next(); got != want { // "" at the end
			c.t.Errorf("row %d of %s is\n%s\nand of %s\n%s", rows, b.name, got, a.name, want)
			return rows
		}
		rows++
	}
	if got, more := next(); more {
		c.t.Errorf("%s has more than the %d rows of %s: %s", b.name, rows, a.name, got)
	}
	return rows
}

// In a cluster nothing that was answered is lost, doubled or moved, whichever node is killed.
func TestClusterKilledUnderLoadItLosesAndDoublesNothing(t *testing.T) {
	c := newTrio(t)
	l := c.load(c.nodes[1].issue(trioAddresses(clusterSenders)...))
	l.calm(200)
	silences := map[string][]string{}
	note := func(what string, s time.Duration) {
		silences[what] = append(silences[what], fmt.Sprintf("%.2f", s.Seconds()))
	}
	for i := range map[bool]int{false: 1, true: 10}[scratch.Long(t)] {
		for what, victim := range map[string]func() *clusterNode{"follower": c.follower, "leader": c.leader} {
			n := victim()
			n.kill()
			note("kill of a "+what, l.calm(200))
			c.start()
			l.calm(100)
			if scratch.Long(t) && i%3 == 1 {
				n := victim()
				n.signal(syscall.SIGSTOP)
				time.Sleep(12 * time.Second) // the pause itself
				n.signal(syscall.SIGCONT)
				n.ready()
				note("pause of a "+what, l.calm(200))
			}
		}
	}
	for _, n := range c.nodes {
		wantWhole(t, n.db) // next to the work
	}
	l.end()
	l.verify()
	rows := c.compare()
	t.Logf("%d messages, %d attempts that had no 201; %d equal rows; the longest time without any 201:", l.acked.Load(), l.retries.Load(), rows)
	for _, what := range slices.Sorted(maps.Keys(silences)) {
		t.Logf("%s: %s s", what, strings.Join(silences[what], " "))
	}
}
