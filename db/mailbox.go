package db

import (
	"maps"
	"slices"
	"strconv"
	"sync"

	"relay/db/relay"
)

// The tables `received`, `sent`, `joined` and `reply` are an index: they tell which messages
// a Mecha has received and sent, which have joined a conversation, and which answer a
// message. If every message were indexed with its own transaction, it would change up to
// four more pages, different ones for almost every message. With a thousand Mechas
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
	rowsPerMessage  = 8     // rows inserted, at most, for every new message; a segment is then indexed when half of the next one has come, since no message has more than four
	rowsWhenClosing = 16384 // rows inserted, at most, in one transaction when the store closes
)

// These are variables, so that tests can have many segments of few messages.
var (
	segmentLength = 16384 // messages
	leastRows     = 256   // rows; fewer wait for the next transaction, unless they end a table
	scanRatio     = 32    // a scan is cheaper than a list if one of so many messages is wanted, or more
)

// An indexedMessage is what the index tables, and the conversations, need to know of a
// message.
type indexedMessage struct {
	position          relay.Position
	recipient, sender relay.MechaNumber
	conversation      int64          // message.conversation; 0: the message founded its conversation
	question          relay.Position // message.in_reply_to; 0: it answers none
}

// positionLists are lists of positions, in order, by what an index table finds them by: the
// number of a Mecha or a conversation, or the position of a question.
type positionLists map[int64][]relay.Position

func (l positionLists) add(of int64, p relay.Position) { l[of] = append(l[of], p) }

func (l positionLists) has(r indexRow) bool {
	_, there := slices.BinarySearch(l[r.of], r.position)
	return there
}

// remove removes a row, if it is there.
func (l positionLists) remove(r indexRow) {
	list := l[r.of]
	i, there := slices.BinarySearch(list, r.position)
	switch {
	case there && len(list) == 1:
		delete(l, r.of)
	case there && i == 0: // the usual case, in which the rest need not be moved
		l[r.of] = list[1:]
	case there:
		l[r.of] = slices.Delete(list, i, i+1)
	}
}

// sorted gives the rows of a table in the order of its primary key.
func (l positionLists) sorted() []indexRow {
	var all []indexRow
	for _, of := range slices.Sorted(maps.Keys(l)) {
		for _, p := range l[of] {
			all = append(all, indexRow{of, p})
		}
	}
	return all
}

// A segment has consecutive messages, as the index tables find them.
type segment struct {
	after, upto    relay.Position // the positions of the segment: after is exclusive, upto inclusive
	count          int
	received, sent positionLists // by Mecha
	pending        positionLists // those of received that are not settled
	joined         positionLists // by conversation; without founding messages
	replies        positionLists // by question
}

func newSegment(after relay.Position) *segment {
	return &segment{after: after, upto: relay.MaxPosition, received: positionLists{}, sent: positionLists{}, pending: positionLists{},
		joined: positionLists{}, replies: positionLists{}}
}

func (s *segment) add(m indexedMessage) {
	s.received.add(int64(m.recipient), m.position)
	s.pending.add(int64(m.recipient), m.position)
	s.sent.add(int64(m.sender), m.position)
	if m.conversation != 0 {
		s.joined.add(m.conversation, m.position)
	}
	if m.question != 0 {
		s.replies.add(int64(m.question), m.position)
	}
	s.count++
}

// has tells whether the segment covers a position.
func (s *segment) has(p relay.Position) bool { return s != nil && s.after < p && p <= s.upto }

// drop removes a message that was removed from the store.
func (s *segment) drop(m indexedMessage) {
	for _, l := range []struct {
		lists positionLists
		of    int64
	}{
		{s.pending, int64(m.recipient)}, {s.received, int64(m.recipient)}, {s.sent, int64(m.sender)},
		{s.joined, m.conversation}, {s.replies, int64(m.question)},
	} {
		l.lists.remove(indexRow{l.of, m.position})
	}
	s.count--
}

// wanted says which messages are looked for: those of a Mecha, those that have joined a
// conversation, or those that answer a question. One of the three is set.
type wanted struct {
	mecha        relay.MechaNumber
	pending      bool // of the Mecha's messages, received ones that are pending; others may be left out
	conversation int64
	question     relay.Position
}

// lists gives the lists of a segment that have the messages.
func (w wanted) lists(s *segment) [][]relay.Position {
	switch {
	case w.conversation != 0:
		return [][]relay.Position{s.joined[w.conversation]}
	case w.question != 0:
		return [][]relay.Position{s.replies[int64(w.question)]}
	case w.pending:
		return [][]relay.Position{s.pending[int64(w.mecha)]}
	}
	return [][]relay.Position{s.received[int64(w.mecha)], s.sent[int64(w.mecha)]}
}

// has tells whether a message is one of them.
func (w wanted) has(m indexedMessage) bool {
	switch {
	case w.conversation != 0:
		return m.conversation == w.conversation
	case w.question != 0:
		return m.question == w.question
	}
	return m.recipient == w.mecha || m.sender == w.mecha
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
	open []indexedMessage
}

// expect notes the messages of a transaction, just before its commit.
func (l *lateIndex) expect(messages []indexedMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = messages
}

// collect adds the expected messages, which have been committed, to the collecting
// segment. It takes settled messages out of the pending ones, and removed ones out of all.
func (l *lateIndex) collect(settled []indexRow, removed []indexedMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.open {
		l.collecting.add(m)
	}
	l.open = nil
	for _, r := range settled {
		for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
			if s.has(r.position) {
				s.pending.remove(r)
			}
		}
	}
	for _, m := range removed {
		for _, s := range []*segment{l.indexed, l.indexing, l.collecting} {
			if s.has(m.position) {
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

// find returns the positions of the wanted messages in [from, to) that are not yet indexed
// at the watermark `after`. many says that there are so many that a scan of the table is
// cheaper; then positions is nil. known is false if the watermark is too old for this
// memory, or if this process does not serve.
func (l *lateIndex) find(w wanted, after, from, to relay.Position) (positions []relay.Position, many, known bool) {
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
		all += s.count
		for _, list := range w.lists(s) {
			list = within(list, from, to)
			lists, n = append(lists, list), n+len(list)
		}
	}
	if n*scanRatio >= all && n > 0 {
		return nil, true, known
	}
	positions = slices.Concat(lists...)
	for _, m := range l.open {
		if w.has(m) && from <= m.position && m.position < to {
			positions = append(positions, m.position)
		}
	}
	return positions, false, known
}

// An indexRow is a row of an index table.
type indexRow struct {
	of       int64 // a Mecha, a conversation or a question, as in positionLists
	position relay.Position
}

// jsonList writes numbers as a JSON array, the form in which one argument of a
// statement can have many.
func jsonList[T any, N ~int64](all []T, number func(T) N) string {
	b := make([]byte, 0, 2+18*len(all))
	b = append(b, '[')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(number(v)), 10)
	}
	return string(append(b, ']'))
}
