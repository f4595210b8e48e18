package http_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	nethttp "net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"relay/db/relay"
)

// BenchmarkLearning measures the CPU time of sends and of the acknowledgements that complete them,
// with and without a search_id: our part of each request, as in BenchmarkRequest, the store, the
// later count, and the search index that follows it. The searches come from the benchmark of
// that name in package db, which measures the store alone.
//
// The count comes after so many turns: 8 are about what a busy server counts in one round, and 1 is
// what it counts at an eighth of that load.
func BenchmarkLearning(b *testing.B) {
	for _, turns := range []int{1, 8} {
		b.Run(fmt.Sprint("turns=", turns), func(b *testing.B) { benchmarkLearning(b, turns) })
	}
}

func benchmarkLearning(b *testing.B, turns int) {
	const each, goroutines = 5000, 64 // messages of a turn
	r := mustServe(b, learns)
	random := rand.New(rand.NewPCG(1, 2))
	var to, of []mecha
	for i := range 1000 {
		to = append(to, r.mustIssue(relay.Address(fmt.Sprintf("m%d^bench", i))))
	}
	for i := range 100 {
		of = append(of, r.mustIssue(relay.Address(fmt.Sprintf("s%d^crew%d", i, i%50))))
	}
	to[0].mustDescribe(`{"description":"is found"}`) // so that there is an index
	type found struct {
		id     relay.SearchID
		listed []int
	}
	var searches []found
	for i := range 500 {
		s := found{id: relay.NewSearchID()}
		w := &relay.SaveSearch{At: r.clock.Now(), ID: s.id, Mecha: of[i%100].Mecha.Number, Answer: []byte("{}")}
		for range 20 {
			s.listed = append(s.listed, random.IntN(len(to)))
			w.Listed = append(w.Listed, to[s.listed[len(s.listed)-1]].Mecha.Number)
		}
		for n := range 6 {
			w.Words = append(w.Words, fmt.Sprintf("word%d", n*500+random.IntN(500)))
		}
		r.db.SaveSearch(w, func(error) {})
		searches = append(searches, s)
	}
	next := 0
	// serve serves requests that are signed before, and gives the CPU time.
	serve := func(prepare func(i int) *call, done func(i int, body []byte)) time.Duration {
		requests, answers := make([]*nethttp.Request, each), make([]keeper, each)
		for i := range requests {
			q, err := prepare(i).request(r.url)
			if err != nil {
				b.Fatal(err)
			}
			requests[i], answers[i].header = q, nethttp.Header{}
		}
		began := usedTime(b)
		var all sync.WaitGroup
		for g := range goroutines {
			all.Go(func() {
				for i := g; i < each; i += goroutines {
					r.api.ServeHTTP(&answers[i], requests[i])
				}
			})
		}
		all.Wait()
		used := usedTime(b) - began
		for i := range answers {
			if answers[i].status/100 != 2 {
				b.Fatal(answers[i].status, answers[i].body.String())
			}
			done(i, answers[i].body.Bytes())
		}
		return used
	}
	turn := func(with bool) time.Duration {
		ids := make([]string, each)
		recipient := func(i int) mecha {
			s := searches[(next+i)%len(searches)]
			return to[s.listed[(next+i)/len(searches)%len(s.listed)]]
		}
		used := serve(func(i int) *call {
			body := fmt.Sprintf(`{"to":%q,"payload":{"text":"the quick brown fox jumps over the lazy dog"}}`, recipient(i).Mecha.Address)
			if with {
				body = body[:len(body)-1] + fmt.Sprintf(`,"search_id":%q}`, searches[(next+i)%len(searches)].id)
			}
			return of[(next+i)%100].prepare("POST", messages, body)
		}, func(i int, body []byte) {
			var sent struct {
				ID string `json:"message_id"`
			}
			if err := json.Unmarshal(body, &sent); err != nil {
				b.Fatal(err)
			}
			ids[i] = sent.ID
		})
		used += serve(func(i int) *call {
			return recipient(i).prepare("POST", messagePath(ids[i])+"/ack", fmt.Sprintf(`{"status":"completed","client_ts":%q}`, relay.FormatTime(r.clock.Now())))
		}, func(int, []byte) {})
		return used
	}
	d, err := sql.Open("sqlite", "file:"+r.settings.db.Path)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	turn(false) // so that all keys and Mechas are known
	next += each
	var used [2]time.Duration // without and with a search_id
	var count time.Duration   // and of the index that follows
	for range b.N {
		for range turns {
			used[0] += turn(false)
			used[1] += turn(true)
			next += each
		}
		// Time passes until all is counted, and then as much again, in which nothing is.
		steps := 0
		for waiting := true; waiting; steps++ {
			began := usedTime(b)
			waiting = r.mustLookAndWait(b, d)
			count += usedTime(b) - began
			if steps > 1000 {
				b.Fatal("exchanges are not counted")
			}
		}
		for range steps {
			began := usedTime(b)
			r.mustLookAndWait(b, d)
			count -= usedTime(b) - began
		}
	}
	used[1] += count
	for i, name := range []string{"without", "with"} {
		b.ReportMetric(float64(used[i].Microseconds())/each/float64(turns*b.N), "cpu-µs/"+name)
	}
	b.ReportMetric(float64(count.Microseconds())/each/float64(turns*b.N), "cpu-µs/count")
	b.ReportMetric(float64(used[1])/float64(used[0]), "ratio")
	b.ReportMetric(0, "ns/op")
}

// A keeper takes an answer without a network, and keeps its body.
type keeper struct {
	header nethttp.Header
	status int
	body   bytes.Buffer
}

func (k *keeper) Header() nethttp.Header         { return k.header }
func (k *keeper) WriteHeader(status int)         { k.status = status }
func (k *keeper) Write(body []byte) (int, error) { return k.body.Write(body) }

// mustLookAndWait lets some of the time pass in which exchanges wait for others, and reports whether
// there were any. The index follows within the time that this takes.
func (r *testRelay) mustLookAndWait(b *testing.B, d *sql.DB) (waiting bool) {
	if err := d.QueryRow("SELECT EXISTS (SELECT 1 FROM exchange)").Scan(&waiting); err != nil {
		b.Fatal(err)
	}
	r.clock.advance(20 * time.Second)
	time.Sleep(300 * time.Millisecond)
	return waiting
}

// usedTime is the CPU time that this process has used.
func usedTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
