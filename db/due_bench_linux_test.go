package db_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// BenchmarkWaitingDeadlines measures what a store costs at rest, while so many messages wait
// that have an ack_by far away: CPU time over ten seconds, and the memory of the process.
func BenchmarkWaitingDeadlines(b *testing.B) {
	for _, n := range []int{0, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "relay.db")
			atPath := func(o *db.Options) { o.Path = path }
			s := mustOpen(b, atPath)
			from, to := s.mustIssue("from^bench"), s.mustIssue("to^bench")
			var senders sync.WaitGroup
			for w := range 256 {
				senders.Go(func() {
					for i := w; i < n; i += 256 {
						_, err := s.send(from.Key, to.Mecha.Address, `{}`, func(m *relay.SendMessage) {
							m.AckBy = m.At.Add(24 * time.Hour)
							m.Nonce = relay.NonceHash(rand.Int64() | 1)
						})
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			senders.Wait()
			s.Close()
			mustOpen(b, atPath)         // without what sending has left in memory
			time.Sleep(5 * time.Second) // what a start has to do
			runtime.GC()
			for b.Loop() {
				before := cpuTime(b)
				time.Sleep(10 * time.Second)
				b.ReportMetric(float64((cpuTime(b) - before).Milliseconds()), "cpu-ms/10s")
			}
			b.ReportMetric(resident(b), "MiB-resident")
		})
	}
}

// cpuTime is the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resident is the memory of this process that is not backed by files, in MiB.
func resident(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	var kB float64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "RssAnon: %f kB", &kB); err == nil {
			return kB / 1024
		}
	}
	b.Fatal("no RssAnon")
	return 0
}
