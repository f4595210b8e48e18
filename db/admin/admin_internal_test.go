package admin

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
)

// A connection that is accepted while the server closes is refused: Close would not end it, and
// would wait for it forever.
func TestAConnectionDuringCloseIsRefused(t *testing.T) {
	s := opened(t, nil, Handler{})
	s.Serve(Handler{})
	s.Close()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	if err := s.admit(theirs); relay.ErrorCode(err) != relay.ShuttingDown || len(s.conns) != 0 {
		t.Errorf("it was let in: %v, %d connections", err, len(s.conns))
	}
}

// opened returns a server that takes the connections that a test hands it.
func opened(t *testing.T, greeting []byte, h Handler) *Server {
	t.Helper()
	path := filepath.Join(scratch.Dir(t), "relay.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Listen(path, greeting, func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	s.handler = h
	return s
}

// connected returns a connection that the server takes.
func connected(s *Server) net.Conn {
	ours, theirs := net.Pipe()
	if s.admit(theirs) == nil {
		s.wg.Go(func() { s.serve(theirs) })
	}
	return ours
}

// written returns a server that has taken a write; the connection of the command, with its lines; and
// what tells the server the outcome.
func written(t *testing.T) (s *Server, command net.Conn, lines *json.Decoder, done func(error)) {
	t.Helper()
	taken := make(chan func(error), 1)
	s = opened(t, nil, Handler{Apply: func(_ context.Context, _ []byte, done func(error)) { taken <- done }})
	command = connected(s)
	lines = json.NewDecoder(command)
	command.Write([]byte{version})
	if err := lines.Decode(&answer{}); err != nil {
		t.Fatal(err)
	}
	command.Write(append(binary.AppendUvarint(nil, 1), aWrite))
	return s, command, lines, <-taken
}

// closing closes the server, and returns a channel that is closed when that is done.
func closing(s *Server) chan bool {
	closed := make(chan bool)
	go func() { s.Close(); close(closed) }()
	return closed
}

// A write that was taken before the server stops has its outcome after it, however long that takes:
// without it, the command would take the write for not done, and make it again.
func TestAnOutcomeThatComesLongAfterCloseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, lines, done := written(t)
		closed := closing(s)
		time.Sleep(time.Hour)
		done(nil)
		var outcome, last answer
		if err := errors.Join(lines.Decode(&outcome), lines.Decode(&last)); err != nil {
			t.Error(err)
		}
		if outcome.N != 1 || outcome.Code != "" {
			t.Errorf("the outcome: %+v", outcome)
		}
		if last.N != 0 || last.Code != relay.ShuttingDown {
			t.Errorf("the last line: %+v", last)
		}
		<-closed
	})
}

// A command that does not take an outcome is not told that nothing was done.
func TestACommandThatReadsNothingIsNotToldThatNothingWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, command, _, done := written(t)
		done(nil)
		closed := closing(s)
		time.Sleep(endsIn + endsIn/2) // the outcome could not be written
		if rest, err := io.ReadAll(command); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		<-closed
	})
}

// A connection without a greeting does not keep the place of a command.
func TestAConnectionMustGreetInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := opened(t, []byte("hello"), Handler{})
		defer s.Close()
		if rest, err := io.ReadAll(connected(s)); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		synctest.Wait()
		if len(s.conns) > 0 {
			t.Error("it still has its place")
		}
	})
}
