package wire_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"relay/db/scratch/wire"
)

// mustConnect returns the two ends of a connection.
func mustConnect(t *testing.T) (near, far *wire.Conn) {
	t.Helper()
	l := wire.Listen(t)
	defer l.Close()
	conn, err := wire.Dial(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.Accept()
	if err != nil || other.RemoteAddr() != conn.LocalAddr() || other.LocalAddr() != conn.RemoteAddr() {
		t.Fatal(other, err)
	}
	return conn.(*wire.Conn), other.(*wire.Conn)
}

func TestAConnectionHoldsWhatItHasRoomFor(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		near, far := mustConnect(t)
		far.SetReadBuffer(4)
		near.SetWriteDeadline(time.Now().Add(time.Hour))
		began := time.Now()
		if n, err := near.Write([]byte("abcdef")); n != 4 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Hour {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
		near.SetWriteDeadline(time.Time{})
		go func() { near.Write([]byte("efgh")); near.CloseWrite() }()
		time.Sleep(time.Minute)
		if text, err := io.ReadAll(far); string(text) != "abcdefgh" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		far.Write([]byte("still there"))
		if n, err := near.Read(make([]byte, 99)); n != 11 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		far.SetReadDeadline(time.Now())
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	})
}

// As with TCP, the end is in order if the one who closes has read everything, else a reset.
func TestTheEndsOfAConnection(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(near, far *wire.Conn)
		text string
		err  error
	}{
		"closed":   {func(near, far *wire.Conn) { near.Write([]byte("x")); near.Close() }, "x", nil},
		"unread":   {func(near, far *wire.Conn) { near.Write([]byte("x")); far.Write([]byte("y")); near.Close() }, "x", syscall.ECONNRESET},
		"reset":    {func(near, far *wire.Conn) { near.Write([]byte("x")); near.Reset() }, "", syscall.ECONNRESET},
		"own":      {func(near, far *wire.Conn) { near.Write([]byte("x")); far.Close() }, "", net.ErrClosed},
		"cut":      {func(near, far *wire.Conn) { near.Cut(); near.Write([]byte("x")); near.Close() }, "", os.ErrDeadlineExceeded},
		"in vain":  {func(near, far *wire.Conn) { near.Close(); far.Write([]byte("y")) }, "", syscall.ECONNRESET},
		"half":     {func(near, far *wire.Conn) { near.CloseWrite() }, "", nil},
		"deadline": {func(near, far *wire.Conn) {}, "", os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			wire.Bubble(t, func(t *testing.T) {
				near, far := mustConnect(t)
				far.SetDeadline(time.Now().Add(time.Hour))
				c.end(near, far)
				if text, err := io.ReadAll(far); string(text) != c.text || !errors.Is(err, c.err) {
					t.Errorf("%q, %v", text, err)
				}
			})
		})
	}
}

func TestNobodyListens(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		l := wire.Listen(t)
		waits, err := wire.Dial(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, err := waits.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		var op *net.OpError
		if _, err := wire.Dial(t.Context(), "tcp", l.Addr().String()); !errors.As(err, &op) || op.Op != "dial" {
			t.Error(err)
		}
	})
}
