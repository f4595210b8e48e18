package ws_test

import (
	"sync/atomic"
	"testing"

	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/ws"
)

// A node that cannot report whether keys still hold closes its sockets with 1013, ends its
// long-polls, and opens none.
func TestSocketsOfAStaleNode(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		var stale atomic.Bool
		r := mustServe(t, func(c *ws.Config) {
			c.CheckFresh = func() error {
				if stale.Load() {
					return relay.Errorf(relay.NotCurrent, "this node is cut off")
				}
				return nil
			}
		})
		alice := r.mustIssue("alice^test")
		c := r.mustUpgrade(alice, "")
		_, ended, stop, err := r.hub.Watch(alice.Key)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		stale.Store(true)
		if body := c.expectFrame(opClose); body != closeBody(1013, "not_current") {
			t.Errorf("close %q", body)
		}
		if err := <-ended; relay.ErrorCode(err) != relay.NotCurrent {
			t.Errorf("the long-poll has ended with %v", err)
		}
		r.expectRefused(alice, "", 503, relay.NotCurrent)
		if _, _, _, err := r.hub.Watch(alice.Key); relay.ErrorCode(err) != relay.NotCurrent {
			t.Errorf("another long-poll: %v", err)
		}
		stale.Store(false)
		r.mustUpgrade(alice, "")
	})
}
