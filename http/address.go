package http

import (
	"net/http"
	"net/netip"
	"strings"
)

// client is the address that a request came from: the peer's, or, if that is a
// trusted proxy, the last one in X-Forwarded-For that is none. A proxy appends
// the address it was called from, so what stands further left is the client's
// own word, and is not believed. If the header is missing or malformed where it
// matters, the peer stands for the client. The zero Addr: unknown.
//
// RFC 7239's Forwarded is not read: a proxy that maintains one of the two
// headers passes the other one on as the client wrote it.
func (s *Server) client(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	from := plain(peer.Addr())
	if !s.trusts(from) {
		return from
	}
	client := from
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			at := strings.LastIndexByte(rest, ',')
			hop, ok := parseHop(strings.TrimSpace(rest[at+1:]))
			if !ok {
				return from
			}
			if client = hop; !s.trusts(hop) {
				return client
			}
			if more = at >= 0; more {
				rest = rest[:at]
			}
		}
	}
	return client // all are ours: the one that was there first
}

func (s *Server) trusts(a netip.Addr) bool {
	for _, p := range s.config.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// parseHop reads an entry of X-Forwarded-For: an address, with or without a
// port; an IPv6 address with a port stands in brackets.
func parseHop(s string) (netip.Addr, bool) {
	if a, err := netip.ParseAddrPort(s); err == nil {
		return plain(a.Addr()), a.Addr().Zone() == ""
	}
	if inner, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(inner, "]") {
		s = strings.TrimSuffix(inner, "]")
	}
	a, err := netip.ParseAddr(s)
	return plain(a), err == nil && a.Zone() == ""
}

// plain gives an address one form: IPv4 as such, IPv6 without a zone, which no
// prefix contains.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// customer is whom an address stands for: of IPv6 the /64, which is what one
// customer gets at least.
func customer(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // of the zero Addr: the zero Prefix
	return p
}
