package ws_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/ws"
)

// mustFeed serves sockets that are fed by run. refused gets what Feed refuses.
func mustFeed(t *testing.T, run func(ctx context.Context, send func([]byte) error) error) (addr string, ended <-chan error) {
	t.Helper()
	done := make(chan error, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := ws.Feed(w, r, run)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
		done <- err
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), done
}

func dialFeed(t *testing.T, addr, origin string) (*websocket.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, "ws://"+addr, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {origin}}})
	if err == nil {
		t.Cleanup(func() { c.CloseNow() })
	}
	return c, err
}

// A feed says what run sends, and ends when run does, or when the page goes.
func TestAFeedIsToldUntilItEnds(t *testing.T) {
	t.Parallel()
	for _, how := range []struct {
		err  error
		code websocket.StatusCode
	}{{nil, websocket.StatusNormalClosure}, {errors.New("the end"), websocket.StatusGoingAway}} {
		addr, ended := mustFeed(t, func(_ context.Context, send func([]byte) error) error {
			for i := range 3 {
				if err := send(fmt.Appendf(nil, "%d %s", i, strings.Repeat("é", 40_000*i))); err != nil {
					return err
				}
			}
			return how.err
		})
		c, err := dialFeed(t, addr, "http://"+addr)
		if err != nil {
			t.Fatal(err)
		}
		c.SetReadLimit(1 << 20)
		for i := range 3 {
			kind, text, err := c.Read(t.Context())
			if err != nil || kind != websocket.MessageText || !strings.HasPrefix(string(text), fmt.Sprint(i)) || len(text) != 2+80_000*i {
				t.Fatalf("%v %d bytes %v", kind, len(text), err)
			}
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != how.code {
			t.Errorf("the end is %v, want %v", err, how.code)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAFeedEndsWithItsPage(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	addr, ended := mustFeed(t, func(ctx context.Context, _ func([]byte) error) error {
		<-ctx.Done()
		close(gone)
		return nil
	})
	c, err := dialFeed(t, addr, "http://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx := c.CloseRead(t.Context())
	if err := c.Ping(ctx); err != nil {
		t.Errorf("a ping: %v", err)
	}
	c.CloseNow()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("run goes on for a page that is gone")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Only pages of the same host get a feed; what they say is bounded, and must be WebSocket.
func TestAFeedRefuses(t *testing.T) {
	t.Parallel()
	addr, ended := mustFeed(t, func(ctx context.Context, _ func([]byte) error) error {
		<-ctx.Done()
		return nil
	})
	for _, origin := range []string{"http://evil.example", "http://" + addr + ".evil.example", "null", "http://127.0.0.1:1"} {
		if _, err := dialFeed(t, addr, origin); err == nil {
			t.Errorf("the origin %s has a feed", origin)
		}
		if err := <-ended; relay.ErrorCode(err) != relay.OriginNotAllowed {
			t.Errorf("the origin %s: %v", origin, err)
		}
	}
	if _, err := http.Get("http://" + addr); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; relay.ErrorCode(err) != relay.UpgradeRequired {
		t.Error(err)
	}
	// The feed closes the connection when it has read the frame's header. So the header comes in one
	// write with the handshake: a second write could fail. The body is left out: if the feed closed with
	// unread bytes, the client could get a reset instead of the close frame.
	for _, c := range []struct {
		what, frame string
		code        int
	}{{"5 KiB", string(frameHeader(fin|opText, 0x80, 5<<10)) + "mask", 1009}, {"a frame without a mask", "\x81\x01", 1002}} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n%s", addr, addr, c.frame)
		r := bufio.NewReader(conn)
		for line := "x"; strings.TrimSpace(line) != ""; {
			if line, err = r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		head := make([]byte, 4)
		if _, err := io.ReadFull(r, head); err != nil || head[0] != 0x88 || int(head[2])<<8|int(head[3]) != c.code {
			t.Errorf("%s: %x %v", c.what, head, err)
		}
		<-ended
	}
}
