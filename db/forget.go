package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"relay/db/relay"
)

// OpenForgetful opens a store that keeps nothing, to measure everything that a
// send costs but the store. A send goes the whole way, through the queue to the
// writer and back, gets a place in the order and an id, is told to the listeners,
// and is forgotten: every 201 is a lie. Other writes are refused with Overloaded.
// Keys are issued by opening the file a second time. A file that exists is
// refused, so that it can never be somebody's.
func OpenForgetful(o Options) (*DB, error) {
	if _, err := os.Lstat(o.Path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists: to keep nothing, only a new file will do", o.Path)
	}
	o.Create = true
	return open(o, func(d *DB) { d.w.transact = d.w.forget })
}

// forget stands for a transaction.
func (w *writer) forget(ops []op) error {
	t := &w.batch
	t.begin(w)
	for i := range ops {
		switch j := ops[i].job.(type) {
		case *task[*relay.SendMessage, relay.Sent]:
			j.outcome = t.record(j.write, t.position(j.write.At), &relay.Key{}, 0, 0)
		case *task[*relay.ExpireDue, nextExpiry], *choreJob:
		default:
			ops[i].err = relay.Errorf(relay.Overloaded, "this relay keeps nothing: it takes messages only, and forgets them")
		}
	}
	w.last = t.last
	return nil
}
