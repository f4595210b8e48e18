package turn

// A Batch says how many items, of how many bytes in all, are taken at a time.
type Batch struct{ Items, Bytes int }

// A Queue holds waiting items, the oldest first. Usually Take takes them all. If they are too
// many for one batch, their owners take turns: the batch gets the first item of each, then
// the second of each, and so on. So an owner with one item waits for one batch, however many
// items others have. The items of one owner keep their order. Make it with NewQueue. The
// caller must guard it with a lock.
type Queue[O comparable, T any] struct {
	places   int
	refused  Refused
	all, cut Batch
	items    []T
	wishes   []wish[O] // one for each item
	bytes    int       // of all items
	of       map[O]int // how many items each owner has
	spare    []T       // the array of the next items or of the next batch
	turns    []int     // while a batch is chosen: for each item, how many items of its owner are before it
}

type wish[O comparable] struct {
	of    O
	bytes int
}

// NewQueue returns an empty queue with a number of places. all bounds a batch that takes
// all items, and cut one that leaves some behind; cut is smaller, because those wait for
// the batch to end. Every batch takes the oldest item, however large it is.
func NewQueue[O comparable, T any](places int, all, cut Batch, refused Refused) Queue[O, T] {
	cut = Batch{min(all.Items, cut.Items), min(all.Bytes, cut.Bytes)}
	return Queue[O, T]{places: places, all: all, cut: cut, refused: refused, of: map[O]int{}}
}

// Add adds an item with its size in bytes. An owner may have as many items as there are
// free places. So one owner that floods the queue gets half of the places, two get a third
// each, and a place is always left for others. It returns the error of refused.
func (q *Queue[O, T]) Add(of O, bytes int, item T) error {
	var house O
	switch free, own := q.places-len(q.items), q.of[of]; {
	case free <= 0:
		return q.refused(0)
	case own >= free && of != house:
		return q.refused(own)
	}
	q.items, q.wishes = append(q.items, item), append(q.wishes, wish[O]{of, bytes})
	q.bytes += bytes
	q.of[of]++
	return nil
}

// Items returns the items that wait, the oldest first. The slice is valid until the
// queue's next change.
func (q *Queue[O, T]) Items() []T { return q.items }

// Take takes a batch. Reuse must follow before the next Take.
func (q *Queue[O, T]) Take() []T {
	if len(q.items) == 0 {
		return nil
	}
	var batch []T
	batch, q.spare = q.spare, nil
	if len(q.items) <= q.all.Items && q.bytes <= q.all.Bytes {
		batch, q.items = q.items, batch
		q.wishes, q.bytes = q.wishes[:0], 0
		clear(q.of)
		return batch
	}
	last, has := q.findTurns()
	return q.part(batch, func(i int) bool {
		more := has.plus(1, q.wishes[i].bytes)
		if q.turns[i] != last || i > 0 && !more.within(q.cut) {
			return q.turns[i] < last
		}
		has = more
		return true
	})
}

func (b Batch) plus(items, bytes int) Batch { return Batch{b.Items + items, b.Bytes + bytes} }
func (b Batch) within(bound Batch) bool     { return b.Items <= bound.Items && b.Bytes <= bound.Bytes }

// findTurns sets q.turns. It returns the first turn whose items do not all fit into a batch,
// and the items and bytes of the turns before it.
func (q *Queue[O, T]) findTurns() (last int, has Batch) {
	sums := make([]Batch, q.cut.Items+1) // of the turns; the last one cannot fit
	before := make(map[O]int, len(q.of))
	q.turns = q.turns[:0]
	for _, w := range q.wishes {
		turn := before[w.of]
		before[w.of]++
		q.turns = append(q.turns, turn)
		if turn < len(sums) {
			sums[turn] = sums[turn].plus(1, w.bytes)
		}
	}
	for more := sums[0]; more.within(q.cut); more = has.plus(sums[last].Items, sums[last].Bytes) {
		last, has = last+1, more
	}
	return last, has
}

// Remove takes out the items for which f returns true, and returns them.
func (q *Queue[O, T]) Remove(f func(T) bool) []T {
	return q.part(nil, func(i int) bool { return f(q.items[i]) })
}

// part appends to out the items that leave the queue. It calls leaves for each, in order.
func (q *Queue[O, T]) part(out []T, leaves func(i int) bool) []T {
	stay := 0
	for i, item := range q.items {
		w := q.wishes[i]
		if !leaves(i) {
			q.items[stay], q.wishes[stay] = item, w
			stay++
			continue
		}
		out = append(out, item)
		q.bytes -= w.bytes
		if q.of[w.of]--; q.of[w.of] == 0 {
			delete(q.of, w.of)
		}
	}
	clear(q.items[stay:])
	q.items, q.wishes = q.items[:stay], q.wishes[:stay]
	return out
}

// Reuse takes back the array of a finished batch. If Take returned nil, the caller may pass
// its own array.
func (q *Queue[O, T]) Reuse(batch []T) {
	clear(batch)
	if cap(batch) > cap(q.spare) {
		q.spare = batch[:0]
	}
}
