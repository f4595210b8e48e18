package db_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
	"relay/db/ring"
)

// benchmarkRows is how many messages the mailboxes of the benchmarks have, the
// most last: RELAY_BENCH_ROWS, as in 100000,5000000; or 100,000.
func benchmarkRows(b *testing.B) (all []int) {
	text := os.Getenv("RELAY_BENCH_ROWS")
	if text == "" {
		return []int{100_000}
	}
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		if err != nil || n < 1000 {
			b.Fatalf("RELAY_BENCH_ROWS is %q", text)
		}
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// A mailbox is a long one: its store, who sent to it and whose it is, and the
// id of each hundredth message, in order.
type mailbox struct {
	store
	from, to relay.IssuedKey
	ids      []relay.MessageID
}

// mustHaveMailbox makes a mailbox of so many messages. Large ones take minutes: in the
// folder RELAY_BENCH_DIR, if it is set, they are kept and used again.
func mustHaveMailbox(b *testing.B, rows int) mailbox {
	b.Helper()
	kept, path := false, ""
	if dir := os.Getenv("RELAY_BENCH_DIR"); dir != "" {
		path = filepath.Join(dir, fmt.Sprintf("mailbox-%d.db", rows))
		_, err := os.Stat(path)
		kept = err == nil
	}
	m := mailbox{store: mustOpen(b, func(o *db.Options) {
		if path != "" {
			o.Path = path
		}
	})}
	m.from, m.to = m.mustIssue("from^bench"), m.mustIssue("to^bench")
	if !kept {
		m.fill(m.from, m.to, rows)
	}
	q := relay.HistoryQuery{Mecha: m.to.Mecha.Number, Limit: 1000}
	for more := true; more; {
		p := m.mustHistory(q)
		for i := 0; i < len(p.Messages); i += 100 {
			m.ids = append(m.ids, p.Messages[i].ID)
		}
		q.After, more = p.Next, p.More
	}
	return m
}

// fill sends n messages to one Mecha; of all but the last 1,000 every other one
// is acknowledged.
func (s store) fill(from, to relay.IssuedKey, n int) {
	s.t.Helper()
	payload := fmt.Sprintf(`{"text":"%0500d"}`, 1)
	var wg sync.WaitGroup
	for w := range 256 {
		wg.Go(func() {
			for i := w; i < n; i += 256 {
				nonce := relay.NonceHash(rand.Int64() | 1) // as a request brings one
				sent, err := s.send(from.Key, to.Mecha.Address, payload, func(m *relay.SendMessage) { m.Nonce = nonce })
				if err == nil && i%2 == 0 && i < n-1000 {
					_, err = s.ack(to.Key, sent.ID, "completed")
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

// keepSending sends, one message after the other, until stop is called.
func (m mailbox) keepSending() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	payload := fmt.Sprintf(`{"text":"%0500d"}`, 1)
	other := m.mustIssue("other^bench") // the pages must stay what they are
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := m.send(m.from.Key, other.Mecha.Address, payload); err != nil {
				m.t.Error(err)
				return
			}
		}
	}()
	return func() { close(done); <-ended }
}

// BenchmarkHistory reads pages of 100 at places all over a long history, alone and while
// a writer works. The cost must depend neither on the length nor on the place.
func BenchmarkHistory(b *testing.B) {
	for _, rows := range append([]int{1000}, benchmarkRows(b)...) {
		m := mustHaveMailbox(b, rows)
		first, last := m.ids[:1], m.ids[len(m.ids)-3:len(m.ids)-2]
		for _, c := range []struct {
			name    string
			cursors []relay.MessageID
			query   relay.HistoryQuery
			writer  bool
		}{
			{"first", first, relay.HistoryQuery{}, false},
			{"last", last, relay.HistoryQuery{}, false},
			{"anywhere", m.ids, relay.HistoryQuery{}, false},
			{"received", m.ids, relay.HistoryQuery{Direction: relay.In}, false},
			{"pending", m.ids, relay.HistoryQuery{Direction: relay.In, State: relay.OnlyPending}, false},
			{"payload", m.ids, relay.HistoryQuery{Direction: relay.In, Payload: true}, false},
			{"first-writer", first, relay.HistoryQuery{}, true},
			{"last-writer", last, relay.HistoryQuery{}, true},
			{"anywhere-writer", m.ids, relay.HistoryQuery{}, true},
		} {
			b.Run(fmt.Sprintf("%d/%s", rows, c.name), func(b *testing.B) {
				if c.writer {
					defer m.keepSending()()
				}
				b.ReportAllocs()
				n, took := 0, make([]time.Duration, b.N)
				b.ResetTimer()
				for i := range b.N {
					began := time.Now()
					q := c.query
					q.Mecha, q.Limit, q.After = m.to.Mecha.Number, 100, c.cursors[i*7919%len(c.cursors)]
					p, err := m.History(ctx, q)
					if err != nil {
						b.Fatal(err)
					}
					n += len(p.Messages)
					took[i] = time.Since(began)
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
				slices.Sort(took)
				b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// BenchmarkOpen opens a file whose messages have all come in the last minutes, as a
// server does: after a clean stop, with their nonces in the ring, and after the ring was
// lost, with their nonces in the database.
func BenchmarkOpen(b *testing.B) {
	for _, rows := range benchmarkRows(b) {
		path := filepath.Join(b.TempDir(), "relay.db")
		options := func(o *db.Options) { o.Path = path }
		s := mustOpen(b, options)
		from := s.mustIssue("from^bench")
		s.fill(from, s.mustIssue("to^bench"), rows)
		for i := range rows { // as many nonces as there are messages
			if _, err := s.Claim(from.Key, strconv.Itoa(i), time.Now()); err != nil {
				b.Fatal(err)
			}
		}
		s.Close()
		for _, name := range []string{"ring", "rows"} {
			b.Run(fmt.Sprint(rows, "/", name), func(b *testing.B) {
				for range b.N {
					s := mustOpen(b, options)
					b.StopTimer()
					s.Close()
					if name == "rows" {
						os.Remove(path + ring.Suffix)
					}
					b.StartTimer()
				}
			})
		}
	}
}

// BenchmarkClaim measures the cost of a nonce in a request, with the ring and without.
func BenchmarkClaim(b *testing.B) {
	for _, name := range []string{"ring", "memory"} {
		b.Run(name, func(b *testing.B) {
			s := mustOpen(b, func(o *db.Options) {
				if name == "memory" { // no ring can be made where there is a folder
					if err := os.MkdirAll(o.Path+ring.Suffix+"/x", 0o700); err != nil {
						b.Fatal(err)
					}
				}
			})
			k, now := s.mustIssue("a^bench"), time.Now()
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if _, err := s.Claim(k.Key, strconv.Itoa(i), now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The cost to the store of a WebSocket that resumes: the place of its cursor and the
// first messages after it.
func BenchmarkResume(b *testing.B) {
	rows := benchmarkRows(b)
	m := mustHaveMailbox(b, rows[len(rows)-1])
	for _, pending := range []bool{false, true} {
		name := "all"
		if pending {
			name = "pending"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				after, err := m.Cursor(m.ids[i*7919%len(m.ids)])
				if err != nil {
					b.Fatal(err)
				}
				p, err := m.Stream(ctx, relay.StreamQuery{Mecha: m.to.Mecha.Number, After: after, PendingOnly: pending, Limit: 64, MaxBytes: 256 << 10})
				if err != nil || len(p.Messages) == 0 {
					b.Fatal(len(p.Messages), err)
				}
			}
		})
	}
}
