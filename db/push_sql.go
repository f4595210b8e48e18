package db

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"
)

// What was written to sockets is kept for whoever traces a message, in the
// cheapest durable form: noted in memory as it happens, and packed into one row
// of the next transaction, whatever that is for. Nobody waits for it. If
// nothing else is written, it gets a transaction of its own at the next poll.
// A process that is killed may lose the notes of its last moments.

// pushed is one message written to one socket.
type pushed struct {
	key     int64 // with which the socket was opened
	at      int64 // Unix ms
	message Position
}

// pushLog holds the notes that no transaction has taken yet.
type pushLog struct {
	mu    sync.Mutex
	notes []pushed
}

// Notes beyond this number get a transaction at once; beyond ten times as many
// (the disk is full) new ones are dropped.
const manyNotes = 16 << 10

// Pushed notes that messages were written to a socket which the key had opened,
// for Trace; at is when the write began, before anybody can have answered. It
// does not wait. Safe for concurrent use.
func (d *DB) Pushed(key *Key, at time.Time, messages []Position) {
	l := &d.pushes
	l.mu.Lock()
	for _, p := range messages {
		if len(l.notes) < 10*manyNotes {
			l.notes = append(l.notes, pushed{key.Number, at.UnixMilli(), p})
		}
	}
	many := len(l.notes) >= manyNotes
	l.mu.Unlock()
	if many {
		d.w.signal()
	}
}

func (l *pushLog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.notes)
}

// writePushes puts the notes into the transaction; forgetPushes drops them
// once it has been committed.
func (t *tx) writePushes() error {
	l := &t.d.pushes
	l.mu.Lock()
	notes := l.notes
	l.mu.Unlock()
	if len(notes) == 0 {
		return nil
	}
	t.pushes = len(notes)
	p := t.position(time.UnixMilli(notes[len(notes)-1].at))
	t.w.packed = packPushes(t.w.packed[:0], p, notes)
	return t.c.exec("INSERT INTO push (position, notes) VALUES (?, ?)", int64(p), t.w.packed)
}

func (l *pushLog) forget(n int) {
	if n == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes[:0], l.notes[n:]...)
}

// packPushes writes notes as varints. What recurs from note to note, the key
// and nearly the time and the place, is left to differences.
func packPushes(b []byte, row Position, notes []pushed) []byte {
	last := pushed{at: row.Time().UnixMilli(), message: row}
	for _, n := range notes {
		b = binary.AppendVarint(b, n.key-last.key)
		b = binary.AppendVarint(b, n.at-last.at)
		b = binary.AppendVarint(b, int64(n.message-last.message))
		last = n
	}
	return b
}

var errPushes = errors.New("damaged notes of what was pushed")

// unpackPushes calls f with every note of a row.
func unpackPushes(b []byte, row Position, f func(pushed)) error {
	n := pushed{at: row.Time().UnixMilli(), message: row}
	for len(b) > 0 {
		for _, to := range [...]*int64{&n.key, &n.at, (*int64)(&n.message)} {
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
