package search_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"relay/db/relay"
)

// A generator makes profiles and queries of words with the frequencies of
// natural text: of the sets in RELAY_DISCOVERY_DATA, or invented ones.
type generator struct {
	rand  *rand.Rand
	words []string // the most frequent first
	sums  []float64
}

func newGenerator(t testing.TB, seed uint64) *generator {
	g := &generator{rand: rand.New(rand.NewPCG(seed, 1))}
	if dir := os.Getenv("RELAY_DISCOVERY_DATA"); dir != "" {
		g.words = wordsOfSets(t, dir)
	} else {
		for range 8000 {
			g.words = append(g.words, g.syllables())
		}
	}
	sum := 0.0
	for i := range g.words {
		sum += 1 / math.Pow(float64(i+3), 0.9) // Zipf, without a word that all have
		g.sums = append(g.sums, sum)
	}
	return g
}

// wordsOfSets returns the words of two sets' profiles by their frequency.
func wordsOfSets(t testing.TB, dir string) []string {
	counts := map[string]int{}
	for _, set := range []string{"sealtools", "stabletoolbench"} {
		for _, e := range loadProfiles(t, dir, set) {
			for _, w := range strings.FieldsFunc(strings.ToLower(e.Description+" "+e.Details), func(r rune) bool { return r < 'a' || r > 'z' }) {
				if len(w) > 3 {
					counts[w]++
				}
			}
		}
	}
	words := make([]string, 0, len(counts))
	for w := range counts {
		words = append(words, w)
	}
	slices.SortFunc(words, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	return words
}

func (g *generator) syllables() string {
	var b strings.Builder
	for range 2 + g.rand.IntN(3) {
		b.WriteByte("bcdfghklmnprstvz"[g.rand.IntN(16)])
		b.WriteByte("aeiou"[g.rand.IntN(5)])
	}
	return b.String()
}

func (g *generator) word() string {
	i, _ := slices.BinarySearch(g.sums, g.rand.Float64()*g.sums[len(g.sums)-1])
	return g.words[min(i, len(g.words)-1)]
}

func (g *generator) text(words int) string {
	list := make([]string, words)
	for i := range list {
		list[i] = g.word()
	}
	return strings.Join(list, " ")
}

// entry is a profile as they come: a name of two words, a description, tags,
// two skills with examples.
func (g *generator) entry(id int) relay.Entry {
	e := mecha(relay.MechaNumber(id), fmt.Sprintf("%s-%s-%d^crew%d", g.word(), g.word(), id, id%50), g.text(12))
	e.Tags = []string{g.word() + "/" + g.word(), g.word()}
	e.Languages = []string{[]string{"en", "de", "fr"}[id%3]}
	for range 2 {
		e.Skills = append(e.Skills, relay.Skill{ID: g.word(), Name: g.text(2), Description: g.text(8), Examples: []string{g.text(7)}})
	}
	return e
}

func (g *generator) entries(n int) []relay.Entry {
	list := make([]relay.Entry, n)
	for i := range list {
		list[i] = g.entry(i + 1)
	}
	return list
}
