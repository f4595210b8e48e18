package http_test

import (
	"fmt"
	"net/netip"
	"testing"

	"relay/db/relay"
)

// Behind a proxy, failures count against the client that the proxy names; a
// client that names others itself changes nothing.
func TestFailuresBehindAProxy(t *testing.T) {
	t.Parallel()
	for _, trusts := range []bool{true, false} {
		r := mustServe(t, func(s *settings) {
			s.api.FailureLimit, s.api.FailureBurst = 0.001, 3
			if trusts {
				s.api.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
			}
		})
		alice := r.mustIssue("alice^demo")
		from := func(hops ...string) change { return all(with("X-Mecha-Key"), with("X-Forwarded-For", hops...)) }
		for i := range 6 {
			alice.get(whoami, from(fmt.Sprintf("203.0.113.%d, 198.51.100.1", i))) // another name each time
		}
		alice.get(whoami, from("198.51.100.1")).wantProblem(429, relay.TooManyFailures)
		alice.get(whoami, with("X-Forwarded-For", "198.51.100.1")).want(200) // it locks out nobody
		alice.get(whoami).want(200)
		if trusts {
			alice.get(whoami, from("203.0.113.1")).wantProblem(401, relay.MissingHeader)
			alice.get(whoami, from("2001:db8::1")).wantProblem(401, relay.MissingHeader)
			for i := range 6 { // one customer's network
				alice.get(whoami, from(fmt.Sprintf("2001:db8::%d", i)))
			}
			alice.get(whoami, from("2001:db8::ffff:1")).wantProblem(429, relay.TooManyFailures)
			alice.get(whoami, from("2001:db8:0:1::1")).wantProblem(401, relay.MissingHeader)
		} else {
			alice.get(whoami, from("203.0.113.1")).wantProblem(429, relay.TooManyFailures)
		}
	}
}
