//go:build cluster && !windows

package cmd_test

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Workers that share a Mecha over different nodes never get the same message. Expiry and lease ends are decided once, and the same at all nodes.
func TestClusterDecidesClaimsAndTimesOnce(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	all := c.nodes[0].issue("boss^trio", "crew^trio", "late^trio")
	boss, crew, late := all[0], all[1], all[2]
	const messages = 60
	for i := range messages {
		c.nodes[i%3].server.send(boss, crew.Address, fmt.Sprintf(`{"n":%d}`, i))
	}
	var mu sync.Mutex
	claimed := map[string]int{}
	var workers sync.WaitGroup
	for i := range 9 {
		n := c.nodes[i%3]
		workers.Go(func() {
			for {
				page := parse[struct{ Messages []record }](t, n.server.ask(crew, "POST", "/api/v1/mecha/"+crew.Address+"/claim", `{"limit":4,"lease_seconds":600}`).want(t, 200))
				if len(page.Messages) == 0 {
					return
				}
				mu.Lock()
				for _, m := range page.Messages {
					claimed[m.MessageID]++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	for id, times := range claimed {
		if times != 1 {
			t.Errorf("%s was claimed %d times", id, times)
		}
	}
	if len(claimed) != messages {
		t.Errorf("%d of %d messages were claimed", len(claimed), messages)
	}
	// A worker that waits for work gets it.
	waits := make(chan answer)
	go func() {
		waits <- c.nodes[0].server.ask(crew, "POST", "/api/v1/mecha/"+crew.Address+"/claim", `{"wait":60}`)
	}()
	c.nodes[0].until("the worker waits", func() bool {
		return parse[struct{ Online bool }](t, c.nodes[0].server.ask(boss, "GET", "/api/v1/mecha/"+crew.Address+"/profile", "").want(t, 200)).Online
	})
	sent := c.nodes[1].server.send(boss, crew.Address, `{}`).MessageID
	got := parse[struct{ Messages []record }](t, (<-waits).want(t, 200)).Messages
	if len(got) != 1 || got[0].MessageID != sent {
		t.Errorf("the worker got %+v, want %s", got, sent)
	}
	body := fmt.Sprintf(`{"to":%q,"payload":{},"ttl_seconds":2,"ack_by_seconds":1}`, late.Address)
	id := parse[record](t, c.nodes[1].server.ask(boss, "POST", "/api/v1/messages", body).want(t, 201)).MessageID
	for _, n := range c.nodes {
		n.until("the message has expired, in its file too", func() bool {
			d := open(t, n.db)
			defer d.Close()
			expired := 0
			if err := d.QueryRow("SELECT count(*) FROM message WHERE state = 3").Scan(&expired); err != nil {
				t.Fatal(err)
			}
			m := parse[record](t, n.server.ask(boss, "GET", "/api/v1/messages/"+id, "").want(t, 200))
			return m.State == "expired" && expired == 1
		})
	}
	c.compare()
}

// until waits until a condition holds.
func (n *clusterNode) until(what string, holds func() bool) {
	n.trio.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			n.trio.t.Fatalf("%s: never was it so that %s", n.name, what)
		}
	}
}

// whole waits until three members have a current copy of the log. Until then the loss of one of
// two that have it stops all writes.
func (n *clusterNode) whole() {
	n.until("three have a current copy of the log", func() bool {
		holders := 0
		for _, m := range n.status().Members {
			if m.Holds {
				holders++
			}
		}
		return holders == 3
	})
}

// A node that has lost its database, but not its part of the log, gets a copy of another
// one's.
func TestClusterNodeGetsACopyOfADatabase(t *testing.T) {
	t.Parallel()
	c := newTrio(t)
	alice := c.nodes[0].issue("alice^trio")[0]
	n := c.nodes[2]
	n.stop()
	c.nodes[0].server.send(alice, alice.Address, `{}`)
	if err := os.Remove(n.db); err != nil {
		t.Fatal(err)
	}
	c.start()
	if got := n.server.history(alice, "direction=in"); len(got) != 1 {
		t.Errorf("%d messages", len(got))
	}
	n.server.send(alice, alice.Address, `{}`)
	c.compare()
}
