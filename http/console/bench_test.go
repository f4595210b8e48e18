package console_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
)

// listenTo opens the socket of a page.
func (s *stage) listenTo(c *http.Client, heard *atomic.Int64) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.url, "http")+"/live", &websocket.DialOptions{HTTPClient: &http.Client{Jar: c.Jar}, HTTPHeader: http.Header{"Origin": {s.url}}})
	if err != nil {
		s.t.Fatal(err)
	}
	conn.SetReadLimit(1 << 20)
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			if _, _, err := conn.Read(ctx); err != nil {
				return
			}
			heard.Add(1)
		}
	})
	s.t.Cleanup(func() {
		cancel()
		conn.CloseNow()
		reader.Wait()
	})
}

// What sends cost next to a console: with no page open, and with three, each of which also
// fetches itself again every two seconds, as a browser's does.
func BenchmarkSendsBesideAConsole(b *testing.B) {
	for name, pages := range map[string]int{"closed": 0, "three pages": 3} {
		b.Run(name, func(b *testing.B) {
			s := mustStage(b, true)
			alice := s.mustIssue("alice^demo", "")
			c := s.enter()
			var heard atomic.Int64
			stop := make(chan struct{})
			var fetches sync.WaitGroup
			for range pages {
				s.listenTo(c, &heard)
				fetches.Go(func() {
					for {
						select {
						case <-stop:
							return
						case <-time.After(2 * time.Second):
							s.get(c, "/")
						}
					}
				})
			}
			var next atomic.Int64
			var senders sync.WaitGroup
			took := make([]time.Duration, b.N)
			b.ResetTimer()
			for range 64 {
				senders.Go(func() {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						began := time.Now()
						m := &relay.SendMessage{At: time.Now(), Key: alice.Number, To: "alice^demo", Payload: []byte(`{"text":"hello"}`), Nonce: 1}
						if err := m.Validate(); err != nil {
							b.Error(err)
							return
						}
						if _, err := s.Send(m); err != nil {
							b.Error(err)
							return
						}
						took[n-1] = time.Since(began)
					}
				})
			}
			senders.Wait()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			close(stop)
			fetches.Wait()
			b.ReportMetric(float64(heard.Load()), "told")
		})
	}
}
