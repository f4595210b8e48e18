package progress

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// The store keeps a note of every message that is written to a socket, for traces, in the
// cheapest durable form. A note is kept in memory first and packed into one row of the
// next transaction. Nobody waits for that. Without another transaction within a quarter
// of a second, the notes get their own. A killed process may lose its latest notes.

// Pushed is the note of one message that was written to one socket.
type Pushed struct {
	Key     int64 // the number of the key that opened the socket
	At      int64 // Unix ms
	Message relay.Position
}

// pushNotes has the notes that no transaction has taken yet, and writes them.
type pushNotes struct {
	mu    sync.Mutex
	notes []Pushed

	// Only the writer's goroutine uses the fields below.

	w      *engine.Store
	taken  int    // how many notes the present transaction has
	packed []byte // reused
}

// manyNotes is the number of notes that get a transaction at once. At ten times as many,
// because the disk is full, new ones are dropped.
const manyNotes = 16 << 10

// Pushed notes, for Trace, that messages were written to a socket that the key had
// opened. at is when the writing began, before any answer can have come. It does not
// wait. Any goroutine may call it.
func (room *Progress) Pushed(key relay.KeyNumber, at time.Time, messages []relay.Position) {
	p := &room.pushes
	p.mu.Lock()
	had := len(p.notes)
	for _, m := range messages {
		if len(p.notes) < 10*manyNotes {
			p.notes = append(p.notes, Pushed{int64(key), at.UnixMilli(), m})
		}
	}
	many := had < manyNotes && len(p.notes) >= manyNotes
	p.mu.Unlock()
	if many {
		room.w.Submit(someTransaction{}, 0, func(error) {})
	}
}

// someTransaction is a local write of no rows: it brings about a transaction that takes the notes.
type someTransaction struct{}

func (someTransaction) Apply(*engine.Tx) error { return nil }
func (someTransaction) Size() int              { return 0 }

func (p *pushNotes) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.notes)
}

// flush makes a transaction for the notes, if there are any.
func (p *pushNotes) flush() {
	if p.w.Failed() == nil && !p.w.Disk.Low.Load() && p.len() > 0 {
		p.w.Commit(nil)
	}
}

func (p *pushNotes) beforeCommit(t *engine.Tx) error {
	p.mu.Lock()
	notes := p.notes
	p.mu.Unlock()
	if p.taken = len(notes); p.taken == 0 {
		return nil
	}
	row := t.LocalPosition(time.UnixMilli(notes[len(notes)-1].At))
	p.packed = packPushes(p.packed[:0], row, notes)
	return t.C.Exec("INSERT INTO push (position, notes) VALUES (?, ?)", int64(row), p.packed)
}

func (p *pushNotes) afterCommit(*engine.Tx) {
	if p.taken == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = append(p.notes[:0], p.notes[p.taken:]...)
}

// packPushes writes notes as varints. Each value is the difference from the note before,
// because keys, times and positions are often nearly the same.
func packPushes(b []byte, row relay.Position, notes []Pushed) []byte {
	last := Pushed{At: row.Time().UnixMilli(), Message: row}
	for _, n := range notes {
		b = binary.AppendVarint(b, n.Key-last.Key)
		b = binary.AppendVarint(b, n.At-last.At)
		b = binary.AppendVarint(b, int64(n.Message-last.Message))
		last = n
	}
	return b
}

// ReadPushes calls f with up to limit notes of rows of push, or with all if limit is 0. It
// returns the position of the last row, and how many rows there were.
func ReadPushes(r *sqlite.Rows, limit int, f func(Pushed)) (last relay.Position, rows int, err error) {
	notes := 0
	for (limit == 0 || notes < limit) && r.Next() {
		last, rows = relay.Position(r.Int(0)), rows+1
		err := unpackPushes(r.Blob(1), last, func(p Pushed) {
			notes++
			f(p)
		})
		if err != nil {
			r.Close()
			return last, rows, err
		}
	}
	return last, rows, r.Close()
}

var errPushes = errors.New("the notes of pushed messages are damaged")

// unpackPushes calls f with every note of a row.
func unpackPushes(b []byte, row relay.Position, f func(Pushed)) error {
	n := Pushed{At: row.Time().UnixMilli(), Message: row}
	for len(b) > 0 {
		for _, to := range [...]*int64{&n.Key, &n.At, (*int64)(&n.Message)} {
			v, size := binary.Varint(b)
			if size <= 0 {
				return errPushes
			}
			*to += v
			b = b[size:]
		}
		f(n)
	}
	return nil
}
