package console_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/look/browse"
	"relay/db/relay"
)

// BenchmarkViews measures each view on a store with so many messages of a thousand Mechas, most
// of them acknowledged: RELAY_BENCH_ROWS, or 20,000. RELAY_BENCH_PENDING, or 10, is how many of
// 100 messages are pending. In the folder RELAY_BENCH_DIR, if it is set, the store is kept and
// used again. A view must not cost more on a longer history, nor if more messages wait.
func BenchmarkViews(b *testing.B) {
	rows, err := strconv.Atoi(os.Getenv("RELAY_BENCH_ROWS"))
	if err != nil {
		rows = 20_000
	}
	s, inspector := mustHaveMany(b, rows)
	c := s.enter()
	long, busy := "/conversation/long", "/mecha/m7%5Ebench"
	list, _, err := inspector.Messages(b.Context(), browse.ListQuery{Conversation: "long", Limit: 100})
	if err != nil || len(list) == 0 {
		b.Fatal(len(list), err)
	}
	for name, path := range map[string]string{
		"now": "/", "health": "/health", "mechas": "/mecha", "mechas-search": "/mecha?q=m99", "mechas-last": "/mecha?page=20", "mecha": busy, "conversation": long,
		"earlier": long + "?before=" + string(list[0].ID), "directory": "/directory", "directory-none": "/directory?q=nothing", "keys": "/keys", "keys-search": "/keys?q=m99", "message": "/message/" + string(list[0].ID),
	} {
		b.Run(fmt.Sprintf("%d/%s", rows, name), func(b *testing.B) {
			var took []time.Duration
			bytes := 0
			for b.Loop() {
				began := time.Now()
				status, text := s.get(c, path)
				if took, bytes = append(took, time.Since(began)), len(text); status != 200 {
					b.Fatal(status, text)
				}
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
			b.ReportMetric(float64(bytes), "page-B")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// mustHaveMany opens a store of many messages and shows it.
func mustHaveMany(b *testing.B, rows int) (*stage, browse.Inspector) {
	b.Helper()
	dir := os.Getenv("RELAY_BENCH_DIR")
	if dir == "" {
		dir = b.TempDir()
	}
	pending, err := strconv.Atoi(os.Getenv("RELAY_BENCH_PENDING"))
	if err != nil {
		pending = 10
	}
	s := &stage{t: b, path: filepath.Join(dir, fmt.Sprintf("views-%d-%d.db", rows, pending)), log: &lines{}, online: map[relay.MechaNumber]bool{}}
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		b.Fatal(err)
	}
	_, err = os.Stat(s.path)
	filled := err == nil
	s.DB, err = db.Open(db.Options{Path: s.path, Schema: string(schema), Create: true, Serve: true, ClockSkew: 5 * time.Minute, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.DB.Close() })
	if !filled {
		s.fill(rows, pending)
	}
	s.show(false, "127.0.0.1:0")
	inspector, err := browse.Inspect(s.path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { inspector.Close() })
	return s, inspector
}

// fill sends the messages, one in 200 of them in one conversation, and leaves so many of 100
// pending.
func (s *stage) fill(rows, pending int) {
	keys := make([]relay.IssuedKey, 1000)
	for i := range keys {
		keys[i] = s.mustIssue(relay.Address(fmt.Sprintf("m%d^bench", i)), "worker")
	}
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(rows))
	for range 256 {
		wg.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				from, to := keys[rand.IntN(len(keys))], keys[rand.IntN(len(keys))]
				m := &relay.SendMessage{At: time.Now(), Key: from.Number, To: to.Mecha.Address, Payload: []byte(`{"text":"` + strings.Repeat("x", 260) + `"}`), Nonce: relay.NonceHash(n + 1)}
				if n%200 == 0 {
					m.Conversation = "long"
				}
				if err := m.Validate(); err != nil {
					s.t.Error(err)
					return
				}
				sent, err := s.Send(m)
				if err == nil && n%100 >= int64(pending) {
					_, err = s.Acknowledge(&relay.Acknowledge{At: time.Now(), Key: to.Number, ID: sent.ID, Status: "completed", ClientTS: relay.FormatTime(time.Now()), Nonce: relay.NonceHash(1<<40 + n)})
				}
				if err != nil {
					s.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkFirstPage measures the first page that somebody opens on that store, and what a
// console costs that nobody looks at.
func BenchmarkFirstPage(b *testing.B) {
	rows, err := strconv.Atoi(os.Getenv("RELAY_BENCH_ROWS"))
	if err != nil {
		rows = 20_000
	}
	for name, path := range map[string]string{"now": "/", "health": "/health", "mechas": "/mecha"} {
		b.Run(fmt.Sprintf("%d/%s", rows, name), func(b *testing.B) {
			s, _ := mustHaveMany(b, rows)
			var took time.Duration
			for b.Loop() {
				s.show(false, "127.0.0.1:0")
				c := s.enter()
				began := time.Now()
				if status, text := s.get(c, path); status != 200 {
					b.Fatal(status, text)
				}
				took = max(took, time.Since(began))
			}
			b.ReportMetric(float64(took.Microseconds())/1000, "max-ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}
