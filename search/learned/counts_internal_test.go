package learned

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"relay/db/relay"
	"relay/search"
)

// A Mecha's words are cut to the weightiest, with what has faded counted as faded. Of equal ones
// the first of the alphabet stay, in whatever order they come.
func TestWeightiestWordsAreKept(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	m := relay.Learned{Mecha: 7, Position: 1, Exchanges: 9, At: at}
	for i := range 40 {
		w := relay.LearnedWord{Word: fmt.Sprintf("word%d", i), Weight: float64(1 + i%4), At: at, Crews: 2}
		if i%4 == 3 {
			w.At = at.Add(-4 * relay.DefaultHalfLife) // the weightiest once, and the least now
		}
		m.Words = append(m.Words, w)
	}
	l := New(nil, relay.DefaultHalfLife, nil)
	l.limit = 15
	kept := func() (list []uint32) {
		for hash := range l.countsOf(&m) {
			list = append(list, hash)
		}
		slices.Sort(list)
		return list
	}
	first := kept()
	var want []uint32
	for _, i := range []int{2, 6, 10, 14, 18, 22, 26, 30, 34, 38, 1, 13, 17, 21, 25} {
		want = append(want, search.HashTerm(fmt.Sprintf("word%d", i)))
	}
	slices.Sort(want)
	slices.Reverse(m.Words)
	if second := kept(); !slices.Equal(first, want) || !slices.Equal(second, want) {
		t.Errorf("kept %v, reversed %v, want %v", first, second, want)
	}
}

// When there is no room for all counts, fewer words of each Mecha are kept, and everything
// is read again.
func TestNoRoomForAllCounts(t *testing.T) {
	t.Parallel()
	l := New(nil, relay.DefaultHalfLife, nil)
	l.room = 100
	var page []relay.Learned
	for i := range 10 {
		m := relay.Learned{Mecha: relay.MechaNumber(i + 1), Position: relay.Position(i + 1), At: time.Unix(1e9, 0), Exchanges: 1}
		for k := range 50 {
			m.Words = append(m.Words, relay.LearnedWord{Word: fmt.Sprintf("word%d", k), Weight: 1, At: m.At, Crews: 1})
		}
		page = append(page, m)
	}
	tries := 1
	for ; !l.apply(page) && tries < 20; tries++ {
		if l.At() != 0 || l.counts != 0 {
			t.Fatalf("after it was full: position %d, %d counts", l.At(), l.counts)
		}
	}
	if l.counts > l.room || l.counts == 0 || l.At() != 10 {
		t.Errorf("after %d tries: %d counts with room for %d, position %d", tries, l.counts, l.room, l.At())
	}
	sum := 0
	for _, list := range l.words {
		sum += len(list)
		if !slices.IsSortedFunc(list, func(a, b count) int { return int(a.mecha) - int(b.mecha) }) {
			t.Error("counts of a word are not in the order of the Mechas")
		}
	}
	if sum != l.counts {
		t.Errorf("%d counts are there, %d are counted", sum, l.counts)
	}
}
