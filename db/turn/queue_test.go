package turn_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"relay/db/turn"
)

// item is the number of an item among those of its owner.
type item struct{ of, number, bytes int }

func newQueue(places int, all, cut turn.Batch) turn.Queue[int, item] {
	return turn.NewQueue[int, item](places, all, cut, refuse)
}

// Whatever waits, a batch takes as many items of one owner as of another, if they have so
// many. An owner's items come in their order, and all of them in the end. A queue that fits
// into one batch is taken in the order in which its items came.
func TestABatchIsShared(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		all, cut := turn.Batch{Items: 1 + random.IntN(60), Bytes: 1 << 20}, turn.Batch{Items: 1 + random.IntN(30), Bytes: 1 << 20}
		q := newQueue(10_000, all, cut)
		var added, taken [6]int
		for range 40 {
			for range random.IntN(2 * all.Items) {
				of := max(random.IntN(12)-6, 0) // the house has most
				if err := q.Add(of, 1, item{of, added[of], 1}); err != nil {
					t.Fatal(err)
				}
				added[of]++
			}
			came, before := slices.Clone(q.Items()), taken
			batch := q.Take()
			for _, x := range batch {
				if x.number != taken[x.of] {
					t.Fatalf("seed %d: item %d of %d came as number %d", seed, x.number, x.of, taken[x.of])
				}
				taken[x.of]++
			}
			if fits := len(came) <= all.Items; fits && !slices.Equal(batch, came) || !fits && len(batch) != min(all.Items, cut.Items) {
				t.Fatalf("seed %d: a batch of %d items of %d, the bounds are %v and %v", seed, len(batch), len(came), all, cut)
			}
			for a := range taken {
				for b := range taken {
					if left := taken[a] < added[a]; left && taken[b]-before[b] > taken[a]-before[a]+1 {
						t.Fatalf("seed %d: a batch has %d items of %d, and %d of %d, which has more", seed, taken[b]-before[b], b, taken[a]-before[a], a)
					}
				}
			}
			q.Reuse(batch)
			if n := len(q.Items()); n != len(came)-len(batch) || n == 0 && q.Kept() > 0 {
				t.Fatalf("seed %d: %d of %d items wait after a batch of %d; it counts %d", seed, n, len(came), len(batch), q.Kept())
			}
		}
	}
}

// However many owners flood the queue, a place is left for one more.
func TestTheQueueHasAPlaceForEveryOwner(t *testing.T) {
	const places = 16 << 10
	q := newQueue(places, turn.Batch{Items: 512, Bytes: 1 << 20}, turn.Batch{Items: 128, Bytes: 1 << 20})
	var own [22]int
	add := func(of int) error {
		err := q.Add(of, 1, item{of: of})
		if err == nil {
			own[of]++
		}
		return err
	}
	for range places / 20 {
		for of := 1; of <= 20; of++ {
			add(of)
		}
	}
	if err := add(21); err != nil {
		t.Error(err)
	}
	if err := add(1); err != error(refusal(own[1])) {
		t.Errorf("an owner beyond its share got %v, it has %d", err, own[1])
	}
	for of := 1; of <= 20; of++ {
		if own[of] < places/22 {
			t.Errorf("owner %d has %d places", of, own[of])
		}
	}
	for len(q.Items()) < places {
		if err := add(0); err != nil {
			t.Fatal("the house has no share, and got", err)
		}
	}
	if err := add(0); err != error(refusal(0)) {
		t.Errorf("beyond all places the house got %v", err)
	}
	for batch := q.Take(); batch != nil; batch = q.Take() {
		if len(batch) > 512 {
			t.Fatalf("a batch of %d", len(batch))
		}
		q.Reuse(batch)
	}
	if len(q.Items())+q.Kept() > 0 {
		t.Errorf("the empty queue has %d items, and counts %d", len(q.Items()), q.Kept())
	}
}

// A batch has a bound in bytes. It takes the oldest item even if that is larger.
func TestABatchHasABoundInBytes(t *testing.T) {
	all, cut := turn.Batch{Items: 512, Bytes: 8 << 20}, turn.Batch{Items: 128, Bytes: 2 << 20}
	q := newQueue(1000, all, cut)
	sum := func(list []item) (bytes int) {
		for _, x := range list {
			bytes += x.bytes
		}
		return bytes
	}
	for i, bytes := range []int{1, all.Bytes + 1, 2, cut.Bytes, 3, all.Bytes, 4} {
		if err := q.Add(1+i%2, bytes, item{bytes: bytes}); err != nil {
			t.Fatal(err)
		}
	}
	for waiting := slices.Clone(q.Items()); len(waiting) > 0; waiting = slices.Clone(q.Items()) {
		batch := q.Take()
		if len(batch) == 0 || batch[0] != waiting[0] {
			t.Fatalf("a batch of %d items, without the oldest one, of %d bytes", len(batch), waiting[0].bytes)
		}
		if len(batch) > 1 && sum(batch) > cut.Bytes && sum(waiting) > all.Bytes {
			t.Errorf("a batch has %d bytes", sum(batch))
		}
		if sum(q.Items()) != sum(waiting)-sum(batch) {
			t.Errorf("%d bytes are left of %d, after %d", sum(q.Items()), sum(waiting), sum(batch))
		}
		q.Reuse(batch)
	}
}

// Removed items leave room for as many.
func TestItemsAreRemoved(t *testing.T) {
	q := newQueue(100, turn.Batch{Items: 100, Bytes: 100}, turn.Batch{Items: 10, Bytes: 10})
	for i := range 50 {
		if err := q.Add(1, 2, item{number: i, bytes: 2}); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Add(1, 1, item{}); err != error(refusal(50)) {
		t.Error(err)
	}
	removed := q.Remove(func(x item) bool { return x.number%2 == 0 })
	for i := range 25 {
		if removed[i].number != 2*i || q.Items()[i].number != 2*i+1 {
			t.Fatal(removed, q.Items())
		}
	}
	if err := q.Add(1, 50, item{number: 51}); err != nil {
		t.Error(err)
	}
	if batch := q.Take(); len(batch) != 26 { // it has just the 100 bytes that one batch may have
		t.Errorf("a batch of %d items", len(batch))
	}
}

// A queue keeps the array of a batch for the next one, even if nothing was taken meanwhile,
// and the caller has a smaller batch of its own.
func TestAQueueKeepsItsArrays(t *testing.T) {
	q := newQueue(1000, turn.Batch{Items: 200, Bytes: 1 << 20}, turn.Batch{Items: 100, Bytes: 1 << 20})
	own := make([]item, 3)
	allocated := testing.AllocsPerRun(100, func() {
		for i := range 150 {
			if err := q.Add(i%5, 1, item{}); err != nil {
				t.Fatal(err)
			}
		}
		q.Reuse(q.Take())
		q.Take() // nil
		q.Reuse(own)
	})
	if allocated > 0 {
		t.Errorf("%v allocations for a batch", allocated)
	}
}

func BenchmarkQueue(b *testing.B) {
	q := newQueue(16<<10, turn.Batch{Items: 512, Bytes: 8 << 20}, turn.Batch{Items: 128, Bytes: 2 << 20})
	b.ReportAllocs()
	for i := range b.N {
		if err := q.Add(i%7, 500, item{}); err != nil {
			b.Fatal(err)
		}
		if i%64 == 0 {
			q.Reuse(q.Take())
		}
	}
}
