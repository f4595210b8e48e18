package db_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// BenchmarkLearning measures sends, and the acknowledgements that complete them, with and
// without a search_id. The searches have six words each, of 3,000, and list 20 of 1,000
// Mechas; the senders are of 50 crews.
func BenchmarkLearning(b *testing.B) {
	for _, parallel := range []int{1, 64} {
		for _, mode := range []string{"without", "with"} {
			b.Run(fmt.Sprint("send/", parallel, "/", mode), func(b *testing.B) { benchmarkLearning(b, parallel, mode == "with", false) })
		}
		for _, mode := range []string{"without", "with"} {
			b.Run(fmt.Sprint("ack/", parallel, "/", mode), func(b *testing.B) { benchmarkLearning(b, parallel, mode == "with", true) })
		}
	}
}

// learningBench is a store with Mechas and searches.
type learningBench struct {
	store
	to       []*relay.Key
	searches []benchSearch
}

type benchSearch struct {
	id     relay.SearchID
	of     *relay.Key
	listed []*relay.Key
}

func mustHaveSearches(b *testing.B) *learningBench {
	l := &learningBench{store: mustOpen(b, func(o *db.Options) { o.LearnHalfLife = relay.DefaultHalfLife })}
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
		w := &db.SaveSearch{At: time.Now(), ID: s.id, Mecha: s.of.Mecha.Number, Answer: []byte("{}")}
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
	m := &relay.SendMessage{At: time.Now(), Key: s.of.Number, To: to.Mecha.Address, Payload: []byte(`{"text":"the quick brown fox jumps over the lazy dog"}`), Nonce: 1}
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

// benchmarkLearning measures either the sends or the acknowledgements.
func benchmarkLearning(b *testing.B, parallel int, with, acks bool) {
	l := mustHaveSearches(b)
	for i := range l.to { // so that all keys and Mechas are known
		l.send(b, i, false)
	}
	all := func(f func(i int)) {
		var wg sync.WaitGroup
		for w := range parallel {
			wg.Go(func() {
				for i := w; i < b.N; i += parallel {
					f(i)
				}
			})
		}
		wg.Wait()
	}
	ids, to := make([]relay.MessageID, b.N), make([]*relay.Key, b.N)
	send := func(i int) { ids[i], to[i] = l.send(b, i, with) }
	if acks {
		all(send)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if !acks {
		all(send)
		return
	}
	all(func(i int) {
		a := &relay.Acknowledge{At: time.Now(), Key: to[i].Number, ID: ids[i], Status: relay.Completed, ClientTS: "2026-11-20T08:00:00Z"}
		if _, err := l.Acknowledge(a); err != nil {
			b.Error(err)
		}
	})
}
