//go:build cluster && !windows

package cmd_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"relay/db/scratch"
)

// A machine that is lost, with its disk, is replaced by another one under a new name, while the
// cluster is at work. Under the old name it is refused.
func TestClusterReplacesALostMachine(t *testing.T) {
	c := newTrio(t)
	l := c.load(c.nodes[0].issue(trioAddresses(4)...))
	l.calm(100)
	lost := c.nodes[1]
	lost.kill()
	l.calm(50)
	for _, left := range []string{lost.db, lost.db + ".cluster"} {
		if err := os.RemoveAll(left); err != nil {
			t.Fatal(err)
		}
	}
	lost.launch()
	if code := lost.server.wait(); code != 1 || !strings.Contains(lost.server.stderr.String(), "under a new name") {
		t.Errorf("an emptied machine came back under its old name: exit %d\n%s", code, lost.server.stderr)
	}
	lost.server = nil
	l.calm(50)
	first := c.nodes[0]
	added := c.machine("n4")
	mustRelay(t, "cluster", "add", "n4="+scratch.Addr(t), "--cluster", first.file())
	runRelay(t, "cluster", "add", "n4="+scratch.Addr(t), "--cluster", first.file()).wantCode(t, 1, "n4")
	c.nodes[1] = added
	c.tell(first)
	added.launch()
	added.ready()
	l.calm(100)
	mustRelay(t, "cluster", "remove", "n2", "--cluster", first.file())
	runRelay(t, "cluster", "remove", "n2", "--cluster", first.file()).wantCode(t, 1, "no member n2")
	runRelay(t, "cluster", "add", "n2="+scratch.Addr(t), "--cluster", first.file()).wantCode(t, 1, "n2")
	c.tell(first)
	first.whole()
	l.calm(200)
	l.end()
	l.verify()
	// The new member counts: with it, either of the others may be lost.
	c.nodes[2].kill()
	ans := first.server.ask(l.agents[0], "POST", "/api/v1/messages", `{"to":"m1^trio","payload":{}}`)
	for end := time.Now().Add(patience); ans.code() == "store_failed" && time.Now().Before(end); { // two elections take longer than the 30 s that an entry waits
		ans = first.server.ask(l.agents[0], "POST", "/api/v1/messages", `{"to":"m1^trio","payload":{}}`)
	}
	ans.want(t, 201)
	c.start()
	t.Logf("%d messages; %d equal rows", l.acked.Load(), c.compare())
}

// tell hands out the cluster file of a node, and has the nodes that run read it again.
func (c *trio) tell(from *clusterNode) {
	c.t.Helper()
	c.handOut(from)
	for _, n := range c.running() {
		before := strings.Count(n.server.stderr.String(), "the cluster file was reread")
		n.signal(syscall.SIGHUP)
		n.server.await(n.server.stderr, fmt.Sprintf("(?s)(the cluster file was reread.*){%d}", before+1))
	}
}

// A cluster whose log has lost entries stops. It continues with the database of one node, as a new
// cluster.
func TestClusterRecoversFromALogThatHasLostEntries(t *testing.T) {
	notQuick(t)
	c := newTrio(t)
	alice := c.nodes[0].issue("alice^trio")[0]
	sent := c.nodes[0].server.send(alice, "alice^trio", `{"n":1}`)
	c.level()
	for _, n := range c.nodes {
		n.stop()
		if err := os.RemoveAll(n.db + ".cluster"); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range c.nodes {
		n.launch()
	}
	ended := make(chan *clusterNode, len(c.nodes))
	for _, n := range c.nodes {
		go func() {
			<-n.server.exited
			ended <- n
		}()
	}
	select {
	case n := <-ended: // the others may then wait for a majority
		if code := n.server.wait(); code != 75 || !strings.Contains(n.server.stderr.String(), "has lost entries") {
			t.Errorf("%s has ended with %d:\n%s", n.name, code, n.server.stderr)
		}
	case <-time.After(patience):
		t.Fatal("no node stops")
	}
	for _, n := range c.nodes {
		n.kill()
	}
	base := c.nodes[1]
	mustRelay(t, "cluster", "recover", "--cluster", base.file(), "--db", base.db)
	c.handOut(base)
	for _, n := range c.nodes {
		if n != base {
			os.RemoveAll(n.db)
			os.RemoveAll(n.db + ".cluster")
		}
	}
	c.start()
	next := c.nodes[0].server.send(alice, "alice^trio", `{"n":2}`)
	for _, n := range c.nodes {
		got := n.server.history(alice, "direction=in")
		if len(got) != 2 || got[0].MessageID != sent.MessageID || got[1].MessageID != next.MessageID {
			t.Errorf("%s: %+v", n.name, got)
		}
	}
	c.compare()
}
