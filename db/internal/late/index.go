package late

import (
	"slices"
	"sync"
)

// An Index remembers the items that its tables do not have, or did not have a short time ago,
// and inserts their rows. Make it with New. Only a server starts it; in other processes it
// finds nothing. Find, Missing and Lists are safe for concurrent use. All other methods are
// the writer's.
type Index[T Item[P], P ~int64] struct {
	Options[P]
	writing[P]

	mu sync.RWMutex // only the writer changes the fields below, so it reads without the lock
	// The three segments, or nil. indexed has been indexed, and is kept for reads that began
	// before that. The rows of indexing are being inserted. collecting gets the new items;
	// it is nil unless Start was called.
	indexed, indexing, collecting *segment[T, P]
	// open has the items of the present transaction. A read may see them before the writer
	// knows that they are committed, or they may never be.
	open []T
}

// New returns an index that was not started.
func New[T Item[P], P ~int64](o Options[P]) *Index[T, P] { return &Index[T, P]{Options: o} }

// segments returns the segments, the oldest first; each may be nil.
func (x *Index[T, P]) segments() [3]*segment[T, P] {
	return [...]*segment[T, P]{x.indexed, x.indexing, x.collecting}
}

// Begin begins a transaction, and forgets the items of one that was rolled back.
func (x *Index[T, P]) Begin() {
	if len(x.open) > 0 {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.open = x.open[:0]
	}
}

// Expect notes an item of the present transaction.
func (x *Index[T, P]) Expect(item T) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, item)
}

// Collects reports whether a segment that is not sealed has a row.
func (x *Index[T, P]) Collects(table int, r Row[P]) bool {
	return x.collecting != nil && x.collecting.tables[table].has(r)
}

// collect adds the expected items, which have been committed, to the collecting segment. Of
// the items in memory, it takes dropped rows out of a table, and removed items out of all.
func (x *Index[T, P]) collect(table int, dropped []Row[P], removed []T) {
	if len(x.open)+len(dropped)+len(removed) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, item := range x.open {
		x.collecting.add(item)
	}
	x.open = x.open[:0]
	for _, s := range x.segments() {
		for _, r := range dropped {
			if s.covers(r.At) {
				s.tables[table].remove(r)
			}
		}
		for _, item := range removed {
			if s.covers(item.Position()) {
				s.drop(item)
			}
		}
	}
}

// seal ends the collecting segment, whose rows are then inserted.
func (x *Index[T, P]) seal() *segment[T, P] {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.indexing, x.collecting = x.collecting, newSegment[T](len(x.Tables), x.collecting.last)
	x.indexing.upto = x.indexing.last
	return x.indexing
}

// finish notes that the file has all rows of the indexing segment.
func (x *Index[T, P]) finish() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.indexed, x.indexing = x.indexing, nil
}

// Find returns the positions in [from, to) of the items that have one of the keys, and that
// the tables may not have at the watermark after. many says that they are so many that a scan
// of the items is cheaper; then positions is nil. known is false if the watermark is too old
// for this memory, or if this process is not the server.
func (x *Index[T, P]) Find(after, from, to P, keys ...Key) (positions []P, many, known bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var found [][]P
	n, all := 0, len(x.open)
	for _, s := range x.segments() {
		if s == nil {
			continue
		}
		// true if the oldest segment begins at the watermark or before, since they are consecutive
		known = known || after >= s.after
		if after >= s.upto {
			continue
		}
		all += s.count
		for _, k := range keys {
			list := within(s.tables[k.Table][k.Of], from, to)
			found, n = append(found, list), n+len(list)
		}
	}
	if n*x.ScanRatio >= all && n > 0 && x.ScanRatio > 0 {
		return nil, true, known
	}
	positions = slices.Concat(found...)
	for _, item := range x.open {
		if at := item.Position(); from <= at && at < to && has[T, P](item, keys) {
			positions = append(positions, at)
		}
	}
	return positions, false, known
}

// within returns the part of a sorted list in [from, to).
func within[P ~int64](list []P, from, to P) []P {
	i, _ := slices.BinarySearch(list, from)
	j, _ := slices.BinarySearch(list[i:], to)
	return list[i : i+j]
}

// Missing returns how many items the tables do not have.
func (x *Index[T, P]) Missing() (items int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, s := range x.segments() {
		if s != nil && s != x.indexed {
			items += s.count
		}
	}
	return items
}
