//go:build cluster

package cmd_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"relay/db/scratch"
)

// A network is two networks of this machine, and a network namespace for each node, as if it was a machine
// of its own: the nodes speak to each other over one network, and clients, as the test, to them over
// the other. Nothing else is connected to them.
type network struct {
	t *testing.T
}

// The addresses of the networks begin so. Node n1 has the address that ends with 1.
const (
	nodeNetwork   = "10.213.77."
	clientNetwork = "10.213.78."
)

// ip runs the command ip.
func (w *network) ip(args ...string) {
	w.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		w.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (w *network) name(what any) string { return fmt.Sprintf("rt%d%v", os.Getpid()%100_000, what) }

// newNetwork makes the networks. It skips the test where that is not allowed.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if out, err := exec.Command("ip", "netns", "add", fmt.Sprintf("rt%dtry", os.Getpid()%100_000)).CombinedOutput(); err != nil {
		t.Skipf("this machine makes no network namespaces: %v: %s", err, out)
	}
	exec.Command("ip", "netns", "del", fmt.Sprintf("rt%dtry", os.Getpid()%100_000)).Run()
	w := &network{t: t}
	for bridge, address := range map[string]string{w.name("n"): "", w.name("c"): clientNetwork + "254/24"} {
		t.Cleanup(func() { exec.Command("ip", "link", "del", bridge).Run() })
		w.ip("link", "add", bridge, "type", "bridge")
		w.ip("link", "set", "dev", bridge, "up")
		if address != "" {
			w.ip("address", "add", address, "dev", bridge)
		}
	}
	return w
}

// add makes the namespace of node number i, from 1.
func (w *network) add(i int) (ns string) {
	w.t.Helper()
	ns = w.name(i)
	w.t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
	w.ip("netns", "add", ns)
	w.ip("-n", ns, "link", "set", "dev", "lo", "up")
	for side, network := range map[string]string{"n": nodeNetwork, "c": clientNetwork} {
		outside := w.name(fmt.Sprint(side, i))
		w.ip("link", "add", outside, "type", "veth", "peer", "name", side, "netns", ns)
		w.ip("link", "set", "dev", outside, "master", w.name(side), "up")
		w.ip("-n", ns, "address", "add", fmt.Sprint(network, i, "/24"), "dev", side)
		w.ip("-n", ns, "link", "set", "dev", side, "up")
	}
	return ns
}

// newTrioOn founds a cluster whose nodes are on networks of their own, and starts it. program is
// what they run; "": that of the tests.
func newTrioOn(t *testing.T, program string) (*trio, *network) {
	t.Helper()
	w := newNetwork(t)
	c := &trio{t: t, dir: scratch.Dir(t)}
	var members []string
	for i := range 3 {
		n := c.machine(fmt.Sprint("n", i+1))
		n.wrap = []string{"ip", "netns", "exec", w.add(i + 1)}
		n.program = program
		n.addr = fmt.Sprint(clientNetwork, i+1, ":8080")
		members = append(members, fmt.Sprintf("%s=%s%d:8090", n.name, nodeNetwork, i+1))
		c.nodes = append(c.nodes, n)
	}
	first := c.nodes[0]
	mustRelay(t, append([]string{"cluster", "init", "--cluster", first.file(), "--db", first.db}, members...)...)
	c.handOut(first)
	c.start()
	return c, w
}

// number is which node it is, from 1.
func (n *clusterNode) number() int { return int(n.name[1] - '0') }

// silence takes a node off the network of the nodes. Packets from it and to it are lost, and no
// side learns of it.
func (w *network) silence(n *clusterNode) (mend func()) {
	port := w.name(fmt.Sprint("n", n.number()))
	w.ip("link", "set", "dev", port, "nomaster")
	return func() { w.ip("link", "set", "dev", port, "master", w.name("n")) }
}

// mute loses what a node sends to others, and not what they send to it.
func (w *network) mute(n *clusterNode, to ...*clusterNode) (mend func()) {
	ns := w.name(n.number())
	for _, other := range to {
		w.ip("-n", ns, "neighbour", "replace", fmt.Sprint(nodeNetwork, other.number()), "lladdr", "02:00:00:00:00:fe", "dev", "n", "nud", "permanent")
	}
	return func() {
		for _, other := range to {
			w.ip("-n", ns, "neighbour", "del", fmt.Sprint(nodeNetwork, other.number()), "dev", "n")
		}
	}
}

// cutFor is how long a partition lasts: longer than a connection without an answer, an election,
// and the wait of a write.
const cutFor = 15 * time.Second

// Whichever way a network of nodes breaks, nothing that was answered is lost, doubled or moved, and
// when it is mended all nodes have the same rows.
func TestClusterPartitionedUnderLoadItLosesAndDoublesNothing(t *testing.T) {
	notQuick(t)
	c, w := newTrioOn(t, "")
	l := c.load(c.nodes[0].issue(trioAddresses(clusterSenders)...))
	l.calm(200)
	breaks := []struct {
		what string
		cut  func() (off *clusterNode, mend func()) // off has no lease any more; nil: all have one
	}{
		{"a follower is cut off", func() (*clusterNode, func()) { n := c.follower(); return n, w.silence(n) }},
		{"the leader is cut off", func() (*clusterNode, func()) { n := c.leader(); return n, w.silence(n) }},
		{"what a follower sends is lost", func() (*clusterNode, func()) { n := c.follower(); return n, w.mute(n, n.others()...) }},
		{"what the leader sends is lost", func() (*clusterNode, func()) { n := c.leader(); return n, w.mute(n, n.others()...) }},
		{"the leader and a follower do not hear each other", func() (*clusterNode, func()) {
			leader, follower := c.leader(), c.follower()
			one, two := w.mute(leader, follower), w.mute(follower, leader)
			return nil, func() { one(); two() }
		}},
	}
	for round := range 2 {
		for _, b := range breaks {
			c.leader().whole()
			l.calm(1)
			began := time.Now()
			off, mend := b.cut()
			silence := l.calm(200)
			if off != nil {
				off.until("it answers no reads", func() bool { return !off.status().Fresh })
			}
			time.Sleep(time.Until(began.Add(cutFor))) // the partition itself
			silence = max(silence, l.calm(1))
			mend()
			for _, n := range c.nodes {
				n.ready()
			}
			after := l.calm(200)
			t.Logf("%d, %s: the longest time without any 201 was %.2f s, and %.2f s once it was mended", round+1, b.what, silence.Seconds(), after.Seconds())
		}
	}
	l.end()
	l.verify()
	t.Logf("%d messages, %d attempts that had no 201; %d equal rows", l.acked.Load(), l.retries.Load(), c.compare())
}
