//go:build cluster && !windows

package cmd_test

import (
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"relay/db/scratch"
)

// With -node n2, a test that is written for one server runs against the node n2 of three:
// startServer founds a cluster on the test's database, and gives it that node.
func init() {
	flag.Func("node", "run tests of one server against this `node` of a cluster of three, n1, n2 or n3", func(name string) error {
		s := &suite{node: name, trios: map[string]*trio{}}
		serveInCluster = s.serve
		return nil
	})
}

// suite has the clusters of the tests, by the path of the database of the node that a test has.
type suite struct {
	node  string
	mu    sync.Mutex
	trios map[string]*trio
}

func (s *suite) serve(t testing.TB, env []string, db string, args []string) *server {
	t.Helper()
	s.mu.Lock()
	c := s.trios[db]
	s.mu.Unlock()
	if c == nil {
		c = s.found(t, env, db, args)
	}
	n := c.nodes[slices.IndexFunc(c.nodes, func(n *clusterNode) bool { return n.name == s.node })]
	n.serve("127.0.0.1:0", env, args)
	n.server.url = n.server.await(n.server.stderr, `url"?[=:]"?(http://[^\s"]+)`)[1]
	n.ready()
	return n.server
}

// found founds a cluster on a database, which may be missing, and starts the other nodes.
func (s *suite) found(t testing.TB, env []string, db string, args []string) *trio {
	t.Helper()
	c := &trio{t: t.(*testing.T), dir: scratch.Dir(t)}
	var members []string
	for _, name := range []string{"n1", "n2", "n3"} {
		n := c.machine(name)
		c.nodes = append(c.nodes, n)
		members = append(members, name+"="+scratch.Addr(c.t))
		if name == s.node {
			n.db = db
		}
	}
	first := c.nodes[0]
	if first.db != db {
		parts, _ := filepath.Glob(db + "*")
		for _, path := range parts {
			mustCopy(t, path, first.db+strings.TrimPrefix(path, db))
			os.Remove(path)
		}
	}
	mustRelay(t, append([]string{"cluster", "init", "--cluster", first.file(), "--db", first.db}, members...)...)
	c.handOut(first)
	s.mu.Lock()
	s.trios[db] = c
	s.mu.Unlock()
	shared := isAddress.ReplaceAllString(strings.Join(args, "\n")+"\n", "")
	for _, n := range c.nodes {
		if n.name != s.node {
			n.serve(n.addr, env, strings.Fields(shared))
		}
	}
	return c
}

// isAddress matches a flag that gives an address, which two nodes of a machine cannot share.
var isAddress = regexp.MustCompile(`(?m)^--[a-z-]+[=\n][a-z0-9.]*:[0-9]+\n`)

// serve starts a node with flags of its own.
func (n *clusterNode) serve(addr string, env, args []string) {
	n.trio.t.Helper()
	n.server = launch(n.trio.t, exec.Command(binary, append([]string{"serve", "--addr", addr, "--db", n.db, "--cluster", n.file(), "--node", n.name}, args...)...), env)
	n.server.db, n.server.url = n.db, "http://"+n.addr
}

// suiteTests matches the tests of one server that a node must pass as well: what clients, agents and
// operators do.
const suiteTests = `^Test(A2A|AMessageToACrew|ANewKey|ARemovedMecha|ARevokedKey|ASession|AWorker|Ask|Claims|ClientsOf|CommandsSign|InboxAck|Keys|Listen|MCP|Message|` +
	`OnlyTheSigningSecret|Rotation|Search|Send|Signatures|Stats|Tail|TheBell|TheGoClients|TheRecipes|Trace|Two(Workers|Terminals)|WhenAKey|Why|Workers)`

// otherInACluster are those of these tests that a node does not pass, and why.
var otherInACluster = map[string]string{
	"TestListenHandlesAgainWhatTheRelayHasLost": "it restores a backup, which is not for a cluster",
	"TestMCPSurvivesARestart":                   "it starts the server again by itself, without --cluster",
	"TestMCPStartsBeforeItsRelay":               "it starts the server by itself, without --cluster",
	"TestA2AWithoutItsRelay":                    "it starts the server by itself, without --cluster",
	"TestA2ASurvivesKills":                      "it starts the server again by itself, without --cluster",
}

// Each node of a cluster passes the tests that are written for one server.
func TestClusterPassesTheTestsOfOneServer(t *testing.T) {
	notQuick(t)
	for name, why := range otherInACluster {
		t.Logf("left out: %s: %s", name, why)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"n1", "n2", "n3"} {
		t.Run(node, func(t *testing.T) {
			skip := "^(" + strings.Join(slices.Collect(maps.Keys(otherInACluster)), "|") + ")$"
			c := exec.Command(self, "-node", node, "-test.v", "-test.timeout", "30m", "-test.parallel", "4", "-test.run", suiteTests, "-test.skip", skip)
			c.Env = environ()
			out, err := c.CombinedOutput()
			if passed := strings.Count(string(out), "\n--- PASS: "); err != nil || passed < 70 {
				t.Errorf("%d tests passed: %v\n%s", passed, err, out)
			} else {
				t.Logf("%d tests passed", passed)
			}
		})
	}
}
