//go:build cluster && !windows

package cmd_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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
	trio   *trio
	name   string
	folder string // has the database, and the node's copy of the cluster file
	db     string
	addr   string  // where clients reach it, from its first start on
	server *server // nil: it was not started
}

// newTrio founds a cluster on the database of its first node, and starts it.
func newTrio(t *testing.T, database ...string) *trio {
	t.Helper()
	c := &trio{t: t, dir: scratch.Dir(t)}
	var members []string
	for _, name := range []string{"n1", "n2", "n3"} {
		n := c.machine(name)
		members = append(members, name+"="+freeAddr(t))
		c.nodes = append(c.nodes, n)
	}
	first := c.nodes[0]
	for _, path := range database {
		mustCopy(t, path, first.db)
	}
	mustRelay(t, append([]string{"cluster", "init", "--cluster", first.file(), "--db", first.db}, members...)...)
	c.handOut(first)
	c.start()
	return c
}

// machine makes the folder of a node.
func (c *trio) machine(name string) *clusterNode {
	c.t.Helper()
	folder := filepath.Join(c.dir, name)
	if err := os.Mkdir(folder, 0o700); err != nil {
		c.t.Fatal(err)
	}
	return &clusterNode{trio: c, name: name, folder: folder, db: filepath.Join(folder, "relay.db"), addr: freeAddr(c.t)}
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
	n.server = launch(n.trio.t, exec.Command(binary, "serve", "--addr", n.addr, "--db", n.db, "--cluster", n.file(), "--node", n.name,
		"--rate-limit", "0", "--auth-failure-limit", "0", "--max-pending", "0"), nil)
	n.server.db, n.server.url = n.db, "http://"+n.addr
}

// ready waits until a node answers requests.
func (n *clusterNode) ready() {
	n.trio.t.Helper()
	r := runRelay(n.trio.t, "readyz", "--url", n.server.url, "--wait", patience.String())
	if r.code != 0 {
		n.trio.t.Fatalf("%s is not ready: %s%s\n%s", n.name, r.out, r.err, n.server.stderr)
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

// running gives the nodes that run.
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
	}
}

func (n *clusterNode) status() clusterState {
	n.trio.t.Helper()
	return parse[clusterState](n.trio.t, []byte(mustRelay(n.trio.t, "cluster", "status", "--json", "--db", n.db)))
}

// leader gives the node that leads the log, once there is one among those that run.
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

// follower gives a running node that does not lead.
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

// dump gives the rows of a database that all nodes share.
func dump(t testing.TB, path string) (rows []string) {
	t.Helper()
	d := open(t, path)
	defer d.Close()
	for _, table := range nodeTables {
		all, err := d.Query("SELECT * FROM " + table + " ORDER BY 1, 2")
		if err != nil {
			t.Fatal(err)
		}
		names, _ := all.Columns()
		for all.Next() {
			values := make([]any, len(names))
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
			rows = append(rows, row)
		}
		if err := all.Err(); err != nil {
			t.Fatal(err)
		}
		all.Close()
	}
	return rows
}

// compare kills all nodes and compares their databases.
func (c *trio) compare() (rows int) {
	c.t.Helper()
	c.level()
	stopped := c.running()
	for _, n := range stopped {
		n.kill()
	}
	want := dump(c.t, stopped[0].db)
	for _, n := range stopped[1:] {
		got := dump(c.t, n.db)
		if len(got) != len(want) {
			c.t.Errorf("%s has %d rows, %s has %d", n.name, len(got), stopped[0].name, len(want))
		}
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				c.t.Errorf("row %d of %s is\n%s\nand of %s\n%s", i, n.name, got[i], stopped[0].name, want[i])
				break
			}
		}
	}
	for _, n := range stopped {
		mustRelay(c.t, "check", n.db)
	}
	return len(want)
}

// A load has senders that each send to the next one, over their own node, or another one that
// answers, and the ledger of what they were answered.
type load struct {
	*trio
	agents  []agent
	stop    context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup
	sent    [][]clusterLetter // of each sender
	acked   atomic.Int64
	retries atomic.Int64
	mu      sync.Mutex
	lastAck time.Time
	silence time.Duration // the longest time without a 201 since calm was called
}

type clusterLetter struct {
	token, id string
	createdAt time.Time
}

const clusterSenders = 12

// clusterClient gives a node up that is paused, and does not answer.
var clusterClient = &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func (c *trio) load(agents []agent) *load {
	l := &load{trio: c, agents: agents, sent: make([][]clusterLetter, len(agents)), lastAck: time.Now()}
	l.ctx, l.stop = context.WithCancel(c.t.Context())
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = "http://" + n.addr
	}
	for i := range agents {
		l.wg.Go(func() { l.work(i, urls) })
	}
	return l
}

// work sends until the load stops, and sends each message until it has a 201.
func (l *load) work(i int, urls []string) {
	me, to := l.agents[i], l.agents[(i+1)%len(l.agents)].Address
	for n := 0; l.ctx.Err() == nil; n++ {
		at := i // its own node, unless that one does not take the message
		token := fmt.Sprintf("%s/%d", me.Address, n)
		body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q,"text":"%s"}}`, to, token, strings.Repeat("x", rand.IntN(800)))
		for {
			ans, err := me.request("POST", "/api/v1/messages", body, "Idempotency-Key", token).by(clusterClient, urls[at%len(urls)])
			if err == nil && ans.status == 201 {
				m := parse[record](l.t, ans.body)
				l.sent[i] = append(l.sent[i], clusterLetter{token, m.MessageID, m.CreatedAt})
				l.noteAck()
				break
			}
			if err == nil && ans.status < 500 && ans.status != 429 {
				l.t.Errorf("%s: status %d: %s", token, ans.status, ans.body)
				return
			}
			l.retries.Add(1)
			at++ // the next node
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (l *load) noteAck() {
	l.acked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.silence = max(l.silence, now.Sub(l.lastAck))
	l.lastAck = now
}

// calm waits for n more 201s, and gives the longest silence since the call before.
func (l *load) calm(n int64) time.Duration {
	l.t.Helper()
	until := l.acked.Load() + n
	for end := time.Now().Add(patience); l.acked.Load() < until; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("only %d of %d messages were accepted", l.acked.Load()-until+n, n)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.silence
	l.silence = 0
	return s
}

// end stops the senders once each has the 201 of its last message.
func (l *load) end() {
	l.stop()
	l.wg.Wait()
}

// verify compares the ledger with what each node has.
func (l *load) verify() {
	l.t.Helper()
	l.level()
	for _, n := range l.running() {
		for i := range l.agents {
			l.verifySender(n, i)
		}
	}
}

func (l *load) verifySender(n *clusterNode, i int) {
	found := map[string][]record{}
	for _, m := range n.server.history(l.agents[i], "direction=out") {
		found[m.MessageID] = append(found[m.MessageID], m)
	}
	last := ""
	for _, s := range l.sent[i] {
		switch m := found[s.id]; {
		case len(m) == 0:
			l.t.Errorf("%s: %s of %s was acknowledged and is lost", n.name, s.id, s.token)
		case len(m) > 1:
			l.t.Errorf("%s: %s is there %d times", n.name, s.id, len(m))
		case !m[0].CreatedAt.Equal(s.createdAt):
			l.t.Errorf("%s: %s has moved from %v to %v", n.name, s.id, s.createdAt, m[0].CreatedAt)
		}
		if s.id <= last {
			l.t.Errorf("%s: %s stands before %s, which was accepted before it", n.name, s.id, last)
		}
		last = s.id
	}
	if len(found) != len(l.sent[i]) {
		l.t.Errorf("%s: %s was told of %d messages, and has %d: some are doubled", n.name, l.agents[i].Address, len(l.sent[i]), len(found))
	}
}

func trioAddresses(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("m%d^trio", i))
	}
	return all
}

// issue makes keys by the server of a node.
func (n *clusterNode) issue(addresses ...string) []agent {
	n.trio.t.Helper()
	return agents(n.trio.t, mustRelay(n.trio.t, append([]string{"key", "create", "--json", "--db", n.db}, addresses...)...))
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
	for i := range map[bool]int{false: 1, true: 10}[*long] {
		for what, victim := range map[string]func() *clusterNode{"follower": c.follower, "leader": c.leader} {
			n := victim()
			n.kill()
			note("kill of a "+what, l.calm(200))
			c.start()
			l.calm(100)
			if *long && i%3 == 1 {
				n := victim()
				n.signal(syscall.SIGSTOP)
				time.Sleep(12 * time.Second) // the pause itself
				n.signal(syscall.SIGCONT)
				n.ready()
				note("pause of a "+what, l.calm(200))
			}
		}
	}
	l.end()
	l.verify()
	rows := c.compare()
	t.Logf("%d messages, %d attempts that had no 201; %d equal rows; the longest time without any 201:", l.acked.Load(), l.retries.Load(), rows)
	for _, what := range slices.Sorted(maps.Keys(silences)) {
		t.Logf("%s: %s s", what, strings.Join(silences[what], " "))
	}
}
