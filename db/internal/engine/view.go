package engine

import (
	"context"
	"errors"
	"time"

	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// As returns the viewer of a Mecha, or of the relay itself (0). The Mecha waits for its turns.
func (w *Store) As(of relay.MechaNumber) Turns { return Turns{w, of} }

// Turns reads in the turns of a Mecha.
type Turns struct {
	w  *Store
	of relay.MechaNumber
}

func (v Turns) Point(ctx context.Context, f func(*Rx) error) error {
	return v.w.ReadIn(ctx, v.w.Readers.Point(v.of), f)
}

func (v Turns) Scan(ctx context.Context, f func(*Rx) error) error {
	return v.w.ReadIn(ctx, v.w.Readers.Scan(v.of), f)
}

// In returns ReadIn for a turn.
func (w *Store) In(t readers.Turn) func(context.Context, func(*Rx) error) error {
	return func(ctx context.Context, f func(*Rx) error) error { return w.ReadIn(ctx, t, f) }
}

// ReadIn waits for the turn, and runs f in a read transaction on a connection of its lane.
// Errors: those of Take and f.
func (w *Store) ReadIn(ctx context.Context, t readers.Turn, f func(*Rx) error) error {
	c, err := t.Take(ctx)
	if err != nil {
		return err
	}
	defer t.Give(c)
	c.Until = time.Now().Add(maxRead)
	if err := c.Begin(); err != nil {
		return w.readFault(err)
	}
	defer c.Rollback() // ends the transaction, even if f panics; it has no changes
	return w.readFault(f(&Rx{C: c, Caches: w.Caches, Now: w.Opts.Now()}))
}

// maxRead bounds a read of the server, because the log grows for as long as a read
// sees an old state of the file. Every read is a page, and takes milliseconds.
const maxRead = 10 * time.Second

// readFault passes on the error of a read, and stops the store if it is fatal.
func (w *Store) readFault(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, sqlite.ErrTooLong):
		return &relay.Error{Code: relay.Overloaded, Detail: "the relay could not read this in time",
			RetryAfter: time.Second, Cause: err}
	case sqlite.IsFatal(err):
		w.Fail(err)
	}
	return err
}

// ErrNoRoom refuses any write, and ErrDiskFull messages.
func ErrNoRoom(cause error) error {
	return &relay.Error{Code: relay.DiskFull, Detail: "the disk is full; nothing was written", Cause: cause}
}

func ErrDiskFull() error {
	return relay.Errorf(relay.DiskFull, "the disk is full, or nearly so; messages are refused until there is space")
}
