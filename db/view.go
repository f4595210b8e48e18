package db

import (
	"context"
	"errors"
	"time"

	"relay/db/internal/readers"
	"relay/db/internal/sqlite"
	"relay/db/relay"
)

// as gives the viewer that is a Mecha, or of the relay itself (0). The Mecha waits for its turns.
func (w *writer) as(of relay.MechaNumber) inTurns { return inTurns{w, of} }

// inTurns is a Mecha that reads.
type inTurns struct {
	w  *writer
	of relay.MechaNumber
}

func (v inTurns) point(ctx context.Context, f func(*rx) error) error {
	return v.w.readIn(ctx, v.w.readers.Point(v.of), f)
}

func (v inTurns) scan(ctx context.Context, f func(*rx) error) error {
	return v.w.readIn(ctx, v.w.readers.Scan(v.of), f)
}

// in gives readIn for a turn.
func (w *writer) in(t readers.Turn) func(context.Context, func(*rx) error) error {
	return func(ctx context.Context, f func(*rx) error) error { return w.readIn(ctx, t, f) }
}

// readIn waits for the turn, and runs f in a read transaction on a connection of its lane.
// Errors: those of take and of f.
func (w *writer) readIn(ctx context.Context, t readers.Turn, f func(*rx) error) error {
	c, err := t.Take(ctx)
	if err != nil {
		return err
	}
	defer t.Give(c)
	c.Until = time.Now().Add(longestRead)
	if err := c.Begin(); err != nil {
		return w.readFault(err)
	}
	defer c.Rollback() // ends the transaction, even if f panics; it has no changes
	return w.readFault(f(&rx{c: c, Lookups: w.Lookups, now: w.opts.Now()}))
}

// longestRead bounds a read of the server, because the log grows for as long as a read
// sees an old state of the file. Every read is a page, and takes milliseconds.
const longestRead = 10 * time.Second

// readFault passes on the error of a read, and stops the store if it is fatal.
func (w *writer) readFault(err error) error {
	switch {
	case err == nil:
	case errors.Is(err, sqlite.ErrTooLong):
		return &relay.Error{Code: relay.Overloaded, Detail: "the relay could not read this in time", RetryAfter: time.Second, Cause: err}
	case sqlite.IsFatal(err):
		w.fail(err)
	}
	return err
}

// errNoRoom refuses any write, and errDiskFull messages.
func errNoRoom(cause error) error {
	return &relay.Error{Code: relay.DiskFull, Detail: "the disk is full; nothing was written", Cause: cause}
}

func errDiskFull() error {
	return relay.Errorf(relay.DiskFull, "the disk is full, or nearly so; messages are refused until there is space")
}
