//go:build cluster

package cluster

import (
	"errors"
	"time"

	"relay/db/file"
)

// When a write to its files fails, the NATS server stops its part of the log and never resumes it:
// the node then no longer counts for a majority. It must be restarted, which helps only once the
// disk has room. A node that cannot start is not better than one that waits for room.
const (
	logLookEvery = time.Second
	roomForLog   = 32 << 20 // bytes free; a few files of the log
)

var errLogGivenUp = errors.New("a write to the log of the cluster failed on this node, mostly because its disk was " +
	"full: it must be started again, to take part in the log again")

// watchLog has the process end when the NATS server has stopped its part of the log.
func (n *Node) watchLog() {
	for said := false; pause(n.ctx, logLookEvery); {
		if n.nats.JetStreamEnabled() {
			continue
		}
		if n.ctx.Err() != nil {
			return // Close ends the NATS server
		}
		if !said {
			said = true
			n.log.Error("a write to the log of the cluster failed: this node has no part of the log until it is started again",
				"dir", n.c.Dir, "bytes_needed", roomForLog)
		}
		if free, err := file.FreeDisk(n.c.Dir); err != nil || free >= roomForLog {
			n.fail(errLogGivenUp)
			return
		}
	}
}
