package db

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"relay/db/relay"
)

// The tables `received` and `sent` are an index: they tell where a Mecha's
// messages stand. If every message brought its own two rows along, each would
// change two more pages, a different one for almost every Mecha: with a thousand
// Mechas the log would carry ten times what was sent. So a server updates these
// tables late. It collects a segment of messages in memory, sorts it, and inserts
// a piece of it with each transaction, while the next segment is collected. A page
// is then changed once for all of its new rows.
//
// The messages themselves are in the file from the first, so nothing can be lost
// here. The setting `indexed_upto` is a watermark: messages behind it may be
// missing from the index, and are found by looking through `message` from there
// on. A server remembers whose they are and need not look; other processes do.
// Both start from the watermark of their own snapshot, so that nothing falls
// between the two.

const (
	rowsPerMessage  = 2    // index rows of each table written for every new message: a segment is done when half the next has come
	rowsWhenClosing = 4096 // … in a transaction, when the store closes
)

// Variables, so that tests have many segments of few messages.
var (
	segmentLength = 16384 // messages
	leastRows     = 64    // index rows; fewer wait for the next transaction
	scanRatio     = 32    // messages that may be scanned for one that is wanted; beyond it a list is cheaper
)

// A segment is messages that came one after the other, with the Mechas they are of.
type segment struct {
	after, upto    relay.Position // exclusive, inclusive
	count          int
	received, sent map[relay.MechaID][]relay.Position
	pending        map[relay.MechaID][]relay.Position // of received, those that this process has not seen done
}

func newSegment(after relay.Position) *segment {
	return &segment{after: after, upto: relay.MaxPosition, received: map[relay.MechaID][]relay.Position{}, sent: map[relay.MechaID][]relay.Position{}, pending: map[relay.MechaID][]relay.Position{}}
}

func (s *segment) add(p relay.Position, recipient, sender relay.MechaID) {
	s.received[recipient] = append(s.received[recipient], p)
	s.pending[recipient] = append(s.pending[recipient], p)
	s.sent[sender] = append(s.sent[sender], p)
	s.count++
}

func (s *segment) hasPending(r mailboxRow) bool {
	_, there := slices.BinarySearch(s.pending[r.mecha], r.position)
	return there
}

// settle removes a message that is pending no longer.
func (s *segment) settle(r mailboxRow) {
	list := s.pending[r.mecha]
	i, there := slices.BinarySearch(list, r.position)
	switch {
	case there && i == 0: // as is usual: without moving the rest
		s.pending[r.mecha] = list[1:]
	case there:
		s.pending[r.mecha] = slices.Delete(list, i, i+1)
	}
}

// within gives the part of an ordered list in [from, to).
func within(list []relay.Position, from, to relay.Position) []relay.Position {
	i, _ := slices.BinarySearch(list, from)
	j, _ := slices.BinarySearch(list[i:], to)
	return list[i : i+j]
}

// A lateIndex is a server's memory of the messages that the index tables lack, or
// lacked not long ago. The zero value, which all others have, remembers nothing.
// It is safe for concurrent use; only the writer changes it.
type lateIndex struct {
	mu sync.RWMutex
	// The segments, oldest first: one that is indexed, for reads that began before
	// it was; one whose rows are being inserted; the one that collects. Nil if there
	// is none.
	indexed, indexing, collecting *segment
	// The messages of the transaction in hand. A read may see them before the writer
	// knows that they are committed, or they never are.
	open []*relay.Message
}

// expect notes the messages of a transaction that is about to be committed.
func (l *lateIndex) expect(messages []*relay.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = messages
}

// collect takes the expected messages, which have been committed, and forgets as
// pending those that are settled.
func (l *lateIndex) collect(settled []mailboxRow) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.open {
		l.collecting.add(m.Position, m.Recipient, m.Sender)
	}
	l.open = nil
	for _, r := range settled {
		for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
			if s != nil && s.after < r.position && r.position <= s.upto {
				s.settle(r)
			}
		}
	}
}

// seal ends the segment that collects at the last committed position, and makes it
// the one to be indexed.
func (l *lateIndex) seal(last relay.Position) *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexing, l.collecting = l.collecting, newSegment(last)
	l.indexing.upto = last
	return l.indexing
}

// finish notes that the file has all rows of the segment being indexed.
func (l *lateIndex) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexed, l.indexing = l.indexing, nil
}

// of returns the positions of a Mecha's messages in [from, to) that are not yet
// indexed at the watermark `after`. With pending, those that are done may be left
// out. many: there are so many that a scan of the table is cheaper; then positions
// is nil. known is false if the snapshot is too old to tell, or if this process
// does not serve.
func (l *lateIndex) of(id relay.MechaID, after, from, to relay.Position, pending bool) (positions []relay.Position, many, known bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var lists [][]relay.Position
	n, all := 0, len(l.open)
	for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
		if s == nil {
			continue
		}
		known = known || after >= s.after // of the oldest: they follow one another
		if after >= s.upto {
			continue
		}
		own := [][]relay.Position{s.received[id], s.sent[id]}
		if pending {
			own = [][]relay.Position{s.pending[id]}
		}
		all += s.count
		for _, list := range own {
			list = within(list, from, to)
			lists, n = append(lists, list), n+len(list)
		}
	}
	if n*scanRatio >= all && n > 0 {
		return nil, true, known
	}
	positions = slices.Concat(lists...)
	for _, m := range l.open {
		if (m.Recipient == id || m.Sender == id) && from <= m.Position && m.Position < to {
			positions = append(positions, m.Position)
		}
	}
	return positions, false, known
}

// A mailboxRow is a row of an index table.
type mailboxRow struct {
	mecha    relay.MechaID
	position relay.Position
}

// sorted gives the rows of one table in its order.
func sorted(of map[relay.MechaID][]relay.Position, count int) []mailboxRow {
	all := make([]mailboxRow, 0, count)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		for _, p := range of[id] {
			all = append(all, mailboxRow{id, p})
		}
	}
	return all
}

// jsonList writes positions as JSON, which is how SQLite takes many at once.
func jsonList[T any](all []T, position func(T) relay.Position) string {
	b := make([]byte, 0, 2+18*len(all))
	b = append(b, '[')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(position(v)), 10)
	}
	return string(append(b, ']'))
}
