package late

import (
	"maps"
	"slices"

	"relay/db/internal/sqlite"
)

// rowsWhenClosing is how many rows are inserted, at most, in one transaction when the store
// closes.
const rowsWhenClosing = 16384

// writing is the rows of the indexing segment. The rows of a transaction are neighbours in one
// table, because each table costs a transaction a page at each end of the rows, and the page
// above them.
type writing[P ~int64] struct {
	rest  []rest[P]  // the rows still to be inserted, one table after the other
	gone  map[P]bool // items of the segment that were removed since it was sealed
	upto  P          // the end of the segment
	due   int        // how many rows may be inserted now
	tried int        // how many rows of the first table the present transaction inserts
}

// rest is rows of a table, at least one.
type rest[P ~int64] struct {
	table int
	rows  []Row[P]
}

// Start begins to collect items after a watermark. read adds the items in the file, which
// are the first segment.
func (x *Index[T, P]) Start(after P, read func(add func(T)) error) error {
	s := newSegment[T](len(x.Tables), after)
	if err := read(s.add); err != nil {
		return err
	}
	if x.collecting = s; s.count > 0 {
		x.next()
	}
	return nil
}

// InsertOne inserts the rows of an item, which the memory then does not have.
func (x *Index[T, P]) InsertOne(c *sqlite.Conn, item T) error {
	for i, insert := range x.Tables {
		if of, is := item.Key(i); is && insert != nil {
			if err := insert(c, []Row[P]{{of, item.Position()}}); err != nil {
				return err
			}
		}
	}
	return nil
}

// InsertNow inserts all rows of the first segment in a transaction of its own.
func (x *Index[T, P]) InsertNow(c *sqlite.Conn) error {
	if err := c.BeginWrite(); err != nil {
		return err
	}
	for ; len(x.rest) > 0; x.inserted() {
		x.tried = len(x.rest[0].rows)
		if err := x.insert(c, nil); err != nil {
			c.Rollback()
			return err
		}
	}
	return c.Commit()
}

// next begins to insert the segment that has been collected.
func (x *Index[T, P]) next() {
	s := x.seal()
	x.writing = writing[P]{upto: s.upto}
	for i, l := range s.tables {
		if x.Tables[i] != nil && len(l) > 0 {
			x.rest = append(x.rest, rest[P]{i, l.sorted()})
		}
	}
}

// BeforeCommit inserts rows of the segment, if enough are due. removed are the items that the
// transaction removes.
func (x *Index[T, P]) BeforeCommit(c *sqlite.Conn, removed []T) error {
	x.tried = 0
	if len(x.rest) == 0 {
		return nil
	}
	n := len(x.rest[0].rows)
	if x.due += x.PerItem * len(x.open); x.due < min(x.MinRows, n) {
		return nil
	}
	x.tried = min(x.due, n)
	return x.insert(c, removed)
}

// insert inserts the tried rows and, after the last ones, stores the watermark.
func (x *Index[T, P]) insert(c *sqlite.Conn, removed []T) error {
	first := x.rest[0]
	if err := x.Tables[first.table](c, x.without(removed, first.rows[:x.tried])); err != nil {
		return err
	}
	if len(x.rest) > 1 || x.tried < len(first.rows) {
		return nil
	}
	return x.Watermark(c, x.upto)
}

// without leaves out the rows of items that were removed, by this transaction or since the
// segment was sealed.
func (x *Index[T, P]) without(removed []T, rows []Row[P]) []Row[P] {
	if len(removed)+len(x.gone) == 0 {
		return rows
	}
	gone := maps.Clone(x.gone)
	if gone == nil {
		gone = map[P]bool{}
	}
	for _, item := range removed {
		gone[item.Position()] = true
	}
	return slices.DeleteFunc(slices.Clone(rows), func(r Row[P]) bool { return gone[r.At] })
}

// AfterCommit notes what was committed: the expected items, the rows that BeforeCommit has
// inserted, rows that are not in a table any more, and items that were removed. When the segment
// is indexed, and the next one is long enough, AfterCommit begins to insert that.
func (x *Index[T, P]) AfterCommit(table int, dropped []Row[P], removed []T) {
	if x.collecting == nil {
		return
	}
	x.collect(table, dropped, removed)
	for _, item := range removed {
		if at := item.Position(); len(x.rest) > 0 && at <= x.upto {
			if x.gone == nil {
				x.gone = map[P]bool{}
			}
			x.gone[at] = true
		}
	}
	x.inserted()
	if len(x.rest) == 0 && x.collecting.count >= x.Segment {
		x.next()
	}
}

// inserted notes that the rows that were tried are committed.
func (x *Index[T, P]) inserted() {
	if x.tried == 0 {
		return
	}
	x.due -= x.tried
	if first := &x.rest[0]; x.tried < len(first.rows) {
		first.rows = first.rows[x.tried:]
	} else if x.rest = x.rest[1:]; len(x.rest) == 0 {
		x.finish()
	}
}

// left returns how many rows of the segment are still to be inserted.
func (x *Index[T, P]) left() (n int) {
	for _, r := range x.rest {
		n += len(r.rows)
	}
	return n
}

// Flush inserts the rows of all items before the store closes, while may returns true. commit
// makes a transaction, with BeforeCommit and AfterCommit. The next start inserts the rest.
func (x *Index[T, P]) Flush(may func() bool, commit func()) {
	for x.collecting != nil && may() {
		if len(x.rest) == 0 {
			if x.collecting.count == 0 {
				return
			}
			x.next()
		}
		before := x.left()
		x.due = rowsWhenClosing
		commit()
		if x.left() == before {
			return
		}
	}
}
