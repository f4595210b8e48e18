//go:build cluster

package cluster

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// peerID repeats how NATS names a peer, for servers that NATS has forgotten.
func TestAPeerIsNamedAsNATSNamesIt(t *testing.T) {
	for _, name := range []string{"n1", "relay-7.example.com"} {
		s, err := server.NewServer(&server.Options{ServerName: name, DontListen: true, NoSigs: true})
		if err == nil {
			err = s.SetDefaultSystemAccount() // without which it has no name
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := peerID(name); got != s.Node() {
			t.Errorf("%s is %s to us and %s to NATS: see peerID, and getHash in NATS' server/events.go", name, got, s.Node())
		}
		s.Shutdown()
	}
}
