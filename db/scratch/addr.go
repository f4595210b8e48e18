package scratch

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// The ports that Addr gives are below those that systems give for port 0, and above those of
// well-known services.
const firstPort, ports = 10_000, 20_000

// given counts the ports that were given. It begins anywhere, so that test programs that run at the
// same time meet different ports.
var given atomic.Int64

func init() { given.Store(rand.Int64N(ports)) }

// Addr returns an address of this machine at which nobody listens. It gives the same one again only
// after 20,000 others: a test may listen at its own later, or again. Tests may call it side by side.
func Addr(t testing.TB) string {
	t.Helper()
	for range ports {
		addr := fmt.Sprintf("127.0.0.1:%d", firstPort+given.Add(1)%ports)
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
