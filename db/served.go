package db

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/retention"
	"relay/db/relay"
)

// forwarder sends the writes of a command to the server of the file.
type forwarder struct {
	*admin.Client
	d       *DB  // of the command
	follows bool // a log

	mu   sync.Mutex
	next *DB // has the file once the server is gone; nil while it is not known to be gone
}

func (h *forwarder) take(j engine.Job) {
	form := relay.AppendWrite(nil, j.Shared())
	if limit := admin.MaxBytes - 1<<20; len(form) > limit {
		h.d.w.FinishLater(j, relay.Errorf(relay.PayloadTooLarge,
			"the request is longer than the %d bytes that a command can hand over", limit))
		return
	}
	h.Send(form, func(err error) {
		ended := errors.Is(err, admin.ErrEnded)
		switch {
		case isGone(err) && !h.follows:
			go h.again(j, ended)
			return
		case ended:
			err = engine.ErrUnknown("the relay that serves the file has ended the connection", nil)
		case errors.Is(err, admin.ErrNoServer):
			err = fmt.Errorf("%s is one of several copies that follow a log, so only the relay that serves it may change it, "+
				"and none does: start it with relay serve --cluster, or make the file a plain one with relay cluster leave",
				h.d.w.Path)
		}
		h.d.w.FinishLater(j, err)
	})
}

// isGone reports whether err says that the server has gone.
func isGone(err error) bool {
	return errors.Is(err, admin.ErrEnded) || errors.Is(err, admin.ErrNoServer) ||
		relay.ErrorCode(err) == relay.ShuttingDown
}

// again repeats a write after the server of the file has gone. The next server makes it; without one,
// this process does. If the first server may have made the write (perhaps), again repeats only writes
// that may be made twice.
func (h *forwarder) again(j engine.Job, perhaps bool) {
	next, err := h.successor()
	write := j.Shared()
	if act, ok := write.(*relay.Act); ok && act.Write != nil {
		write = act.Write
	}
	if perhaps && err == nil {
		switch w := write.(type) {
		case *relay.IssueKey:
			if there, err := next.KeysByID(context.Background(), []relay.KeyID{w.ID}); err == nil && len(there) > 0 {
				h.d.w.FinishLater(j, file.SyncLog(h.d.w.Path)) // the server may have been killed before it did
				return
			}
		case *relay.RevokeKey, *relay.PutProfile, *relay.ForgetLearned:
		default:
			err = engine.ErrUnknown("the relay that serves the file has ended the connection", nil)
		}
	}
	if err == nil {
		_, err = next.Apply(j.Shared())
	}
	h.d.w.FinishLater(j, err)
}

// successor opens the file again, with another server or without one.
func (h *forwarder) successor() (_ *DB, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next == nil {
		h.next, err = Open(h.d.opts)
	}
	return h.next, err
}

func (h *forwarder) close() {
	h.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next != nil {
		h.next.Close()
	}
}

// Prune removes the messages of the file at path that were accepted before a time: by its server,
// whose caches, sockets and counts depend on them; or, if nobody serves the file, by serving it
// meanwhile. schema is the text of schema.sql. It calls say with the result so far, a few times a
// second. If ctx ends, Prune stops the removal and returns what was removed until then, with the
// error of ctx. Errors name the path.
func Prune(ctx context.Context, path, schema string, before time.Time, say func(PruneResult)) (PruneResult, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return PruneResult{}, err
	}
	want := retention.Errand{Before: relay.PositionAt(before)}
	so, err := carryOut(ctx, path, schema, want, func(so retention.SoFar) { say(pruned(so)) })
	return pruned(so), err
}

// GiveBack returns a number of bytes of unused pages of the file at path to the file system, a few at a
// time: by its server, or, if nobody serves the file, by serving it meanwhile. schema is the text of
// schema.sql. It calls say now and then with the bytes that have been freed.
func GiveBack(ctx context.Context, path, schema string, unused int64, say func(given int64)) error {
	_, err := carryOut(ctx, path, schema, retention.Errand{Unused: unused}, func(so retention.SoFar) { say(so.Given) })
	return err
}

// carryOut has the server of the file at path do an errand; or, if nobody serves the file, serves
// it meanwhile.
func carryOut(
	ctx context.Context, path, schema string, want retention.Errand, say func(retention.SoFar),
) (so retention.SoFar, err error) {
	d, err := Open(Options{Path: path, Schema: schema, Serve: true, MaxNonces: 1, ClockSkew: relay.MaxClockSkew})
	if errors.Is(err, admin.ErrServed) {
		return askServer(ctx, path, want, say)
	}
	if err != nil {
		return so, err
	}
	so, err = d.Retention.Work(ctx, want, say)
	for err == nil && d.Retention.IsAsked() && ctx.Err() == nil && d.Failed() == nil {
		time.Sleep(10 * time.Millisecond) // other commands have asked this one meanwhile
	}
	return so, file.Explain(path, errors.Join(err, d.Close()))
}

// askServer has the server of the file at path do an errand.
func askServer(
	ctx context.Context, path string, want retention.Errand, say func(retention.SoFar),
) (so retention.SoFar, err error) {
	question, err := json.Marshal(errand{Errand: want})
	if err != nil {
		return so, err
	}
	server, err := admin.NewClient(path)
	if err != nil {
		return so, err
	}
	defer server.Close()
	text, err := server.Ask(ctx, question, func(text json.RawMessage) {
		var now retention.SoFar
		if json.Unmarshal(text, &now) == nil {
			say(now)
		}
	})
	if text != nil {
		err = cmp.Or(err, json.Unmarshal(text, &so))
	}
	switch {
	case errors.Is(err, admin.ErrNoServer):
		err = errors.New("the relay that serves it does not answer; nothing was done")
	case isGone(err):
		err = errors.New("the server has stopped before this was done: run the command again")
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return so, err
}
