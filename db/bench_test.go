package db_test

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"relay/db"
)

// benchmarkRows is how many messages the mailboxes of the benchmarks have:
// RELAY_BENCH_ROWS, or 100,000.
func benchmarkRows(b *testing.B) int {
	text := os.Getenv("RELAY_BENCH_ROWS")
	if text == "" {
		return 100_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1000 {
		b.Fatalf("RELAY_BENCH_ROWS is %q", text)
	}
	return n
}

// fill sends n messages to one Mecha; of all but the last 1,000 every other one
// is acknowledged. It gives the id of each hundredth, in order.
func (s store) fill(from, to db.IssuedKey, n int) (ids []db.MessageID) {
	s.t.Helper()
	payload := fmt.Sprintf(`{"text":"%0500d"}`, 1)
	var wg sync.WaitGroup
	for w := range 256 {
		wg.Go(func() {
			for i := w; i < n; i += 256 {
				sent, err := s.send(from.Key, to.Mecha.Address, payload)
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
	q := db.HistoryQuery{Mecha: to.Mecha.ID, Limit: 1000}
	for more := true; more; {
		p := s.mustHistory(q)
		for i := 0; i < len(p.Messages); i += 100 {
			ids = append(ids, p.Messages[i].ID)
		}
		q.After, more = p.Next, p.More
	}
	return ids
}

// One page of 100 of a long history, at places spread over all of it: neither
// its length nor how far in the cursor is must show.
func BenchmarkHistory(b *testing.B) {
	for _, rows := range []int{1000, benchmarkRows(b)} {
		s := mustOpen(b)
		from, to := s.mustIssue("from^bench"), s.mustIssue("to^bench")
		ids := s.fill(from, to, rows)
		first, last := ids[:1], ids[len(ids)-3:len(ids)-2]
		for _, c := range []struct {
			name    string
			cursors []db.MessageID
			query   db.HistoryQuery
		}{
			{"first", first, db.HistoryQuery{}},
			{"last", last, db.HistoryQuery{}},
			{"anywhere", ids, db.HistoryQuery{}},
			{"received", ids, db.HistoryQuery{Direction: db.In}},
			{"pending", ids, db.HistoryQuery{Direction: db.In, State: db.OnlyPending}},
			{"payload", ids, db.HistoryQuery{Direction: db.In, Payload: true}},
		} {
			b.Run(fmt.Sprintf("%d/%s", rows, c.name), func(b *testing.B) {
				b.ReportAllocs()
				n := 0
				for i := range b.N {
					q := c.query
					q.Mecha, q.Limit, q.After = to.Mecha.ID, 100, c.cursors[i*7919%len(c.cursors)]
					p, err := s.History(ctx, q)
					if err != nil {
						b.Fatal(err)
					}
					n += len(p.Messages)
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// What a WebSocket costs the store when it resumes: the place of its cursor and
// the first messages behind it.
func BenchmarkResume(b *testing.B) {
	s := mustOpen(b)
	from, to := s.mustIssue("from^bench"), s.mustIssue("to^bench")
	ids := s.fill(from, to, benchmarkRows(b))
	for _, pending := range []bool{false, true} {
		name := "all"
		if pending {
			name = "pending"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				after, err := s.Cursor(ids[i*7919%len(ids)])
				if err != nil {
					b.Fatal(err)
				}
				p, err := s.Stream(ctx, db.StreamQuery{Mecha: to.Mecha.ID, After: after, PendingOnly: pending, Limit: 64, MaxBytes: 256 << 10})
				if err != nil || len(p.Messages) == 0 {
					b.Fatal(len(p.Messages), err)
				}
			}
		})
	}
}

// The way of a send without its transaction: the queue, the writer, the bell.
func BenchmarkSendDiscarded(b *testing.B) {
	keyed := mustOpen(b).mustIssue("sender^bench")
	for _, parallel := range []int{1, 64} {
		b.Run(fmt.Sprint(parallel), func(b *testing.B) {
			s := mustOpen(b, func(o *db.Options) { o.Discard = true })
			payload := fmt.Appendf(nil, `{"text":"%0500d"}`, 1)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range parallel {
				wg.Go(func() {
					for i := w; i < b.N; i += parallel {
						m := &db.SendMessage{At: time.Now(), Key: keyed.Key, To: "to^bench", Payload: payload, Nonce: 1}
						m.Validate()
						if _, err := s.Send(m); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
