package db

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"relay/db/relay"
)

// The tables `received` and `sent` are an index: they tell which messages a Mecha has
// received and sent. If every message were indexed with its own transaction, it would
// change two more pages, different ones for almost every Mecha. With a thousand Mechas
// the log would grow to ten times the size of the messages. So a server updates these
// tables late. It collects a segment of messages in memory, sorts it, and inserts part
// of it with each transaction, while it collects the next segment. A page is then
// changed once for all of its new rows.
//
// The messages themselves are in the file at once, so nothing can be lost here. The
// setting `indexed_upto` is a watermark: messages after it may be missing from the
// index, and are found by a scan of `message` from there on. A server remembers the
// messages of each Mecha after the watermark, in its late index, and need not scan;
// other processes scan. Every read goes by the watermark of its own transaction, so
// that it misses no message in between.

const (
	rowsPerMessage  = 2    // rows inserted into each table for every new message; a segment is then indexed when half of the next one has come
	rowsWhenClosing = 4096 // rows inserted into each table in one transaction when the store closes
)

// These are variables, so that tests can have many segments of few messages.
var (
	segmentLength = 16384 // messages
	leastRows     = 64    // rows; fewer wait for the next transaction
	scanRatio     = 32    // a scan is cheaper than a list if one of so many messages is wanted, or more
)

// A segment has consecutive messages, by the Mechas that received and sent them.
type segment struct {
	after, upto    relay.Position // the positions of the segment: after is exclusive, upto inclusive
	count          int
	received, sent map[relay.MechaNumber][]relay.Position
	pending        map[relay.MechaNumber][]relay.Position // those of received that are not settled
}

func newSegment(after relay.Position) *segment {
	return &segment{after: after, upto: relay.MaxPosition, received: map[relay.MechaNumber][]relay.Position{}, sent: map[relay.MechaNumber][]relay.Position{}, pending: map[relay.MechaNumber][]relay.Position{}}
}

func (s *segment) add(p relay.Position, recipient, sender relay.MechaNumber) {
	s.received[recipient] = append(s.received[recipient], p)
	s.pending[recipient] = append(s.pending[recipient], p)
	s.sent[sender] = append(s.sent[sender], p)
	s.count++
}

func (s *segment) hasPending(r mailboxRow) bool {
	_, there := slices.BinarySearch(s.pending[r.mecha], r.position)
	return there
}

// remove removes a message that is no longer pending.
func (s *segment) remove(r mailboxRow) {
	list := s.pending[r.mecha]
	i, there := slices.BinarySearch(list, r.position)
	switch {
	case there && i == 0: // the usual case, in which the rest need not be moved
		s.pending[r.mecha] = list[1:]
	case there:
		s.pending[r.mecha] = slices.Delete(list, i, i+1)
	}
}

// drop removes a message that was removed from the store.
func (s *segment) drop(m removedMessage) {
	s.remove(mailboxRow{m.recipient, m.position})
	for _, l := range []struct {
		lists map[relay.MechaNumber][]relay.Position
		of    relay.MechaNumber
	}{{s.received, m.recipient}, {s.sent, m.sender}} {
		list := l.lists[l.of]
		i, there := slices.BinarySearch(list, m.position)
		switch {
		case there && len(list) == 1:
			delete(l.lists, l.of)
		case there && i == 0: // the usual case
			l.lists[l.of] = list[1:]
		case there:
			l.lists[l.of] = slices.Delete(list, i, i+1)
		}
	}
	s.count--
}

// within gives the part of a sorted list in [from, to).
func within(list []relay.Position, from, to relay.Position) []relay.Position {
	i, _ := slices.BinarySearch(list, from)
	j, _ := slices.BinarySearch(list[i:], to)
	return list[i : i+j]
}

// A lateIndex remembers the messages that the index tables lack, or lacked a short
// time ago. Only a server fills it; in other processes it stays the zero value. It is
// safe for concurrent use; only the writer changes it.
type lateIndex struct {
	mu sync.RWMutex
	// The three segments, oldest first; nil if there is none. indexed has been
	// indexed, and is kept for reads that began before that. The rows of indexing are
	// being inserted. collecting gets the new messages.
	indexed, indexing, collecting *segment
	// open has the messages of a transaction whose COMMIT has begun. A read may see
	// them before the writer knows that they are committed, or they may never be.
	open []*relay.Message
}

// expect notes the messages of a transaction, just before its commit.
func (l *lateIndex) expect(messages []*relay.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = messages
}

// collect adds the expected messages, which have been committed, to the collecting
// segment. It takes settled messages out of the pending ones, and removed ones out of all.
func (l *lateIndex) collect(settled []mailboxRow, removed []removedMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.open {
		l.collecting.add(m.Position, m.Recipient, m.Sender)
	}
	l.open = nil
	for _, r := range settled {
		for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
			if s != nil && s.after < r.position && r.position <= s.upto {
				s.remove(r)
			}
		}
	}
	for _, m := range removed {
		for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
			if s != nil && s.after < m.position && m.position <= s.upto {
				s.drop(m)
			}
		}
	}
}

// seal ends the collecting segment at the last committed position and returns it, to
// be indexed.
func (l *lateIndex) seal(last relay.Position) *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexing, l.collecting = l.collecting, newSegment(last)
	l.indexing.upto = last
	return l.indexing
}

// finish notes that the file has all rows of the indexing segment.
func (l *lateIndex) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.indexed, l.indexing = l.indexing, nil
}

// of returns the positions of a Mecha's messages in [from, to) that are not yet indexed
// at the watermark `after`. With pending, settled messages may be left out. many says
// that there are so many that a scan of the table is cheaper; then positions is nil.
// known is false if the watermark is too old for this memory, or if this process does
// not serve.
func (l *lateIndex) of(id relay.MechaNumber, after, from, to relay.Position, pending bool) (positions []relay.Position, many, known bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var lists [][]relay.Position
	n, all := 0, len(l.open)
	for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
		if s == nil {
			continue
		}
		known = known || after >= s.after // true if the oldest segment begins at the watermark or before, since they are consecutive
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
	mecha    relay.MechaNumber
	position relay.Position
}

// sorted gives the rows of one table in the order of its primary key.
func sorted(of map[relay.MechaNumber][]relay.Position, count int) []mailboxRow {
	all := make([]mailboxRow, 0, count)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		for _, p := range of[id] {
			all = append(all, mailboxRow{id, p})
		}
	}
	return all
}

// jsonList writes positions as a JSON array, the form in which one argument of a
// statement can have many.
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
