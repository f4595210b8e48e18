package search_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"testing"

	"relay/db/relay"
)

// The learning mode of the relevance harness: one half of a set's queries are the past,
// which were completed by the right Mechas, and the other half is the test. Which half a
// query is in depends on the hash of its text alone. The Mechas have at most so many
// exchanges each, from senders of five crews in turn.

const askingCrews = 5

type learningSet struct {
	name  string
	floor float64 // nDCG@10 of the test half with 30 exchanges a Mecha
	gain  float64 // by which that is above the figure without exchanges, at least
}

var learningSets = []learningSet{
	{"metatool", .80, .15}, {"metatool-ex", .82, .10}, {"stabletoolbench", .85, .005},
	{"sealtools", .945, 0}, {"livemcpbench", .62, .005}, {"nav", .93, -.0001},
}

// worst is by how much the figure of a set may be below that without exchanges, at any
// number of them: a fraction of one query.
const worst = .0015

func TestLearningRelevance(t *testing.T) {
	dir := discoveryData(t)
	numbers, most := []int{30}, 300
	sets := learningSets[1:3]
	if *long {
		numbers, most, sets = []int{1, 3, 10, 30}, 2000, learningSets
	}
	t.Logf("%-16s %7s %7s  nDCG@10 with 0 and %v exchanges a Mecha", "set", "past", "test", numbers)
	for _, set := range sets {
		s := newShelf(loadProfiles(t, dir, set.name)...)
		for i := range askingCrews {
			asker := mecha(relay.MechaNumber(1_000_000+i), fmt.Sprintf("asker^crew%d", i), "")
			asker.Visibility = relay.Unlisted
			s.put(asker)
		}
		x := mustFollow(t, t.TempDir(), s)
		waitFor(t, x, s.last)
		past, test := halves(loadQueries(t, dir, set.name))
		test = test[:min(len(test), most)]
		words := map[string][]string{}
		for _, q := range past {
			words[q.ID] = wordsOfQuery(t, x, q.Text)
		}
		before := measure(t, x, test).ndcg
		line, last := fmt.Sprintf("%.4f", before), before
		for _, n := range numbers {
			pastExchanges(past, words, n).teach(t, s, x)
			last = measure(t, x, test).ndcg
			line += fmt.Sprintf("  %.4f", last)
			if last < before-worst {
				t.Errorf("%s: %d exchanges a Mecha lower nDCG@10 from %.4f to %.4f", set.name, n, before, last)
			}
		}
		t.Logf("%-16s %7d %7d  %s", set.name, len(past), len(test), line)
		if last < set.floor || last-before < set.gain {
			t.Errorf("%s: nDCG@10 %.4f, after %.4f without exchanges: the floor is %.3f, the least gain %.3f", set.name, last, before, set.floor, set.gain)
		}
	}
}

// halves divides queries into past and test, and shuffles both, by the hashes of the texts.
func halves(queries []judged) (past, test []judged) {
	hash := func(q judged) uint64 {
		h := fnv.New64a()
		h.Write([]byte(q.Text))
		return h.Sum64() * 0x9E3779B97F4A7C15 // spreads the last letters over all bits
	}
	slices.SortFunc(queries, func(a, b judged) int { return cmp.Or(cmp.Compare(hash(a), hash(b)), cmp.Compare(a.ID, b.ID)) })
	for _, q := range queries {
		if hash(q)>>20&1 == 0 {
			past = append(past, q)
		} else {
			test = append(test, q)
		}
	}
	return past, test
}

// pastExchanges gives each Mecha the first n of its past queries as completed exchanges.
func pastExchanges(past []judged, words map[string][]string, n int) exchanges {
	x := exchanges{}
	for i, q := range past {
		for _, m := range slices.Sorted(maps.Keys(q.right)) {
			if x[m] != nil && x[m].exchanges >= n {
				continue
			}
			before := 0
			if x[m] != nil {
				before = x[m].exchanges
			}
			x.complete(m, relay.Address(fmt.Sprintf("asker%d^crew%d", i, (before+int(m))%askingCrews)), words[q.ID])
		}
	}
	return x
}
