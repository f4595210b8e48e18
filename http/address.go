package http

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// client returns the address that a request came from. It is the peer's own. If
// the peer is a trusted proxy, it is the last address in X-Forwarded-For that is
// not a trusted proxy: a proxy appends the address that called it, so everything
// further left is the client's own word and is not believed. If the header is
// missing, or malformed before such an address is found, the peer counts as the
// client. The zero Addr means unknown.
//
// RFC 7239's Forwarded is not read: a proxy that maintains one of the two
// headers passes the other one on as the client wrote it.
func (s *Server) client(r *http.Request) netip.Addr {
	from := peerOf(r)
	if !from.IsValid() || !s.trusts(from) {
		return from
	}
	client := from
	hops := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
	for _, text := range slices.Backward(hops) {
		hop, ok := parseHop(strings.TrimSpace(text))
		if !ok {
			return from
		}
		if client = hop; !s.trusts(hop) {
			break
		}
	}
	return client // if all are trusted proxies, the leftmost
}

// peerOf returns the address at the other end of the connection; the zero Addr if it is
// unknown.
func peerOf(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return plain(peer.Addr())
}

func (s *Server) trusts(a netip.Addr) bool {
	for _, p := range s.config.TrustedProxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// parseHop reads an entry of X-Forwarded-For: an address with or without a port.
// An IPv6 address with a port has brackets, one without may have them.
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

// plain brings an address into the form that prefixes compare with: IPv4 is not
// mapped into IPv6, and IPv6 has no zone.
func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// customer returns the network that counts as one client: a single IPv4 address, and of IPv6 the /64, since
// every customer has at least that much.
func customer(a netip.Addr) netip.Prefix {
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits) // the zero Addr gives the zero Prefix
	return p
}
