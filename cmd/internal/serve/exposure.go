package serve

import (
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/system"
)

// warnIfOpen warns when keys would cross a network unencrypted. The address of in is the one that the system
// assigned, with host names and wildcards resolved.
func warnIfOpen(log *slog.Logger, s *settings, in *Instance) {
	if IsLoopback(in.addr) || in.certs != nil || len(s.TrustedProxies) > 0 {
		return
	}
	log.Warn("KEYS AND MESSAGES CAN BE READ IN TRANSIT: this address is not loopback, and the relay speaks plain HTTP "+
		"on it. Use --tls-cert and --tls-key, or --acme; or put a TLS proxy in front and name it with --trusted-proxy; or "+
		"listen on 127.0.0.1", "addr", in.addr)
}

// warnOfFolder warns when other users could replace the database file.
func warnOfFolder(log *slog.Logger, db string) {
	dir := filepath.Dir(db)
	info, err := os.Stat(dir)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o002 != 0 && info.Mode()&os.ModeSticky == 0 {
		log.Warn("every user can replace files in the database's folder, and so the database itself: chmod o-w the folder",
			"folder", dir)
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
			return nil, cli.Usagef("--trusted-proxy must be networks, such as 10.0.0.0/8 or fd00::/8, or IP addresses; "+
				"%q is neither", text)
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		if p.Bits() == 0 {
			return nil, cli.Usagef("--trusted-proxy %s would trust everyone: name only your proxies", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}

// connections returns the limit of connections: --max-connections, or fewer if the store could otherwise not
// open its files.
func (s *settings) connections() int {
	files, ok := system.OpenFiles()
	if !ok {
		return s.MaxConnections
	}
	room := max(files-max(files/8, 100), 16)
	if s.MaxConnections == 0 {
		return room
	}
	return min(s.MaxConnections, room)
}

// pairs refuses a setting without the one that it requires, and settings that exclude each other.
func (s *settings) pairs() error {
	switch {
	case (s.TLSCert == "") != (s.TLSKey == ""):
		return cli.Usagef("--tls-cert and --tls-key require each other")
	case s.MaxBodyMemory > 0 && s.MaxBodyMemory < s.MaxBody:
		return cli.Usagef("--max-body-memory must be at least --max-body, one body")
	}
	return nil
}

// IsLoopback reports whether only this machine reaches an address.
func IsLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
