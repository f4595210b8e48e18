package db

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/relay"
)

// A copy that follows a log is written by its server alone. So a command beside it, such as
// relay key create, hands its writes to the server (package admin), which proposes them.

// adminGreeting is what a command and the server of a file both know.
func adminGreeting(ids *relay.IDs) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(ids.Hash('a', 0, []byte("admin"))))
}

// serveAdmin takes the writes of commands from now on.
func (l *replication) serveAdmin() {
	d := l.db
	l.admin.Serve(admin.Handler{Apply: d.applyForAdmin, Status: d.statusForAdmin, Fault: func(err error) {
		d.w.Opts.Logger.Warn("cannot take the connection of a command just now", "error", err)
	}})
}

func (d *DB) statusForAdmin(ctx context.Context) (json.RawMessage, error) {
	if d.opts.Status == nil {
		return nil, relay.Errorf(relay.NotFound, "this server tells nothing of its log")
	}
	return d.opts.Status(ctx)
}

// LogStatus asks the server of the file at path for the status of its log (Options.Status).
// Errors: admin.ErrNoServer and admin.ErrEnded, that of ctx, and those of opening the file.
func LogStatus(ctx context.Context, path string) (json.RawMessage, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	c, _, err := file.OpenReadOnly(path)
	if err != nil {
		return nil, err
	}
	ids, err := file.ReadIDs(c, path)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, file.Explain(path, err)
	}
	client := admin.NewClient(path, adminGreeting(ids))
	defer client.Close()
	return client.Status(ctx)
}

// applyForAdmin proposes the write of a form. Once its outcome is known, and all nodes have
// it where they must (AwaitNodes), it calls done.
func (d *DB) applyForAdmin(ctx context.Context, form []byte, done func(error)) {
	write, err := relay.ReadWrite(form)
	if err != nil {
		done(err)
		return
	}
	j, err := d.w.Table.JobOf(write, func(_ any, err error) {
		if err != nil || !d.w.Table.DecidesKeys(write) {
			done(err)
			return
		}
		go func() { // the writer's goroutine has called this, and must not wait
			d.w.AwaitNodes(ctx, write)
			done(nil)
		}()
	})
	if err != nil {
		done(err)
		return
	}
	d.w.Enqueue(j, 0)
}

// handover is the Log of a command: it sends the writes to the server of the file.
type handover struct {
	w     *engine.Store
	admin *admin.Client
}

func (h *handover) Enqueue(j engine.Job, _ relay.MechaNumber) {
	form := relay.AppendWrite(nil, j.Shared())
	if len(form) > mostForm {
		h.w.FinishLater(j, errTooLong())
		return
	}
	h.admin.Send(form, func(err error) {
		switch {
		case errors.Is(err, admin.ErrEnded):
			err = errUnknown("the relay that serves the file has ended the connection", nil)
		case errors.Is(err, admin.ErrNoServer):
			err = fmt.Errorf("%s is one of several copies that follow a log, so only the relay that serves it may change it, and none does: start it with relay serve --cluster, or make the file a plain one with relay cluster leave", h.w.Path)
		}
		h.w.FinishLater(j, err)
	})
}

func (h *handover) Take() []engine.Op                           { return nil }
func (h *handover) Apply([]engine.Op)                           {}
func (h *handover) Keeps() bool                                 { return false }
func (h *handover) Time() int64                                 { return 0 }
func (h *handover) Used(relay.NonceHash) bool                   { return false }
func (h *handover) Waiting() (n int, oldest time.Time)          { return 0, time.Time{} }
func (h *handover) Await(context.Context, relay.Position) error { return nil }
func (h *handover) Applied() uint64                             { return 0 }
func (h *handover) Start()                                      {}
func (h *handover) Stop()                                       { h.Close() }
func (h *handover) Close()                                      { h.admin.Close() }
