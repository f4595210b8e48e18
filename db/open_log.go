package db

import (
	"errors"
	"fmt"

	"relay/db/admin"
	"relay/db/file"
	"relay/db/internal/engine"
)

// A Follower makes a store a copy that follows a log of writes, which several nodes share. A
// replication.Following is one.
type Follower interface {
	// Follow returns the log of a store, whose file is open and whose writer does not run yet.
	Follow(*engine.Store, engine.Hooks) (engine.Log, error)
}

// openLog has the store follow the log of Options.Log, or hand its writes over to the server of
// the file. It refuses a file that does not fit the options.
func (d *DB) openLog() error {
	w := d.w
	_, follows, err := file.ReadReplica(w.C)
	switch {
	case err != nil:
		return err
	case d.opts.Log != nil && !w.Opts.Serve:
		return errors.New("only a server can follow a log")
	case follows && d.server == nil && !w.Opts.Serve:
		client, err := admin.NewClient(w.Path)
		if err != nil {
			return err
		}
		d.server = &forwarder{Client: client, d: d}
		d.lock.Leave(false) // for the server that may yet come
		d.lock = nil
	}
	switch {
	case d.server != nil:
		d.server.follows, w.Forward = follows, d.server.take
		return nil
	case d.opts.Log != nil:
		w.Log, err = d.opts.Log.Follow(w, engine.Hooks{Settle: d.Retention.End, Unlisten: func() { d.admin.Close() }})
		return err
	case follows:
		return fmt.Errorf("%s belongs to a cluster: "+
			"start relay serve with --cluster, run commands while it runs, "+
			"or detach the file with relay cluster leave", w.Path)
	}
	return nil
}
