package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strconv"

	"relay/cmd/internal/system"
)

// CheckHostPort returns a usage error unless addr is an address that a server can listen on.
func CheckHostPort(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return Usagef("--%s must be host:port, as in 127.0.0.1:8080; %q is not", flag, addr)
	}
	return nil
}

// Listen listens on an address of a server. An error names the flag that sets it.
func Listen(flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	host, port, _ := net.SplitHostPort(addr) // it has just been read
	n, _ := net.LookupPort("tcp", port)
	if errors.Is(err, system.AddressInUse) {
		another := net.JoinHostPort(host, strconv.Itoa((n+1)%(1<<16)))
		return nil, fmt.Errorf("%s is already in use; --%s %s uses another port", addr, flag, another)
	}
	var failed *net.OpError
	if errors.As(err, &failed) {
		err = failed.Err // the rest of it repeats the address
	}
	if errors.Is(err, fs.ErrPermission) && n < 1024 {
		return nil, fmt.Errorf("cannot listen on --%s %s: %w; ports below 1024 need a privilege (relay docs tls)",
			flag, addr, err)
	}
	return nil, fmt.Errorf("cannot listen on --%s %s: %w", flag, addr, err)
}
