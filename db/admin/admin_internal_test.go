package admin

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
)

// A connection that is accepted while the server closes is refused: Close would not end it, and
// would wait for it forever.
func TestAConnectionDuringCloseIsRefused(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), "relay.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(path, nil, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(Handler{})
	s.Close()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	if err := s.admit(theirs); relay.ErrorCode(err) != relay.ShuttingDown || len(s.conns) != 0 {
		t.Errorf("it was let in: %v, %d connections", err, len(s.conns))
	}
}
