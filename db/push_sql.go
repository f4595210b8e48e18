package db

import (
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"relay/db/relay"
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
	message relay.Position
}

// pushNotes holds the notes that no transaction has taken yet. As a rider it puts
// them into the next one.
type pushNotes struct {
	mu    sync.Mutex
	notes []pushed

	w      *writer // with the two below, the writer's alone
	taken  int     // notes in the transaction in hand
	packed []byte
}

// Notes beyond this number get a transaction at once; beyond ten times as many
// (the disk is full) new ones are dropped.
const manyNotes = 16 << 10

// Pushed notes that messages were written to a socket which the key had opened,
// for Trace; at is when the write began, before anybody can have answered. It
// does not wait. Safe for concurrent use.
func (d *DB) Pushed(key relay.KeyNumber, at time.Time, messages []relay.Position) {
	p := &d.w.pushes
	p.mu.Lock()
	for _, m := range messages {
		if len(p.notes) < 10*manyNotes {
			p.notes = append(p.notes, pushed{int64(key), at.UnixMilli(), m})
		}
	}
	many := len(p.notes) >= manyNotes
	p.mu.Unlock()
	if many {
		d.w.signal()
	}
}

func (p *pushNotes) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.notes)
}

func (p *pushNotes) many() bool { return p.len() >= manyNotes }

// flush makes a transaction for what no other one has taken along.
func (p *pushNotes) flush() {
	if p.w.failed() == nil && !p.w.disk.low.Load() && p.len() > 0 {
		p.w.commit(nil)
	}
}

func (p *pushNotes) board(t *tx) error {
	p.mu.Lock()
	notes := p.notes
	p.mu.Unlock()
	if p.taken = len(notes); p.taken == 0 {
		return nil
	}
	row := t.localPosition(time.UnixMilli(notes[len(notes)-1].at))
	p.packed = packPushes(p.packed[:0], row, notes)
	return t.c.Exec("INSERT INTO push (position, notes) VALUES (?, ?)", int64(row), p.packed)
}

func (p *pushNotes) arrived(*tx) {
	if p.taken == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = append(p.notes[:0], p.notes[p.taken:]...)
}

// packPushes writes notes as varints. What recurs from note to note, the key
// and nearly the time and the place, is left to differences.
func packPushes(b []byte, row relay.Position, notes []pushed) []byte {
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
func unpackPushes(b []byte, row relay.Position, f func(pushed)) error {
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
