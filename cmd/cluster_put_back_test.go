//go:build cluster && !windows

package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/db/scratch"
)

// takeImage copies the folder of a stopped machine, as a snapshot of its disk does.
func (n *clusterNode) takeImage(name string) (path string) {
	n.trio.t.Helper()
	path = filepath.Join(n.trio.dir, n.name+"."+name)
	if err := os.CopyFS(path, os.DirFS(n.folder)); err != nil {
		n.trio.t.Fatal(err)
	}
	return path
}

// putBack puts parts of a stopped machine's folder back to an image: the database, its log, or
// both.
func (n *clusterNode) putBack(image string, database, log bool) {
	n.trio.t.Helper()
	names, err := filepath.Glob(n.db + "*")
	if err != nil {
		n.trio.t.Fatal(err)
	}
	for _, path := range names {
		if isLog := path == n.db+".cluster"; isLog && log || !isLog && database {
			os.RemoveAll(path)
		}
	}
	entries, err := os.ReadDir(image)
	if err != nil {
		n.trio.t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(n.folder, e.Name())
		switch {
		case e.Name() == "relay.db.cluster" && log:
			err = os.CopyFS(path, os.DirFS(filepath.Join(image, e.Name())))
		case !e.IsDir() && strings.HasPrefix(e.Name(), "relay.db") && database:
			mustCopy(n.trio.t, filepath.Join(image, e.Name()), path)
		}
		if err != nil {
			n.trio.t.Fatal(err)
		}
	}
}

// wantPutBack waits until a node that was launched has ended, as one whose disk was put back.
func (n *clusterNode) wantPutBack() {
	n.trio.t.Helper()
	if code := n.server.wait(); code != 75 || !strings.Contains(n.server.stderr.String(), "the disk of this node was put back to an older state") {
		n.trio.t.Errorf("%s has ended with %d:\n%s", n.name, code, n.server.stderr)
	}
	n.server = nil
}

// While the cluster is at work, a machine is put back to an older state: it is refused, whether the
// database is put back too, and the others continue. With its last log and an old database it comes
// back. A machine that is killed again and again is not refused.
func TestClusterRefusesADiskThatWasPutBack(t *testing.T) {
	c := newTrio(t)
	l := c.load(c.nodes[0].issue(trioAddresses(2)...))
	l.calm(50)
	n := c.nodes[1]
	n.stop()
	old := n.takeImage("old")
	n.launch()
	n.ready()
	l.calm(50)
	n.stop()
	last := n.takeImage("last")
	for _, database := range []bool{false, true} {
		n.putBack(old, database, true)
		n.launch()
		n.wantPutBack()
		l.calm(20)
	}
	n.putBack(last, false, true)
	n.launch()
	n.ready()
	kills := 1
	if scratch.Long(t) {
		kills = 20
	}
	for range kills {
		l.calm(20)
		n.kill()
		n.launch()
		n.ready()
	}
	l.calm(50)
	l.end()
	l.verify()
	t.Logf("%d messages; %d equal rows", l.acked.Load(), c.compare())
}

// When the disks of two machines were put back, both are refused. The third one has all that was
// acknowledged, and a new cluster begins with its database.
func TestClusterRecoversFromTwoDisksThatWerePutBack(t *testing.T) {
	notQuick(t)
	c := newTrio(t)
	alice := c.nodes[0].issue("alice^trio")[0]
	first := c.nodes[0].server.send(alice, "alice^trio", `{"n":1}`)
	c.level()
	two, third := c.nodes[:2], c.nodes[2]
	var images []string
	for _, n := range two {
		n.stop()
		images = append(images, n.takeImage("old"))
	}
	c.start()
	second := c.nodes[0].server.send(alice, "alice^trio", `{"n":2}`)
	c.level()
	for i, n := range two {
		n.stop()
		n.putBack(images[i], true, true)
	}
	for _, n := range two {
		n.launch()
	}
	for _, n := range two {
		n.wantPutBack()
	}
	if ans := third.askOnce(alice, "POST", "/api/v1/messages", `{"to":"alice^trio","payload":{}}`); ans.status != 503 {
		t.Errorf("the third one answered %d %s", ans.status, ans.body)
	}
	third.stop()
	mustRelay(t, "cluster", "recover", "--cluster", third.file(), "--db", third.db)
	c.handOut(third)
	for _, n := range two {
		os.RemoveAll(n.db)
		os.RemoveAll(n.db + ".cluster")
	}
	c.start()
	next := c.nodes[0].server.send(alice, "alice^trio", `{"n":3}`)
	for _, n := range c.nodes {
		got := n.server.history(alice, "direction=in")
		if len(got) != 3 || got[0].MessageID != first.MessageID || got[1].MessageID != second.MessageID || got[2].MessageID != next.MessageID {
			t.Errorf("%s: %+v", n.name, got)
		}
	}
	c.compare()
}
