package db

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"relay/db/relay"
)

// OpenForgetful opens a store that keeps no messages, to measure the cost of a send
// without the store. A send goes through the queue to the writer and back, gets a
// position and an id, and reaches the listeners, but is not written: every 201 is
// false. Other writes are refused with Overloaded; to issue keys, open the file a
// second time with Open. OpenForgetful refuses a file that exists, so that it cannot
// be used on real data.
func OpenForgetful(o Options) (*DB, error) {
	if _, err := os.Lstat(o.Path); !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s exists: a store that keeps nothing needs a new file", o.Path)
	}
	o.Create, o.forgetful = true, true
	return open(o, func(d *DB) { d.w.transact = d.w.forget })
}

// forget takes the place of attempt. It makes no transaction.
func (w *writer) forget(ops []op) error {
	t := &w.batch
	t.begin(w)
	for i := range ops {
		switch j := ops[i].job.(type) {
		case *task[*relay.SendMessage, relay.Sent]:
			j.outcome, ops[i].err = t.record(j.write, t.position(j.write.At), &relay.Key{}, addressee{address: j.write.To}, 0)
		case *task[*relay.ExpireDue, nextDue]:
		case *choreJob:
			if _, ok := j.chore.(*SaveSearch); ok {
				ops[i].err = errForgetful()
			}
		default:
			ops[i].err = errForgetful()
		}
	}
	w.last = t.last
	return nil
}

func errForgetful() error {
	return relay.Errorf(relay.Overloaded, "this relay keeps nothing: it takes messages only, and forgets them")
}
