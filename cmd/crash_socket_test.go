package cmd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"
)

// socketSender sends over a socket, many messages under way at once.
type socketSender struct {
	agent
	ids []string // of all messages so far, in the order of sending; "" while there is no answer
}

func (s *socketSender) token(n int) string { return fmt.Sprintf("%s/%d", s.Address, n) }

// frame sends message n, the first time or again.
func (s *socketSender) frame(n int, to agent) []byte {
	text := strings.Repeat("x", n%7*100)
	if n%100 == 50 {
		text = strings.Repeat("x", 100_000)
	}
	return fmt.Appendf(nil, `{"type":"send","ref":"%d","idempotency_key":%q,"message":{"to":%q,"payload":{"token":%q,"text":%q}}}`, n, s.token(n), to.Address, s.token(n), text)
}

// take notes the answer to a frame.
func (s *socketSender) take(t *testing.T, text []byte) {
	t.Helper()
	var f struct {
		Type, Ref string
		MessageID string `json:"message_id"`
	}
	err := json.Unmarshal(text, &f)
	n, fault := strconv.Atoi(f.Ref)
	switch {
	case err != nil || fault != nil || f.Type != "sent" || n >= len(s.ids) || f.MessageID == "":
		t.Errorf("%s got %s", s.Address, text)
	case s.ids[n] != "":
		t.Errorf("%s was answered as %s, and again as %s", s.token(n), s.ids[n], f.MessageID)
	default:
		s.ids[n] = f.MessageID
	}
}

// resolve sends all messages again that had no answer, and waits for the answers.
func (s *socketSender) resolve(t *testing.T, conn *websocket.Conn, to agent) (open int) {
	t.Helper()
	for n, id := range s.ids {
		if id == "" {
			open++
			if err := conn.Write(t.Context(), websocket.MessageText, s.frame(n, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range open {
		_, text, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.take(t, text)
	}
	return open
}

// work sends until the server is gone.
func (s *socketSender) work(t *testing.T, conn *websocket.Conn, to agent, answered func()) {
	var mu sync.Mutex // guards ids
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() {
		for {
			mu.Lock()
			n := len(s.ids)
			s.ids = append(s.ids, "")
			mu.Unlock()
			if conn.Write(ctx, websocket.MessageText, s.frame(n, to)) != nil {
				return
			}
		}
	})
	both.Go(func() {
		for {
			_, text, err := conn.Read(ctx)
			if err != nil {
				conn.CloseNow()
				return
			}
			mu.Lock()
			s.take(t, text)
			mu.Unlock()
			answered()
		}
	})
	both.Wait()
}

// A message that got its "sent" is there, though the server is killed while messages are
// under way on its sockets. The others are there once, after they have been sent again
// with their idempotency_key. Each socket's messages are in the order of sending.
func TestCrashKilledWhileSocketsSend(t *testing.T) {
	notShort(t)
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	db := filepath.Join(t.TempDir(), "relay.db") // as that of newCrash
	agents := issue(t, db, "s0^crash", "s1^crash", "s2^crash", "s3^crash", "to^crash")
	to, senders := agents[4], make([]*socketSender, 4)
	for i := range senders {
		senders[i] = &socketSender{agent: agents[i]}
	}
	again, most, rounds := 0, rounds(t, 50, 2300), rounds(t, 1, 30)
	for round := range rounds + 1 {
		server := startProcess(t, db, "--rate-limit", "0", "--socket-rate-limit", "0", "--max-pending", "0")
		conns := make([]*websocket.Conn, len(senders))
		for i, s := range senders {
			conns[i] = server.dial(s.agent, "?sync_limit=0")
			again += s.resolve(t, conns[i], to)
		}
		if round == rounds {
			compareSocketSends(t, server, senders, to)
			break
		}
		var count atomic.Int64
		var wg sync.WaitGroup
		target := int64(most/2) + rand.Int64N(int64(most))
		for i, s := range senders {
			wg.Go(func() {
				s.work(t, conns[i], to, func() {
					if count.Add(1) == target {
						server.cmd.Process.Kill()
					}
				})
			})
		}
		wg.Wait()
		server.kill()
		if t.Failed() {
			t.FailNow()
		}
	}
	wantWhole(t, db)
	t.Logf("%d kills, %d messages sent again", rounds, again)
}

// compareSocketSends reads the history of the recipient.
func compareSocketSends(t *testing.T, server *server, senders []*socketSender, to agent) {
	t.Helper()
	next := map[string]int{}
	for _, m := range server.history(to, "direction=in&include=payload") {
		var p struct{ Token string }
		if err := json.Unmarshal(m.Payload, &p); err != nil {
			t.Fatal(err)
		}
		from, _, _ := strings.Cut(p.Token, "/")
		for _, s := range senders {
			if s.Address != from {
				continue
			}
			if n := next[from]; n >= len(s.ids) || p.Token != s.token(n) || m.MessageID != s.ids[n] {
				t.Fatalf("%s stands as %s in the place of %s, which is %s", p.Token, m.MessageID, s.token(n), s.ids[min(n, len(s.ids)-1)])
			}
		}
		next[from]++
	}
	for _, s := range senders {
		if next[s.Address] != len(s.ids) {
			t.Errorf("%d messages of %s are there, want %d", next[s.Address], s.Address, len(s.ids))
		}
	}
}
