package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// A crowd is a thousand Mechas that send to each other.
type crowd struct {
	store
	keys []relay.IssuedKey
}

func (s store) crowd() crowd {
	c := crowd{store: s}
	for i := range 1000 {
		c.keys = append(c.keys, s.mustIssue(relay.Address(fmt.Sprintf("m%d^bench", i))))
	}
	return c
}

// sendOne sends a message of 280 bytes.
func (c crowd) sendOne() (from, to relay.IssuedKey, sent relay.Sent, err error) {
	from, to = c.keys[rand.IntN(len(c.keys))], c.keys[rand.IntN(len(c.keys))]
	nonce := relay.NonceHash(rand.Int64() | 1)
	sent, err = c.send(from.Key, to.Mecha.Address, fmt.Sprintf(`{"text":"%0269d"}`, 1), func(m *relay.SendMessage) { m.Nonce = nonce })
	return from, to, sent, err
}

// mustBeOld makes a file of so many messages of the crowd, most of which are acknowledged.
// In the folder RELAY_BENCH_DIR, if it is set, a copy is kept and used again.
func mustBeOld(b *testing.B, rows int) (path string) {
	path = filepath.Join(b.TempDir(), "relay.db")
	kept := filepath.Join(os.Getenv("RELAY_BENCH_DIR"), fmt.Sprintf("crowd-%d.db", rows))
	if old, err := os.ReadFile(kept); err == nil {
		if err := os.WriteFile(path, old, 0o600); err != nil {
			b.Fatal(err)
		}
		return path
	}
	c := mustOpen(b, func(o *db.Options) { o.Path = path }).crowd()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(rows))
	for range 256 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				_, to, sent, err := c.sendOne()
				if err == nil && rand.IntN(10) > 0 {
					_, err = c.ack(to.Key, sent.ID, "completed")
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	c.Close()
	if os.Getenv("RELAY_BENCH_DIR") != "" {
		if err := os.WriteFile(kept, content(b, path), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	return path
}

// longestRemoval bounds the measurement; a removal that takes longer is measured in part.
// RELAY_BENCH_LONGEST sets it, as in 30m.
func longestRemoval() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("RELAY_BENCH_LONGEST")); err == nil {
		return d
	}
	return 150 * time.Second
}

// BenchmarkSendBesideRemoval sends from 64 goroutines, first alone, then during the
// removal of everything in the file. RELAY_BENCH_ROWS says how many rows that is. Use it
// with -benchtime 1x.
func BenchmarkSendBesideRemoval(b *testing.B) {
	for _, rows := range benchmarkRows(b) {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			path := mustBeOld(b, rows)
			before := len(path) + int(fileBytes(b, path))
			c := mustOpen(b, func(o *db.Options) { o.Path, o.Create = path, false }).crowd()
			cut := time.Now()
			b.ResetTimer()
			c.sendUntil(2*time.Second, nil) // warm
			var alone, beside, after []time.Duration
			alone = c.sendUntil(10*time.Second, nil)
			done := make(chan struct{})
			var result db.PruneResult
			began := time.Now()
			go func() {
				defer close(done)
				bounded, cancel := context.WithTimeout(ctx, longestRemoval())
				defer cancel()
				var err error
				if result, err = db.Prune(bounded, path, schema(b), cut, func(db.PruneResult) {}); err != nil && !errors.Is(err, context.DeadlineExceeded) {
					b.Error(err)
				}
			}()
			beside = c.sendUntil(0, done)
			took := time.Since(began)
			after = c.sendUntil(3*time.Second, nil)
			b.ReportMetric(ms(alone, 50), "alone-p50-ms")
			b.ReportMetric(ms(alone, 99), "alone-p99-ms")
			b.ReportMetric(ms(beside, 50), "beside-p50-ms")
			b.ReportMetric(ms(beside, 99), "beside-p99-ms")
			b.ReportMetric(ms(after, 99), "after-p99-ms")
			b.ReportMetric(ms(beside, 99)/ms(alone, 99), "p99-ratio")
			b.ReportMetric(float64(result.Messages)/took.Seconds(), "removed/s")
			b.ReportMetric(float64(len(beside))/took.Seconds(), "sent/s")
			b.Logf("%d removed of a file of %d MiB in %v, %d sent meanwhile", result.Messages, before>>20, took.Round(time.Second), len(beside))
		})
	}
}

func fileBytes(t testing.TB, path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// sendUntil sends for a time, or until done is closed. It returns how long each send took.
func (c crowd) sendUntil(d time.Duration, done <-chan struct{}) (all []time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	end := time.Now().Add(d)
	for range 64 {
		wg.Go(func() {
			var own []time.Duration
			for over := false; !over; {
				began := time.Now()
				if _, _, _, err := c.sendOne(); err != nil {
					c.t.Error(err)
					return
				}
				own = append(own, time.Since(began))
				select {
				case <-done:
					over = true
				default:
					over = done == nil && time.Now().After(end)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
		})
	}
	wg.Wait()
	slices.Sort(all)
	return all
}

func ms(sorted []time.Duration, percent int) float64 {
	return float64(sorted[len(sorted)*percent/100].Microseconds()) / 1000
}
