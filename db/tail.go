package db

import (
	"maps"
	"slices"
	"strconv"
	"sync"
)

// Where a Mecha's messages stand is told by the tables `received` and `sent`. If
// every message brought its two entries along, each would change two more pages,
// one for almost every Mecha: with a thousand of them the log would carry ten
// times what was sent. So a server files late: it gathers a run of messages,
// and files it, sorted, a piece with each transaction, while the next run comes
// in. A page is then changed once for all of its new entries.
//
// The messages themselves are in the file from the first, so nothing can be lost
// here: what has not been filed stands behind the position `filed` of the table
// setting, and is found by looking through the messages behind it. The server
// keeps in memory whose they are, and need not look; whoever else reads the file
// does. Both start from `filed` as their own snapshot has it, so that nothing
// falls between the two.

const (
	filedFor   = 2    // entries of each kind filed for every new message: a run is done when half the next has come
	filedAtEnd = 4096 // in a transaction, when the store closes
)

// Variables, so that tests have many runs of few messages.
var (
	runLength   = 16384 // messages
	filedAtOnce = 64    // entries; fewer wait for the next transaction
	sparse      = 32    // messages that may be looked through for one that is wanted; else a list is the better way
)

// A run is messages that came one after the other, and whose they are, in order.
type run struct {
	after, upto    Position // exclusive, inclusive
	count          int
	received, sent map[MechaID][]Position
	pending        map[MechaID][]Position // of received, what nobody here has seen done
}

func newRun(after Position) *run {
	return &run{after: after, upto: maxPosition, received: map[MechaID][]Position{}, sent: map[MechaID][]Position{}, pending: map[MechaID][]Position{}}
}

func (r *run) add(p Position, recipient, sender MechaID) {
	r.received[recipient] = append(r.received[recipient], p)
	r.pending[recipient] = append(r.pending[recipient], p)
	r.sent[sender] = append(r.sent[sender], p)
	r.count++
}

func (r *run) hasPending(e entry) bool {
	_, there := slices.BinarySearch(r.pending[e.mecha], e.position)
	return there
}

// close takes out what is pending no longer.
func (r *run) close(e entry) {
	list := r.pending[e.mecha]
	i, there := slices.BinarySearch(list, e.position)
	switch {
	case there && i == 0: // as is usual: without moving the rest
		r.pending[e.mecha] = list[1:]
	case there:
		r.pending[e.mecha] = slices.Delete(list, i, i+1)
	}
}

// within gives those of a list from a position on (inclusive) to another (exclusive).
func within(list []Position, from, to Position) []Position {
	i, _ := slices.BinarySearch(list, from)
	j, _ := slices.BinarySearch(list[i:], to)
	return list[i : i+j]
}

// A tail is the messages that a server has not filed, or not long ago.
type tail struct {
	mu sync.RWMutex
	// The runs, oldest first: one that has been filed, for reads that began before
	// that; one being filed; the one that gathers. Nil if there is none.
	filed, filing, gathering *run
	// Those of the transaction in hand: a read may see them before the writer
	// hears that they have been committed, or they never are.
	open []*Message
}

// expect notes the messages of a transaction that is about to be committed.
func (t *tail) expect(messages []*Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = messages
}

// gather takes them into the run that gathers: they have been committed. So has
// what done names, which is pending no longer.
func (t *tail) gather(done []entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.open {
		t.gathering.add(m.Position, m.Recipient, m.Sender)
	}
	t.open = nil
	for _, e := range done {
		for _, r := range []*run{t.filed, t.filing, t.gathering} {
			if r != nil && r.after < e.position && e.position <= r.upto {
				r.close(e)
			}
		}
	}
}

// seal makes the run that gathers the one to be filed. It ends with the last
// position that has been committed.
func (t *tail) seal(last Position) *run {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filing, t.gathering = t.gathering, newRun(last)
	t.filing.upto = last
	return t.filing
}

// finish is called when the file says that the run has been filed.
func (t *tail) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filed, t.filing = t.filing, nil
}

// of gives the messages of a Mecha from a position on (inclusive) to another
// (exclusive) that have not been filed in a snapshot whose `filed` is after; or
// tells that they are many, so that looking for them in the file is better. With
// pending, what is done may be left out. known is false if the snapshot is so old
// that this is not known, or if it never is: this is not the server.
func (t *tail) of(id MechaID, after, from, to Position, pending bool) (positions []Position, many, known bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var lists [][]Position
	n, all := 0, len(t.open)
	for _, r := range []*run{t.filed, t.filing, t.gathering} {
		if r == nil {
			continue
		}
		known = known || after >= r.after // of the oldest: they follow one another
		if after >= r.upto {
			continue
		}
		own := [][]Position{r.received[id], r.sent[id]}
		if pending {
			own = [][]Position{r.pending[id]}
		}
		all += r.count
		for _, list := range own {
			list = within(list, from, to)
			lists, n = append(lists, list), n+len(list)
		}
	}
	if n*sparse >= all && n > 0 {
		return nil, true, known
	}
	positions = slices.Concat(lists...)
	for _, m := range t.open {
		if (m.Recipient == id || m.Sender == id) && from <= m.Position && m.Position < to {
			positions = append(positions, m.Position)
		}
	}
	return positions, false, known
}

// filing is the run being filed, in the order of the tables. It belongs to the writer.
type filing struct {
	received, sent []entry // of what is left
	upto           Position
	due            int // entries of each kind
	tried          int // those of the transaction in hand
}

type entry struct {
	mecha    MechaID
	position Position
}

// sorted gives the entries of one kind in the order of their table.
func sorted(of map[MechaID][]Position, count int) []entry {
	all := make([]entry, 0, count)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		for _, p := range of[id] {
			all = append(all, entry{id, p})
		}
	}
	return all
}

// list writes positions as JSON, which is how SQLite takes many at once.
func list[T any](all []T, position func(T) Position) string {
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
