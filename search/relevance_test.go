package search_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"relay/db/relay"
	"relay/search"
)

// The relevance harness: public sets of profiles and queries with the right
// answers known, in the folder that RELAY_DISCOVERY_DATA names. Below the
// floors the test fails.

type relevanceSet struct {
	name     string
	profiles string
	floor    float64 // nDCG@10
}

var relevanceSets = []relevanceSet{
	{"metatool", "metatool", .60}, {"metatool-ex", "metatool-ex", .69}, {"stabletoolbench", "stabletoolbench", .81},
	{"sealtools", "sealtools", .94}, {"livemcpbench", "livemcpbench", .56}, {"nav", "nav", .93},
	{"metatool-kw", "metatool", 0}, {"sealtools-kw", "sealtools", 0}, {"metatool-typo", "metatool", 0}, {"sealtools-typo", "sealtools", 0},
}

const meanFloor = .74 // of the first five sets

// A large set is sampled, every nth query, to keep the test short;
// RELAY_DISCOVERY_FULL=1 runs all.
const queriesPerSet = 4000

func discoveryData(t testing.TB) string {
	dir := os.Getenv("RELAY_DISCOVERY_DATA")
	if dir == "" {
		t.Skip("RELAY_DISCOVERY_DATA is not set: no relevance data")
	}
	return dir
}

func TestRelevance(t *testing.T) {
	dir := discoveryData(t)
	indexes := map[string]*search.Index{}
	mean := 0.0
	t.Logf("%-16s %7s %8s %8s %8s", "set", "queries", "nDCG@10", "recall@5", "MRR@10")
	for i, set := range relevanceSets {
		x := indexes[set.profiles]
		if x == nil {
			x = mustIndex(t, loadProfiles(t, dir, set.profiles), 1000)
			indexes[set.profiles] = x
		}
		m := measure(t, x, loadQueries(t, dir, set.name))
		t.Logf("%-16s %7d %8.4f %8.4f %8.4f", set.name, m.queries, m.ndcg, m.recall, m.mrr)
		if m.ndcg < set.floor {
			t.Errorf("%s: nDCG@10 %.4f is below %.2f", set.name, m.ndcg, set.floor)
		}
		if i < 5 {
			mean += m.ndcg / 5
		}
	}
	t.Logf("mean of the first five: %.4f", mean)
	if mean < meanFloor {
		t.Errorf("mean nDCG@10 of the first five sets %.4f is below %.2f", mean, meanFloor)
	}
}

type measures struct {
	queries           int
	ndcg, recall, mrr float64
}

func measure(t *testing.T, x *search.Index, queries []judged) measures {
	t.Helper()
	step := 1
	if os.Getenv("RELAY_DISCOVERY_FULL") == "" {
		step = (len(queries) + queriesPerSet - 1) / queriesPerSet
	}
	var m measures
	for i := 0; i < len(queries); i += step {
		q := queries[i]
		r, err := x.Search(context.Background(), search.Request{Query: clipQuery(q.Text), Limit: 10})
		if err != nil {
			t.Fatalf("%s: %v", q.ID, err)
		}
		dcg, ideal, hits, first := 0.0, 0.0, 0, 0.0
		for rank, h := range r.Hits {
			if !q.right[h.ID] {
				continue
			}
			dcg += 1 / math.Log2(float64(rank)+2)
			if rank < 5 {
				hits++
			}
			if first == 0 {
				first = 1 / float64(rank+1)
			}
		}
		for rank := range min(len(q.right), 10) {
			ideal += 1 / math.Log2(float64(rank)+2)
		}
		m.queries++
		m.ndcg += dcg / ideal
		m.recall += float64(hits) / float64(min(len(q.right), 5))
		m.mrr += first
	}
	n := float64(m.queries)
	m.ndcg, m.recall, m.mrr = m.ndcg/n, m.recall/n, m.mrr/n
	return m
}

// clipQuery keeps to the protocol's bound.
func clipQuery(s string) string {
	if r := []rune(s); len(r) > 2000 {
		return string(r[:2000])
	}
	return s
}

type judged struct {
	ID, Text string
	right    map[relay.MechaNumber]bool
}

// profileIDs are the numbers that loadProfiles gave to the sets' own ids: a string of set and
// id, and a relay.MechaNumber. Tests load the same sets at the same time.
var profileIDs sync.Map

// numberOf returns the number of a profile, 0 if it was not loaded.
func numberOf(id string) relay.MechaNumber {
	n, _ := profileIDs.Load(id)
	number, _ := n.(relay.MechaNumber)
	return number
}

func loadProfiles(t testing.TB, dir, set string) []relay.Entry {
	t.Helper()
	var entries []relay.Entry
	seen := map[string]int{}
	eachLine(t, filepath.Join(dir, "profiles", set+".jsonl"), func(line []byte) {
		var p struct {
			ID, Name, Handle, Description, Details string
			Tags, Examples                         []string
			Skills                                 []struct{ Name, Description string }
		}
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		e := relay.Entry{Revision: int64(len(entries) + 1)}
		e.Number = relay.MechaNumber(len(entries) + 1)
		profileIDs.Store(set+"/"+p.ID, e.Number)
		name := addressName(p.Handle)
		seen[name]++
		e.Address = relay.Address(fmt.Sprintf("%s^c%d", name, seen[name]))
		e.DisplayName, e.Description, e.Details, e.Tags, e.Examples = p.Name, p.Description, p.Details, p.Tags, p.Examples
		for _, s := range p.Skills {
			e.Skills = append(e.Skills, relay.Skill{Name: s.Name, Description: s.Description})
		}
		entries = append(entries, e)
	})
	return entries
}

// addressName makes a handle the name of an address.
func addressName(handle string) string {
	s := strings.Map(func(r rune) rune {
		if r < 128 && (r == '.' || r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z') {
			return r
		}
		return '-'
	}, handle)
	s = strings.Trim(s, "._-")
	if s == "" {
		s = "x"
	}
	return s[:min(len(s), 64)]
}

func loadQueries(t testing.TB, dir, set string) []judged {
	t.Helper()
	profiles := set
	for _, s := range relevanceSets {
		if s.name == set {
			profiles = s.profiles
		}
	}
	right := map[string]map[relay.MechaNumber]bool{}
	eachLine(t, filepath.Join(dir, set, "qrels.tsv"), func(line []byte) {
		f := strings.Fields(string(line))
		if right[f[0]] == nil {
			right[f[0]] = map[relay.MechaNumber]bool{}
		}
		right[f[0]][numberOf(profiles+"/"+f[1])] = true
	})
	var list []judged
	eachLine(t, filepath.Join(dir, set, "queries.jsonl"), func(line []byte) {
		var q judged
		if err := json.Unmarshal(line, &q); err != nil {
			t.Fatal(err)
		}
		if q.right = right[q.ID]; q.right != nil {
			list = append(list, q)
		}
	})
	return list
}

func eachLine(t testing.TB, name string, f func([]byte)) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if len(lines.Bytes()) > 0 {
			f(lines.Bytes())
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}
