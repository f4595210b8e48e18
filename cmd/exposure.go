package cmd

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// warnIfOpen speaks up when keys would cross a network in the clear. addr is
// what was listened on, so that host names and wildcards are what they turned out to be.
func warnIfOpen(log *slog.Logger, s *settings, addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && tcp.IP.IsLoopback() || s.encrypted() || len(s.TrustedProxies) > 0 {
		return
	}
	log.Warn("KEYS AND MESSAGES CAN BE READ ON THE WAY: this address is not loopback, and the relay speaks plain HTTP on it. "+
		"Give it --tls-cert and --tls-key, or --acme; or put a TLS proxy before it and name that with --trusted-proxy; or listen on 127.0.0.1", "addr", addr)
}

func (s *settings) encrypted() bool { return s.TLSCert != "" || len(s.ACME) > 0 }

// warnOfFolder speaks up when other users could put another file in the database's place.
func warnOfFolder(log *slog.Logger, db string) {
	dir := filepath.Dir(db)
	info, err := os.Stat(dir)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		log.Warn("every user may replace files in the database's folder, and so the database: chmod o-w it", "folder", dir)
	}
}

// proxies reads --trusted-proxy: networks, or single addresses.
func (s *settings) proxies() (all []netip.Prefix, err error) {
	for _, text := range s.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if a, e := netip.ParseAddr(text); e == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, usagef("--trusted-proxy takes networks such as 10.0.0.0/8 or fd00::/8, and addresses; %q is neither", text)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Bits() == 0 {
			return nil, usagef("--trusted-proxy %s would believe everybody: name the proxies alone", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// connections is how many there may be: --max-connections, but never so many
// that the store would find no file left to open.
func (s *settings) connections() int {
	files, ok := openFiles()
	if !ok {
		return s.MaxConnections
	}
	room := max(files-max(files/8, 100), 16)
	if s.MaxConnections == 0 {
		return room
	}
	return min(s.MaxConnections, room)
}

// pairs refuses settings that make sense together only, or not together.
func (s *settings) pairs() error {
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return usagef("--tls-cert and --tls-key go together")
	case s.TLSCert != "" && len(s.ACME) > 0:
		return usagef("--acme gets certificates itself, and goes without --tls-cert")
	case s.MaxBodyMemory > 0 && s.MaxBodyMemory < s.MaxBody:
		return usagef("--max-body-memory must have room for one body (--max-body)")
	case strings.ContainsAny(s.ACMEEmail, " \t\r\n<>"):
		return usagef("--acme-email takes one address, such as ops@example.com")
	}
	return nil
}
