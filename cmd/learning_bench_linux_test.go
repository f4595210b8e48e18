package cmd_test

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkLearning measures what it costs a server that discovery learns: the CPU time of a message
// that is sent and completed, both over HTTP, with the search_id of a search that listed the
// recipient, and without. The time of the count that follows is part of it, and is also reported
// apart: it begins when the turn is over. Turns with and without alternate, and the server has as
// much time after each.
func BenchmarkLearning(b *testing.B) {
	const senders, recipients, each = 64, 200, 10_000
	s := startServer(b, tempDB(b), "--rate-limit", "0", "--max-pending", "0")
	var names []string
	for i := range senders {
		names = append(names, fmt.Sprintf("s%d^crew%d", i, i%32))
	}
	for i := range recipients {
		names = append(names, fmt.Sprintf("m%d^bench", i))
	}
	all := issue(b, s.db, names...)
	of, byName := all[:senders], map[string]agent{}
	random := rand.New(rand.NewPCG(1, 2))
	for _, to := range all[senders:] {
		byName[to.Address] = to
		s.ask(to, "PUT", "/api/v1/mecha/"+to.Address+"/profile", fmt.Sprintf(`{"description":%q}`, someWords(random, 60))).want(b, http.StatusOK)
	}
	w := &learningLoad{b: b, server: s, of: of, byName: byName}
	for i := range 32 * senders { // so many that no share is full: one that is would cost less
		w.searches = append(w.searches, w.search(of[i%senders], someWords(random, 6)))
	}
	d, err := sql.Open("sqlite", "file:"+s.db+"?mode=ro")
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	w.turn(each, false) // so that the server knows all keys
	b.ResetTimer()
	var used, later, took [2]time.Duration // without and with a search_id
	for round := range 2 * b.N {
		i := (round + round/2) % 2 // 0, 1, 1, 0 and so on: what comes first has no advantage
		before, began := s.usedTime(b), time.Now()
		w.turn(each, i == 1)
		took[i] += time.Since(began)
		turn := s.usedTime(b)
		w.waitUntilCounted(d)
		after := s.usedTime(b)
		used[i] += after - before
		later[i] += after - turn
	}
	for i, name := range []string{"without", "with"} {
		b.ReportMetric(float64(used[i].Microseconds())/float64(each*b.N), "cpu-µs/"+name)
		b.ReportMetric(float64(later[i].Microseconds())/float64(each*b.N), "count-µs/"+name)
		b.ReportMetric(float64(each*b.N)/took[i].Seconds(), "per-s/"+name)
	}
	b.ReportMetric(float64(used[1])/float64(used[0]), "cpu-ratio")
	b.ReportMetric(0, "ns/op")
}

// someWords returns words of a small vocabulary. They have no digits, because words with digits are not
// learned.
func someWords(r *rand.Rand, n int) string {
	var all []string
	for range n {
		all = append(all, string([]byte{"bdfgklmnrstv"[r.IntN(12)], "aeiou"[r.IntN(5)], "bdfgklmnr"[r.IntN(9)], 'o'}))
	}
	return strings.Join(all, " ")
}

// A learningLoad sends messages to those whom searches have listed.
type learningLoad struct {
	b        *testing.B
	server   *server
	of       []agent
	byName   map[string]agent
	searches []learningSearch // number i is of sender i modulo their number
	begun    int
}

type learningSearch struct {
	id     string
	listed []agent
}

func (w *learningLoad) search(a agent, query string) (found learningSearch) {
	w.b.Helper()
	answer := w.server.ask(a, "POST", "/api/v1/search", fmt.Sprintf(`{"query":%q}`, query), "Prefer", "wait=10").want(w.b, http.StatusOK)
	var r struct {
		ID      string `json:"request_id"`
		Results []struct {
			Address string `json:"mecha_id"`
		}
	}
	if err := json.Unmarshal(answer, &r); err != nil || len(r.Results) == 0 {
		w.b.Fatalf("%v: %s", err, answer)
	}
	found.id = r.ID
	for _, m := range r.Results {
		found.listed = append(found.listed, w.byName[m.Address])
	}
	return found
}

// turn sends and completes messages, each sender one after the other.
func (w *learningLoad) turn(messages int, with bool) {
	var all sync.WaitGroup
	for i := range w.of {
		all.Go(func() {
			for n := w.begun + i; n < w.begun+messages; n += len(w.of) {
				if err := w.exchange(i, n/len(w.of), with); err != nil {
					w.b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	w.begun += messages
	if w.b.Failed() {
		w.b.FailNow()
	}
}

// exchange sends and completes the n-th message of a sender.
func (w *learningLoad) exchange(sender, n int, with bool) error {
	own := len(w.searches) / len(w.of)
	found := w.searches[sender+n%own*len(w.of)]
	to := found.listed[n/own%len(found.listed)]
	body := fmt.Sprintf(`{"to":%q,"payload":{"text":%q},"conversation_id":"c-%d-%d","correlation_id":"r-%d-%d"`, to.Address, strings.Repeat("x", 400), sender, n/8, sender, n)
	if with {
		body += fmt.Sprintf(`,"search_id":%q`, found.id)
	}
	answer, err := w.of[sender].request("POST", "/api/v1/messages", body+"}").to(w.server.url)
	if err != nil || answer.status != http.StatusCreated {
		return fmt.Errorf("%v: %s", err, answer.body)
	}
	var sent struct {
		ID string `json:"message_id"`
	}
	if err := json.Unmarshal(answer.body, &sent); err != nil {
		return err
	}
	answer, err = to.request("POST", "/api/v1/messages/"+sent.ID+"/ack", fmt.Sprintf(`{"status":"completed","client_ts":%q}`, time.Now().UTC().Format(time.RFC3339Nano))).to(w.server.url)
	if err != nil || answer.status != http.StatusOK {
		return fmt.Errorf("%v: %s", err, answer.body)
	}
	return nil
}

// waitUntilCounted waits until no exchange waits to be counted, and as long where there was none.
func (w *learningLoad) waitUntilCounted(d *sql.DB) {
	const counted = 12 * time.Second // exchanges wait for ten
	began := time.Now()
	for waiting := true; waiting || time.Since(began) < counted; time.Sleep(time.Second) {
		if time.Since(began) > time.Minute {
			w.b.Fatal("exchanges are not counted")
		}
		if err := d.QueryRow("SELECT EXISTS (SELECT 1 FROM exchange)").Scan(&waiting); err != nil {
			w.b.Fatal(err)
		}
	}
}

// usedTime is the CPU time that the server has used.
func (s *server) usedTime(t testing.TB) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	columns := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.Atoi(columns[11])
	system, _ := strconv.Atoi(columns[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}
