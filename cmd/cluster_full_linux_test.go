//go:build cluster

package cmd_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// The disk of a node is full for a while. The others continue. The node ends when there is room again,
// since it has no part of the log before it is started again. Then it counts as before.
func TestClusterNodeWhoseDiskWasFull(t *testing.T) {
	c := foundTrio(t)
	n := c.nodes[1]
	n.folder = mountTmpfs(t, 96)
	n.db = filepath.Join(n.folder, "relay.db")
	n.args = []string{"--min-free-disk", "0"} // so that a write of the log meets the full disk
	c.handOut(c.nodes[0])
	c.start()
	l := c.load(c.nodes[0].issue(trioAddresses(4)...))
	l.calm(100)
	makeRoom := fill(t, n.folder, 0)
	n.server.await(n.server.stderr, "this node has no part of the log")
	l.calm(50)
	makeRoom()
	if code := n.server.wait(); code != 75 || !strings.Contains(n.server.stderr.String(), "it must be started again") {
		t.Errorf("%s has ended with %d:\n%s", n.name, code, n.server.stderr)
	}
	n.launch()
	n.ready()
	n.whole()
	c.nodes[2].kill() // it is not needed
	l.calm(50)
	c.start()
	l.end()
	l.verify()
	t.Logf("%d messages; %d equal rows", l.acked.Load(), c.compare())
}
