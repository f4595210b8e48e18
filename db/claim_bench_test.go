package db_test

import (
	"fmt"
	"testing"
	"time"

	"relay/db/relay"
)

// BenchmarkClaimAmongHeldMessages measures a claim, and the question whether one would find
// a message, for a Mecha with so many deferred messages. One message circulates: it is
// claimed, deferred and free again.
func BenchmarkClaimAmongHeldMessages(b *testing.B) {
	for _, n := range []int{0, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := mustOpen(b)
			from, to := s.mustIssue("from^bench"), s.mustIssue("to^bench")
			first := s.mustSend(from.Key, to.Mecha.Address, `{}`)
			s.fill(from, to, n)
			claim := func(at time.Time, limit int) []relay.ClaimedMessage {
				got, err := s.ClaimMessages(ctx, &relay.ClaimMessages{At: at, Key: to.Number, Limit: limit, Lease: time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				return got
			}
			for len(claim(time.Now(), 100)) > 0 {
			}
			again := func() { // ends the lease of the first message at once
				a := &relay.Acknowledge{At: time.Now().Add(-time.Minute), Key: to.Number, ID: first.ID, Status: relay.Deferred, RetryAfter: time.Second, ClientTS: "2026-11-20T08:00:00Z"}
				if _, err := s.Acknowledge(a); err != nil {
					b.Fatal(err)
				}
			}
			b.Run("claimable", func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Claimable(ctx, to.Mecha.Number); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("claim", func(b *testing.B) {
				for b.Loop() {
					again()
					for len(claim(time.Now(), 1)) == 0 {
					}
				}
			})
		})
	}
}
