package admin

import (
	"context"
	"encoding/binary"
	"encoding/json"
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

func (s *Server) take(c net.Conn) {
	if s.admit(c) == nil {
		s.wg.Go(func() { s.serve(c) })
	}
}

// A write that was taken before the server stops has its outcome after it, however long that takes:
// without it, the command would take the write for not done, and make it again.
func TestAnOutcomeThatComesLongAfterCloseIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan func(error), 1)
		s := opened(t, nil, Handler{Apply: func(_ context.Context, _ []byte, done func(error)) { taken <- done }})
		ours, theirs := net.Pipe()
		s.take(theirs)
		lines := json.NewDecoder(ours)
		said := func() (a answer) {
			if err := lines.Decode(&a); err != nil {
				t.Error(err)
			}
			return a
		}
		ours.Write([]byte{version})
		said()
		ours.Write(append(binary.AppendUvarint(nil, 1), aWrite))
		done := <-taken
		closed := make(chan bool)
		go func() { s.Close(); close(closed) }()
		time.Sleep(time.Hour)
		done(nil)
		if a := said(); a.N != 1 || a.Code != "" {
			t.Errorf("the outcome: %+v", a)
		}
		if a := said(); a.N != 0 || a.Code != relay.ShuttingDown {
			t.Errorf("the last line: %+v", a)
		}
		<-closed
	})
}

// A command that does not take an outcome is not told that nothing was done.
func TestACommandThatReadsNothingIsNotToldThatNothingWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := make(chan func(error), 1)
		s := opened(t, nil, Handler{Apply: func(_ context.Context, _ []byte, done func(error)) { taken <- done }})
		ours, theirs := net.Pipe()
		s.take(theirs)
		lines := json.NewDecoder(ours)
		ours.Write([]byte{version})
		if err := lines.Decode(&answer{}); err != nil {
			t.Error(err)
		}
		ours.Write(append(binary.AppendUvarint(nil, 1), aWrite))
		(<-taken)(nil)
		closed := make(chan bool)
		go func() { s.Close(); close(closed) }()
		time.Sleep(endsIn + endsIn/2) // the outcome could not be written
		if rest, err := io.ReadAll(ours); err != nil || len(rest) > 0 {
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
		ours, theirs := net.Pipe()
		s.take(theirs)
		if rest, err := io.ReadAll(ours); err != nil || len(rest) > 0 {
			t.Errorf("%q, %v", rest, err)
		}
		synctest.Wait()
		if len(s.conns) > 0 {
			t.Error("it still has its place")
		}
	})
}
