//go:build cluster

package cluster

import "testing"

// Three nodes found a log, and take messages at each. All have the same rows.
func TestThreeNodes(t *testing.T) {
	all := clusterOf(t, "n1", "n2", "n3")
	startAll(all...)
	k := all[0].issue("bob^demo")
	for i := range 30 {
		all[i%3].mustSend(k, "hello")
	}
	waitLevel(all...)
}
