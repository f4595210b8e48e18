//go:build cluster && !windows

package cmd_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var soak = flag.Duration("soak", 0, "how long TestClusterSoak has a cluster at work; 0: it is skipped")

// killEvery is how often a soak kills a node.
const killEvery = 30 * time.Second

// A cluster at work, of which a node is killed every half a minute, in turn a follower and the
// leader, loses and doubles nothing, and does not grow without bound.
func TestClusterSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("-soak says how long")
	}
	c := newTrio(t)
	l := c.load(c.nodes[0].issue(trioAddresses(3)...))
	l.calm(200)
	kills := 0
	longest := map[string]time.Duration{}
	var memory []string
	for end := time.Now().Add(*soak); time.Now().Before(end); kills++ {
		next := time.Now().Add(killEvery)
		c.leader().whole()
		what, victim := "follower", c.follower
		if kills%2 == 1 {
			what, victim = "leader", c.leader
		}
		l.calm(1)
		victim().kill()
		longest[what] = max(longest[what], l.calm(200))
		c.start()
		time.Sleep(time.Until(next)) // the soak itself
		if kills%20 == 0 {
			memory = append(memory, fmt.Sprint(c.nodes[0].resident()>>20))
		}
	}
	l.end()
	l.verify()
	t.Logf("%v: %d kills, %d messages, %d attempts that had no 201; the longest time without any 201: %v; MiB of n1 in memory, every 20 kills: %s",
		*soak, kills, l.acked.Load(), l.retries.Load(), longest, strings.Join(memory, " "))
	t.Logf("%d equal rows", c.compare())
}

// resident returns the bytes that a node has in memory; 0 where the system does not tell.
func (n *clusterNode) resident() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", n.server.cmd.Process.Pid))
	var size, resident int64
	fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize())
}
