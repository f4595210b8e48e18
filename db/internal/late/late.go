// Package late is a write-behind index: it maintains index tables that a server writes behind.
// The items of such an index, such as messages, are in the file at once; only the rows by
// which they are found come later. If each transaction wrote its own rows, it would change
// pages of its own in every table. So an Index collects a segment of items in memory, sorts
// their rows, and inserts part of them with each transaction, while it collects the next
// segment. A page is then changed once for all of its new rows.
//
// A watermark in the file says up to which position the tables have all items. A read finds
// the later ones in the memory of the Index, by the watermark of its own transaction, so that
// it misses none in between. A process without this memory scans the items from the watermark
// on. The items after it are the first segment of the next start, so nothing can be lost.
//
// The package knows neither what the items are nor their tables: an Item names the keys by
// which it is found, and Options have the statements.
package late

import (
	"maps"
	"slices"

	"relay/db/internal/sqlite"
)

// A Key is a value by which items are found: Of in a table. The tables are numbered from 0.
type Key struct {
	Table int
	Of    int64
}

// A Row is a row of a table: the item at a position is found by Of.
type Row[P ~int64] struct {
	Of int64
	At P
}

// An Item is what an index finds. Later items have greater positions.
type Item[P ~int64] interface {
	Position() P
	// Key returns the value by which the item is found in a table, or false if it is not in the table.
	Key(table int) (of int64, is bool)
}

// has reports whether an item is found by one of the keys.
func has[T Item[P], P ~int64](item T, keys []Key) bool {
	for _, k := range keys {
		if of, is := item.Key(k.Table); is && of == k.Of {
			return true
		}
	}
	return false
}

// Options say what an Index writes, and how.
type Options[P ~int64] struct {
	// Tables insert rows, which come in the order of the table's primary key. The tables are
	// written one after the other. A nil table is in memory alone.
	Tables    []func(c *sqlite.Conn, rows []Row[P]) error
	Watermark func(c *sqlite.Conn, upto P) error // stores the watermark

	Segment   int // items of a segment, or more
	PerItem   int // rows that are inserted, at most, for every new item
	MinRows   int // rows; fewer wait for the next transaction, unless they end a table
	ScanRatio int // a scan is cheaper than a list if one of so many items, or more, is wanted; 0 means never
}

// lists are sorted lists of positions, by the keys of a table.
type lists[P ~int64] map[int64][]P

func (l lists[P]) has(r Row[P]) bool {
	_, there := slices.BinarySearch(l[r.Of], r.At)
	return there
}

// remove removes a row, if it exists.
func (l lists[P]) remove(r Row[P]) {
	list := l[r.Of]
	i, there := slices.BinarySearch(list, r.At)
	switch {
	case there && len(list) == 1:
		delete(l, r.Of)
	case there && i == 0: // the usual case, in which the rest need not be moved
		l[r.Of] = list[1:]
	case there:
		l[r.Of] = slices.Delete(list, i, i+1)
	}
}

// sorted returns the rows in the order of the table's primary key.
func (l lists[P]) sorted() (all []Row[P]) {
	for _, of := range slices.Sorted(maps.Keys(l)) {
		for _, at := range l[of] {
			all = append(all, Row[P]{of, at})
		}
	}
	return all
}

// A segment has consecutive items, as the tables find them.
type segment[T Item[P], P ~int64] struct {
	after, upto P // the positions that it covers: after is exclusive, upto inclusive
	last        P // the greatest position of its items
	count       int
	tables      []lists[P]
}

func newSegment[T Item[P], P ~int64](tables int, after P) *segment[T, P] {
	s := &segment[T, P]{after: after, upto: 1<<63 - 1, last: after, tables: make([]lists[P], tables)}
	for i := range s.tables {
		s.tables[i] = lists[P]{}
	}
	return s
}

func (s *segment[T, P]) add(item T) {
	at := item.Position()
	for i, l := range s.tables {
		if of, is := item.Key(i); is {
			l[of] = append(l[of], at)
		}
	}
	s.last, s.count = at, s.count+1
}

// drop removes an item that was removed from the file.
func (s *segment[T, P]) drop(item T) {
	for i, l := range s.tables {
		if of, is := item.Key(i); is {
			l.remove(Row[P]{of, item.Position()})
		}
	}
	s.count--
}

// covers reports whether an item at a position is or was in the segment.
func (s *segment[T, P]) covers(at P) bool { return s != nil && s.after < at && at <= s.upto }
