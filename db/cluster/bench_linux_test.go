//go:build cluster

package cluster

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// BenchmarkSend sends messages at three nodes in one process. It tells the time of the processors for
// each message, that of all three nodes together, and the middle of the times that senders wait.
func BenchmarkSend(b *testing.B) {
	for _, senders := range []int{1, 64} {
		b.Run(fmt.Sprint("senders=", senders), func(b *testing.B) {
			all := clusterOf(b, "n1", "n2", "n3")
			startAll(all...)
			k := all[0].issue("bob^demo")
			waitLevel(all...)
			all[0].mustSend(k, "first")
			waits := make([][]time.Duration, senders)
			var left atomic.Int64
			left.Store(int64(b.N))
			before := processorTime()
			b.ResetTimer()
			var ready sync.WaitGroup
			for i := range senders {
				ready.Go(func() {
					m := all[i%3]
					for left.Add(-1) >= 0 {
						began := time.Now()
						if err := m.send(k, "hello"); err != nil {
							b.Error(err)
							return
						}
						waits[i] = append(waits[i], time.Since(began))
					}
				})
			}
			ready.Wait()
			waitLevel(all...)
			b.StopTimer()
			took := processorTime() - before
			total := slices.Concat(waits...)
			slices.Sort(total)
			b.ReportMetric(float64(took.Microseconds())/float64(b.N), "µs-cpu/op")
			b.ReportMetric(float64(total[len(total)/2].Microseconds()), "µs-p50")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			for _, m := range all {
				m.stop()
			}
		})
	}
}

// BenchmarkIdle measures the cost of an idle node: the time of the processors, and what three nodes
// in one process add to its memory, divided by three.
func BenchmarkIdle(b *testing.B) {
	before := memory(b)
	all := clusterOf(b, "n1", "n2", "n3")
	startAll(all...)
	all[0].issue("bob^demo")
	waitLevel(all...)
	for b.Loop() {
		used := processorTime()
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64((processorTime()-used).Microseconds())/10/3/1000, "ms-cpu/s")
		b.ReportMetric(float64(memory(b)-before)/3/1024, "MiB/node")
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory returns the resident memory of this process, in KiB.
func memory(b *testing.B) int {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	kib, err := strconv.Atoi(regexp.MustCompile(`VmRSS:\s+(\d+)`).FindStringSubmatch(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return kib
}
