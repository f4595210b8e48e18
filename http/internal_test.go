package http

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"relay/db/relay"
)

// Whose failures a request would count against, seen from inside: a test on
// one machine has no peers but loopback.
func TestTheClientsAddress(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:aaaa::/48"), netip.MustParsePrefix("127.0.0.1/32")}
	for _, row := range []struct {
		peer    string
		forward []string
		want    string
	}{
		// The header of an untrusted peer is ignored.
		{"192.0.2.7:1234", nil, "192.0.2.7/32"},
		{"192.0.2.7:1234", []string{"198.51.100.1"}, "192.0.2.7/32"},
		{"11.0.0.1:1234", []string{"198.51.100.1"}, "11.0.0.1/32"},
		{"[2001:db8:bbbb::1]:1", []string{"198.51.100.1"}, "2001:db8:bbbb::/64"},
		// A proxy's header is read.
		{"10.0.0.1:1234", nil, "10.0.0.1/32"},
		{"10.0.0.1:1234", []string{"198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1234", []string{" 198.51.100.1 "}, "198.51.100.1/32"},
		{"10.0.0.1:1234", []string{"198.51.100.1:5555"}, "198.51.100.1/32"},
		{"[::ffff:10.0.0.1]:1234", []string{"198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1234", []string{"::ffff:198.51.100.1"}, "198.51.100.1/32"},
		{"[2001:db8:aaaa::1]:1", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"},
		{"[2001:db8:aaaa::1%eth0]:1", []string{"2001:db8:1:2:3:4:5:6"}, "2001:db8:1:2::/64"},
		{"10.0.0.1:1", []string{"[2001:db8:1:2::3]:443"}, "2001:db8:1:2::/64"},
		{"10.0.0.1:1", []string{"[2001:db8:1:2::3]"}, "2001:db8:1:2::/64"},
		// The client's own part is to the left of what a proxy appended.
		{"10.0.0.1:1", []string{"203.0.113.9, 198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"203.0.113.9", "198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"10.0.0.2, 10.0.0.3, 198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"garbage, , ;;, 198.51.100.1"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"garbage", "198.51.100.1"}, "198.51.100.1/32"},
		// Proxies in a row.
		{"10.0.0.1:1", []string{"203.0.113.9, 198.51.100.1, 10.0.0.2"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"203.0.113.9", "198.51.100.1, 10.0.0.2", "2001:db8:aaaa::9"}, "198.51.100.1/32"},
		{"10.0.0.1:1", []string{"10.0.0.3, 10.0.0.2"}, "10.0.0.3/32"}, // a client on the proxies' network
		// Malformed where it matters: the peer.
		{"10.0.0.1:1", []string{""}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100.1, "}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100.1", ""}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"unknown"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100.1, unknown, 10.0.0.2"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100.1:port"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100.001"}, "10.0.0.1/32"}, // octal to some
		{"10.0.0.1:1", []string{"fe80::1%eth0"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"[2001:db8::1"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"[]"}, "10.0.0.1/32"},
		{"10.0.0.1:1", []string{"198.51.100.1 203.0.113.9"}, "10.0.0.1/32"},
		{"@", []string{"198.51.100.1"}, "invalid Prefix"},
	} {
		s := &Server{config: Config{TrustedProxies: trusted}}
		r := &http.Request{RemoteAddr: row.peer, Header: http.Header{"X-Forwarded-For": row.forward, "Forwarded": {"for=203.0.113.200"}, "X-Real-Ip": {"203.0.113.201"}}}
		if got := customer(s.client(r)).String(); got != row.want {
			t.Errorf("%s, X-Forwarded-For %q: %s, want %s", row.peer, row.forward, got, row.want)
		}
	}
}

// A flood of addresses takes bounded memory, and does not wash away the limit
// of the one that continues.
func TestLimitersHaveABound(t *testing.T) {
	t.Parallel()
	l, now := newLimiters[netip.Prefix](1, 2), time.Unix(1e9, 0)
	busy := netip.MustParsePrefix("192.0.2.1/32")
	l.allow(busy, now)
	l.allow(busy, now)
	for i := range 4 * maxLimiters {
		a := netip.AddrFrom16([16]byte{0x20, 1, 2: byte(i >> 24), 3: byte(i >> 16), 4: byte(i >> 8), 5: byte(i)})
		if !l.allow(customer(a), now) {
			t.Fatalf("%s is limited by others", a)
		}
		if i%1000 == 0 && l.allow(busy, now) {
			t.Fatalf("after %d others the limit has begun anew", i)
		}
	}
	if n := l.buckets.Size(); n > maxLimiters {
		t.Errorf("%d are remembered, the bound is %d", n, maxLimiters)
	}
}

func TestMemoryIsShared(t *testing.T) {
	const mib = 1 << 20
	m := &memory{limit: 8 * mib, share: mib}
	code := func(owner relay.MechaNumber, n int64) relay.Code { return relay.ErrorCode(m.take(owner, n)) }
	want := func(what string, got, want relay.Code) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	want("a Mecha's first is never over its share", code(1, 2*mib), "")
	want("its second is", code(1, mib), relay.RateLimited)
	want("small ones do not count", code(1, smallEnough), "")
	for other := range relay.MechaNumber(6) {
		want(fmt.Sprint("another Mecha ", other), code(10+other, mib), "")
	}
	want("all is used", code(20, mib), relay.Overloaded)
	want("small ones still pass", code(20, smallEnough), "")
	m.change(20, 0, 3*mib) // an answer that has to be given
	m.give(1, 2*mib)
	m.give(1, smallEnough)
	want("still all", code(1, mib), relay.Overloaded)
	m.give(20, 3*mib)
	want("there is room again", code(1, mib), "")
	m.give(1, mib)
	for other := range relay.MechaNumber(6) {
		m.give(10+other, mib)
	}
	if m.all.bytes != 0 || len(m.of) != 0 {
		t.Errorf("%d bytes are left, of %d Mechas", m.all.bytes, len(m.of))
	}
	want("the first request passes, however large", code(1, 100*mib), "")
}

// However the bytes of a request come, its Content-Length is seen, and not taken for
// one of the next request.
func TestFramingSeesALengthInAnyPieces(t *testing.T) {
	with := "POST / HTTP/1.1\r\nHost: x\r\n\n\r\nContent-LENGTH: 5\r\n\r\n"
	without := "POST / HTTP/1.1\r\nContent-Lengt: x\r\nX-Content-Length: 5\r\nContent\r\n-Length: 5\r\n\r\n"
	for i := range len(with) {
		for j := i; j < len(with); j++ {
			f := &framing{}
			for _, piece := range []string{with[:i], with[i:j], with[j:]} {
				f.note([]byte(piece), 4096)
			}
			if !f.mayHaveLength() {
				t.Fatalf("not seen: %q %q %q", with[:i], with[i:j], with[j:])
			}
		}
	}
	f := &framing{}
	for range 3 {
		for i := range len(without) {
			f.note([]byte(without[i:i+1]), 4096)
		}
		if f.mayHaveLength() {
			t.Fatal("seen where none is")
		}
		f.end()
	}
	f.note([]byte(with), 4096) // two requests, of which the second may be the one
	f.end()
	f.note([]byte("P"), 1) // its end was waited for
	if !f.mayHaveLength() {
		t.Error("one that was read ahead is forgotten")
	}
	f.note([]byte(without), 4096)
	f.end()
	f.note([]byte(without), 4096)
	if f.mayHaveLength() {
		t.Error("one of a request before is remembered")
	}
}
