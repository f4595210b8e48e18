package replication

import (
	"testing"
	"time"

	"relay/db/relay"
)

// A nonce counts for as long as a request could be replayed, even if the log's clock has
// jumped ahead by five minutes. It is forgotten one part of time later.
func TestReplicasForgetNoNonceAfterASmallJump(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute / time.Millisecond)
	for _, at := range []int64{0, 1, 3 * minute, 5*minute - 1, 5 * minute} {
		s := spentNonces{}
		s.add(at, []relay.NonceHash{7})
		still := at + 2*relay.MaxClockSkew.Milliseconds() + 5*minute
		s.forget(still)
		if !s.has(7, still) {
			t.Errorf("a nonce of the time %d is forgotten after 35 minutes", at)
		}
		if gone := still + 5*minute; s.has(7, gone) {
			t.Errorf("a nonce of the time %d still counts after 40 minutes", at)
		} else if s.forget(gone); len(s) > 0 {
			t.Errorf("a nonce of the time %d still takes memory after 40 minutes", at)
		}
	}
}
