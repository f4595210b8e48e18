//go:build cluster && !windows

package cmd_test

import (
	"strings"
	"testing"
)

// The machines of a cluster get a new program one after the other, under load. Nothing is lost.
// The rules that only the new program knows are in force once all have it, and not before. Who
// starts the old program then is told to start the new one.
func TestClusterIsUpdatedOneNodeAfterTheOther(t *testing.T) {
	notQuick(t)
	next := buildChanged(t, []change{{"../db/replication/rules.go", "const newestRules = 1\n", "const newestRules = 2\n"}}, "-ldflags", "-X relay/cmd/internal/cli.version=99.0.0")
	c := newTrio(t)
	l := c.load(c.nodes[0].issue(trioAddresses(clusterSenders)...))
	l.calm(200)
	var silences []string
	for i, n := range c.nodes {
		n.stop()
		silences = append(silences, l.calm(200).String())
		if i == 2 {
			c.nodes[0].until("the last one is missed", func() bool { return !c.nodes[0].status().Members[2].Live })
			l.calm(200)
			for _, m := range c.nodes[0].status().Members {
				if m.Rules > 1 {
					t.Errorf("%s has the rules %d in force before all nodes know them", m.Name, m.Rules)
				}
			}
		}
		n.program = next
		n.launch()
		n.ready()
		silences = append(silences, l.calm(200).String())
	}
	c.nodes[0].until("the new rules are in force at all nodes", func() bool {
		active := 0
		for _, m := range c.nodes[0].status().Members {
			if m.Rules == 2 && m.Knows == 2 && m.Version == "99.0.0" {
				active++
			}
		}
		return active == 3
	})
	l.calm(200)
	old := c.nodes[1]
	old.stop()
	l.calm(50)
	old.program = ""
	old.launch()
	if code := old.server.wait(); code != 1 || !strings.Contains(old.server.stderr.String(), "that a newer relay has applied by other rules") {
		t.Errorf("the old program has ended with %d:\n%s", code, old.server.stderr)
	}
	old.program = next
	old.launch()
	old.ready()
	l.end()
	l.verify()
	t.Logf("%d messages, %d attempts that had no 201; %d equal rows; the longest times without any 201, as each node stopped and started: %s",
		l.acked.Load(), l.retries.Load(), c.compare(), strings.Join(silences, " "))
}

// A node that was away while newer rules came into force stops where they did, with a sentence and
// the code 75, if it comes back with the old program.
func TestClusterStopsAnOldProgramThatComesBackLate(t *testing.T) {
	notQuick(t)
	// The rules come into force although a node is away: as if it had gone, with a new program, just
	// before it applied them.
	next := buildChanged(t, []change{{"../db/replication/rules.go", "const newestRules = 1\n", "const newestRules = 2\n"},
		{"../db/cluster/rules.go", "!p.last.Sure {\n\t\t\treturn 0", "!p.last.Sure {\n\t\t\tcontinue"}})
	c := newTrio(t)
	alice := c.nodes[0].issue("alice^trio")[0]
	c.nodes[0].server.send(alice, alice.Address, `{}`)
	c.level()
	for _, n := range c.nodes {
		n.stop()
	}
	for _, n := range c.nodes[:2] {
		n.program = next
		n.launch()
	}
	c.nodes[0].ready()
	c.nodes[0].until("the new rules are in force", func() bool { return c.nodes[0].status().Members[0].Rules == 2 })
	old := c.nodes[2]
	old.launch()
	if code := old.server.wait(); code != 75 || !strings.Contains(old.server.stderr.String(), "start this node with a newer relay") {
		t.Errorf("the old program has ended with %d:\n%s", code, old.server.stderr)
	}
	old.program = next
	old.launch()
	old.ready()
	c.nodes[1].server.send(alice, alice.Address, `{}`)
	c.compare()
}
