package db

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/sqlite"
	"relay/db/lock"
	"relay/db/relay"
)

// relay prune has messages removed by the process that serves the file, because that has
// caches, sockets and counts that must know. It writes a row into the table `prune`, and
// waits until the server has done it. If nobody serves the file, the command does, for as
// long as it takes.

// PruneOptions says what to remove from a file. Path and Schema are required.
type PruneOptions struct {
	Path     string
	Schema   string                      // the text of schema.sql
	Before   time.Time                   // messages that were accepted before this time are removed
	Progress func(messages, total int64) // called a few times a second; may be nil
	Total    int64                       // for Progress: how many are expected
}

// PruneResult says what a Prune has removed.
type PruneResult struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"payload_bytes"` // of the removed payloads
	Kept     int64 `json:"kept"`          // messages of that age that must stay for now (PROTOCOL §8)
}

const (
	pruneWait = 200 * time.Millisecond // between two looks at what the server has done
	stuckFull = 10 * time.Second       // after which a command that serves by itself does not wait for room on the disk
)

// serverGone is after how long a command does not wait for a server that has stopped. It is a
// variable, so that tests need not wait so long.
var serverGone = 10 * time.Second

// Prune removes messages from the file at o.Path, also while a server runs on it. If ctx
// ends, Prune stops the removal and returns what was removed until then, with the error
// of ctx. Errors name the path.
func Prune(ctx context.Context, o PruneOptions) (PruneResult, error) {
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return PruneResult{}, err
	}
	o.Path = path
	d, err := Open(Options{Path: path, Schema: o.Schema})
	if err != nil {
		return PruneResult{}, err
	}
	id, err := d.askPrune(relay.PositionAt(o.Before))
	if closed := d.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return PruneResult{}, file.Explain(path, err)
	}
	server, err := serveFor(o)
	if err != nil {
		return PruneResult{}, err
	}
	result, err := awaitPrune(ctx, o, id, server)
	if server != nil {
		err = errors.Join(err, server.Close())
	}
	return result, err
}

// serveFor serves the file if nobody does. Else it returns nil.
func serveFor(o PruneOptions) (*DB, error) {
	held, err := file.Lock(o.Path)
	if errors.Is(err, lock.ErrHeld) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := held.Close(); err != nil {
		return nil, err
	}
	d, err := Open(Options{Path: o.Path, Schema: o.Schema, Serve: true, MaxNonces: 1, ClockSkew: relay.MaxClockSkew})
	if errors.Is(err, errServed) { // by a server that has just started
		return nil, nil
	}
	return d, err
}

// errServed refuses a file that another process serves.
var errServed = errors.New("is already being served by another process")

// askPrune writes the row that asks for a removal.
func (d *DB) askPrune(before relay.Position) (id int64, err error) {
	a := &pruneRequest{at: d.w.Opts.Now(), before: before}
	done := make(chan error, 1)
	d.w.Submit(a, 0, func(err error) { done <- err })
	err = <-done
	return a.id, err
}

// pruneRequest is the chore of askPrune.
type pruneRequest struct {
	at     time.Time
	before relay.Position
	id     int64 // apply sets it
}

func (p *pruneRequest) Size() int { return 0 }

func (p *pruneRequest) Apply(t *engine.Tx) error {
	_, err := t.C.Row(func(r *sqlite.Rows) { p.id = r.Int(0) }, "INSERT INTO prune (asked_at, before) VALUES (?, ?) RETURNING id", p.at.UnixMilli(), int64(p.before))
	return err
}

// awaitPrune waits until a request is done. server is the one that this command runs; nil:
// another process serves.
func awaitPrune(ctx context.Context, o PruneOptions, id int64, server *DB) (result PruneResult, err error) {
	real, err := filepath.EvalSymlinks(o.Path)
	if err != nil {
		return result, err
	}
	c, err := sqlite.Open(o.Path, sqlite.Writing)
	if err != nil {
		return result, err
	}
	defer c.Close()
	tick := time.NewTicker(pruneWait)
	defer tick.Stop()
	served, moved := time.Now(), time.Now() // when a server was seen last; when the result changed last
	for {
		now, ended, err := readRequest(c, o.Path, id, server != nil)
		if err == nil && (ended || ctx.Err() != nil) {
			err := c.Exec("DELETE FROM prune WHERE id = ?", id)
			if ended && sqlite.IsDiskFull(err) {
				err = nil // a later removal deletes the row
			}
			return now, errors.Join(ctx.Err(), err)
		}
		if err != nil {
			return result, err
		}
		if now != result {
			result, moved = now, time.Now()
		}
		if o.Progress != nil {
			o.Progress(result.Messages, o.Total)
		}
		if held, err := lock.IsHeld(real + ".lock"); held || err != nil { // an error: this system does not tell
			served = time.Now()
		}
		switch {
		case time.Since(served) > serverGone:
			return result, fmt.Errorf("%s: the server has stopped; it goes on with the removal when it is started again", o.Path)
		case server == nil:
		case server.Failed() != nil:
			return result, server.Failed()
		case time.Since(moved) > stuckFull && !server.AcceptsMessages():
			return result, fmt.Errorf("%s: the disk is full, and nothing more can be removed: make room, and the next relay prune or relay serve goes on", o.Path)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// readRequest reads how far a request has come. ended says that it is done; with all, that
// those of other commands are done, too, which wait for this one because it serves.
func readRequest(c *sqlite.Conn, path string, id int64, all bool) (result PruneResult, ended bool, err error) {
	found, err := c.Row(func(r *sqlite.Rows) { result, ended = PruneResult{r.Int(0), r.Int(1), r.Int(2)}, r.Int(3) != 0 },
		"SELECT messages, bytes, kept, ended_at IS NOT NULL AND (?2 = 0 OR NOT EXISTS (SELECT 1 FROM prune WHERE ended_at IS NULL)) FROM prune WHERE id = ?1", id, all)
	if err == nil && !found {
		err = fmt.Errorf("%s: another relay has taken the request away", path)
	}
	return result, ended, err
}
