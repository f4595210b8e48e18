package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/readers"
	"relay/db/internal/retention"
	"relay/db/relay"
)

// Only the process that has the lock of a file writes to it. So while a server runs, a
// command such as relay key create hands its writes to the server (package admin), and has it
// remove messages and free space. served.go is the command's side.

// listen opens the socket for commands. A node of a log cannot run without it, since the node
// makes all other changes of its file.
func (d *DB) listen() (err error) {
	share := func(socket string) error { return file.Share(socket, d.w.Path) }
	d.admin, err = admin.Listen(d.w.Path, admin.Greeting(d.w.IDs), share)
	if err != nil && d.w.Log == nil {
		d.w.Opts.Logger.Warn("cannot open the socket for commands: "+
			"while this relay serves it, commands that change it are refused", "error", err)
		return nil
	}
	if err != nil {
		err = fmt.Errorf("%s: cannot open the socket for commands: %w", d.w.Path, err)
	}
	return err
}

// serveAdmin starts taking the requests of commands.
func (d *DB) serveAdmin() {
	if d.admin == nil {
		return
	}
	d.admin.Serve(admin.Handler{Apply: d.applyForAdmin, Answer: d.answerAdmin, Fault: func(err error) {
		d.w.Opts.Logger.Warn("cannot take the connection of a command just now", "error", err)
	}})
}

// applyForAdmin makes the write of a form. Once its outcome is known, and all nodes have
// applied a change of keys (AwaitNodes), it calls done.
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

// StatusQuestion asks a server for the status of its Options.Gate (admin.Client.Ask).
const StatusQuestion = `{"Status":true}`

// An errand is the question of a command, in JSON. One field is set.
type errand struct {
	Status bool // of Options.Gate
	retention.Errand
}

// PruneResult counts what a Prune has removed.
type PruneResult struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"payload_bytes"` // of the removed payloads
	Kept     int64 `json:"kept"`          // messages of that age that must stay for now (PROTOCOL §8)
}

func pruned(so retention.SoFar) PruneResult { return PruneResult{so.Messages, so.Bytes, so.Kept} }

func (d *DB) answerAdmin(ctx context.Context, question []byte, say func(json.RawMessage)) (json.RawMessage, error) {
	var o errand
	err := json.Unmarshal(question, &o)
	switch {
	case o.Status && d.opts.Gate != nil:
		return d.opts.Gate.Status(ctx)
	case err != nil || o.Before == 0 && o.Unused == 0:
		return nil, relay.Errorf(relay.InvalidRequest, "the relay that serves the file does not know this question")
	case o.Unused > 0 && d.w.Log != nil:
		return nil, file.FollowsLog(d.w.Path)
	}
	so, failed := d.Retention.Work(ctx, o.Errand, func(so retention.SoFar) {
		if text, err := json.Marshal(so); err == nil {
			say(text)
		}
	})
	if errors.Is(failed, context.Canceled) { // the command knows that if it ended itself
		failed = readers.ErrShuttingDown()
	}
	text, err := json.Marshal(so)
	return text, errors.Join(failed, err)
}
