package db_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"relay/db"
	"relay/db/relay"
)

// A thread is a conversation of two Mechas that is under way.
type thread struct {
	a, b relay.IssuedKey
	next func(*relay.SendMessage) // makes the next message one of the conversation
	left int                      // messages
}

// talk sends n messages of 512 bytes from so many goroutines: those of conversations of 2 to
// 20 messages, of which 20,000 are under way. In half of them each message has a label, and in
// the others each names the one before.
func (c crowd) talk(n int64, senders int) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(n)
	payload := fmt.Sprintf(`{"text":"%0501d"}`, 1)
	for range senders {
		wg.Go(func() {
			open := make([]*thread, 20_000/senders)
			for left.Add(-1) >= 0 {
				i := rand.IntN(len(open))
				v := open[i]
				if v == nil {
					v = &thread{a: c.keys[rand.IntN(len(c.keys))], b: c.keys[rand.IntN(len(c.keys))], left: 2 + rand.IntN(19), next: func(*relay.SendMessage) {}}
					if label := relay.ConversationID(fmt.Sprintf("trip-%x", rand.Int64())); rand.IntN(2) == 0 {
						v.next = func(m *relay.SendMessage) { m.Conversation = label }
					}
					open[i] = v
				}
				sent, err := c.send(v.a.Key, v.b.Mecha.Address, payload, func(m *relay.SendMessage) {
					m.CorrelationID, m.Nonce = fmt.Sprint("request-", rand.Int64()), relay.NonceHash(rand.Int64()|1)
					v.next(m)
				})
				if err != nil {
					c.t.Error(err)
					return
				}
				if v.a, v.b = v.b, v.a; sent.Conversation.Issued() {
					v.next = func(m *relay.SendMessage) { m.InReplyTo = sent.ID }
				}
				if v.left--; v.left == 0 {
					open[i] = nil
				}
			}
		})
	}
	wg.Wait()
}

// BenchmarkTalk measures the messages of conversations: the time, the CPU time of the process
// and the bytes written for each. Use it with -benchtime 100000x.
func BenchmarkTalk(b *testing.B) {
	for _, senders := range []int{64, 256} {
		b.Run(fmt.Sprint(senders), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "relay.db")
			c := mustOpen(b, func(o *db.Options) { o.Path = path }).crowd()
			c.talk(150_000, senders) // so that as many conversations end as begin
			cpu, written := cpuTime(b), bytesWritten(b)
			b.ResetTimer()
			c.talk(int64(b.N), senders)
			b.ReportMetric(float64((cpuTime(b)-cpu).Microseconds())/float64(b.N), "cpu-µs/op")
			b.ReportMetric(float64(bytesWritten(b)-written)/float64(b.N), "written-B/op")
		})
	}
}

// bytesWritten is how many bytes this process has had written to disks.
func bytesWritten(b *testing.B) int64 {
	io, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Fatal(err)
	}
	_, line, _ := bytes.Cut(io, []byte("\nwrite_bytes: "))
	line, _, _ = bytes.Cut(line, []byte("\n"))
	n, err := strconv.ParseInt(string(line), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}
