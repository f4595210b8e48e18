//go:build cluster && !windows

package cmd_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"relay/db/scratch"
)

// rateRow is a figure of relay bench --json.
type rateRow struct {
	Case      string
	At        int
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// How many messages a second a cluster takes, at its leader and at another node, next to one
// node that has no log, in turn. All processors carry all nodes and the clients.
func TestClusterRatesBesideOneNode(t *testing.T) {
	notQuick(t)
	c := newTrio(t)
	db := filepath.Join(scratch.Dir(t), "one.db")
	addr := scratch.Addr(t)
	one := launch(t, exec.Command(binary, "serve", "--addr", addr, "--db", db, "--rate-limit", "0", "--auth-failure-limit", "0", "--max-pending", "0"), nil)
	one.url = "http://" + addr
	mustRelay(t, "readyz", "--url", one.url, "--wait", patience.String())
	leader := c.leader()
	sides := []struct{ what, url, db string }{
		{"one node", one.url, db}, {"the leader of three", leader.server.url, leader.db}, {"a follower of three", leader.others()[0].server.url, leader.others()[0].db},
	}
	figures := map[string][]rateRow{}
	for range 3 {
		for _, s := range sides {
			out := mustRelay(t, "bench", "--url", s.url, "--db", s.db, "--only", "send", "--connections", "1,64,256", "--mechas", "100", "--duration", "2s", "--repeats", "1", "--json")
			var r struct{ Rows []rateRow }
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatal(err)
			}
			for _, row := range r.Rows {
				if row.PerSecond == 0 {
					t.Errorf("%s took nothing from %d senders", s.what, row.At)
				}
				if row.Case == "bare" {
					key := fmt.Sprintf("%3d senders, %s", row.At, s.what)
					figures[key] = append(figures[key], row)
				}
			}
		}
	}
	if now := c.leader(); now != leader {
		t.Logf("the leader was %s, and is %s", leader.name, now.name)
	}
	for _, key := range slices.Sorted(maps.Keys(figures)) {
		var all []string
		for _, f := range figures[key] {
			all = append(all, fmt.Sprintf("%.0f/s (p50 %.2f ms, p99 %.1f ms)", f.PerSecond, f.P50/1000, f.P99/1000))
		}
		t.Logf("%s: %s", key, strings.Join(all, ", "))
	}
	c.compare()
}
