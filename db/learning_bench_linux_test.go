package db_test

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// BenchmarkLearning measures the CPU time of sends, and of the acknowledgements that complete them,
// with and without a search_id. The time of an acknowledgement includes the time of the later
// count. Each iteration takes turns in one store, so that what disturbs the machine disturbs both.
// The searches have six words each, of 3,000, and list 20 of 1,000 Mechas; the senders are of 50
// crews.
func BenchmarkLearning(b *testing.B) {
	for _, parallel := range []int{1, 64} {
		b.Run(fmt.Sprint("parallel=", parallel), func(b *testing.B) { benchmarkLearning(b, parallel) })
	}
}

// learningBench is a store with Mechas and searches.
type learningBench struct {
	store
	to       []*relay.Key
	searches []benchSearch
	ahead    *atomic.Int64 // by how many seconds its clock is
}

func (l *learningBench) now() time.Time {
	return time.Now().Add(time.Duration(l.ahead.Load()) * time.Second)
}

type benchSearch struct {
	id     relay.SearchID
	of     *relay.Key
	listed []*relay.Key
}

func mustHaveSearches(b *testing.B) *learningBench {
	l := &learningBench{ahead: new(atomic.Int64)}
	l.store = mustOpen(b, func(o *db.Options) { o.Now = l.now; db.Learns(o, relay.DefaultHalfLife) })
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 1000 {
		l.to = append(l.to, l.mustIssue(relay.Address(fmt.Sprintf("m%d^bench", i))).Key)
	}
	for i := range 500 {
		k := l.mustIssue(relay.Address(fmt.Sprintf("s%d^crew%d", i%100, i%50)))
		if _, err := l.Key(ctx, k.Text); err != nil { // a request has shown it
			b.Fatal(err)
		}
		s := benchSearch{id: relay.NewSearchID(), of: k.Key}
		w := &relay.SaveSearch{At: l.now(), ID: s.id, Mecha: s.of.Mecha.Number, Answer: []byte("{}")}
		for range 20 {
			k := l.to[random.IntN(len(l.to))]
			s.listed, w.Listed = append(s.listed, k), append(w.Listed, k.Mecha.Number)
		}
		for n := range 6 {
			w.Words = append(w.Words, fmt.Sprintf("word%d", n*500+random.IntN(500)))
		}
		l.SaveSearch(w, func(error) {})
		l.searches = append(l.searches, s)
	}
	return l
}

func (l *learningBench) send(b *testing.B, i int, with bool) (id relay.MessageID, to *relay.Key) {
	s := l.searches[i%len(l.searches)]
	to = s.listed[i/len(l.searches)%len(s.listed)]
	m := &relay.SendMessage{At: l.now(), Key: s.of.Number, To: to.Mecha.Address, Payload: []byte(`{"text":"the quick brown fox jumps over the lazy dog"}`), Nonce: 1}
	if with {
		m.SearchID = s.id
	}
	if err := m.Validate(); err != nil {
		b.Error(err)
	}
	sent, err := l.Send(m)
	if err != nil {
		b.Error(err)
	}
	return sent.ID, to
}

func benchmarkLearning(b *testing.B, parallel int) {
	const messages = 5000
	l := mustHaveSearches(b)
	for i := range l.to { // so that all keys and Mechas are known
		l.send(b, i, false)
	}
	var used [2]struct{ send, ack time.Duration } // without and with a search_id
	next := 0
	turn := func(with int) {
		ids, to := make([]relay.MessageID, messages), make([]*relay.Key, messages)
		began := cpuTime(b)
		inParallel(parallel, messages, func(i int) { ids[i], to[i] = l.send(b, next+i, with == 1) })
		sent := cpuTime(b)
		inParallel(parallel, messages, func(i int) {
			a := &relay.Acknowledge{At: l.now(), Key: to[i].Number, ID: ids[i], Status: relay.Completed, ClientTS: "2026-11-20T08:00:00Z"}
			if _, err := l.Acknowledge(a); err != nil {
				b.Error(err)
			}
		})
		l.mustCount(b)
		used[with].send += sent - began
		used[with].ack += cpuTime(b) - sent
	}
	for range b.N {
		turn(0)
		turn(1)
		next += messages
	}
	perMessage := func(d time.Duration) float64 { return float64(d.Microseconds()) / messages / float64(b.N) }
	for with, name := range []string{"without", "with"} {
		b.ReportMetric(perMessage(used[with].send), "cpu-µs/send-"+name)
		b.ReportMetric(perMessage(used[with].ack), "cpu-µs/ack-"+name)
	}
	b.ReportMetric(float64(used[1].send)/float64(used[0].send), "send-ratio")
	b.ReportMetric(float64(used[1].ack)/float64(used[0].ack), "ack-ratio")
	b.ReportMetric(float64(used[1].send+used[1].ack)/float64(used[0].send+used[0].ack), "ratio")
	b.ReportMetric(0, "ns/op")
}

// inParallel calls f with all numbers below n, from so many goroutines.
func inParallel(goroutines, n int, f func(i int)) {
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := g; i < n; i += goroutines {
				f(i)
			}
		})
	}
	all.Wait()
}

// mustCount waits until all exchanges are counted. It lets the time pass in which they wait for
// others.
func (l *learningBench) mustCount(b *testing.B) {
	d, err := sql.Open("sqlite", l.Path())
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	l.ahead.Add(20)
	for waiting := true; waiting; time.Sleep(300 * time.Millisecond) {
		if err := d.QueryRow("SELECT EXISTS (SELECT 1 FROM exchange)").Scan(&waiting); err != nil {
			b.Fatal(err)
		}
	}
}
