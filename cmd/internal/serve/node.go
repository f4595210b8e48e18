package serve

import (
	"context"
	"log/slog"

	"relay/db"
)

// A Node is a running node of a cluster, on which a store is opened.
type Node interface {
	// Configure sets the options by which a store follows the log of the cluster.
	Configure(*db.Options)
	// Attach sets the node's store.
	Attach(*db.DB)
	// Reload rereads the cluster file, whose members may have changed.
	Reload() error
	// Close stops the node, after the store.
	Close() error
}

// Joining describes, for a node, the server that is about to open the store.
type Joining struct {
	DB, Schema string // the path of the database, and the text of schema.sql
	Log        *slog.Logger
	Fatal      func(error) // is called if the process must end
}

// join returns the node of the first part that has one. If it is nil, the file is its own log.
func (all parts) join(ctx context.Context, j Joining) (Node, error) {
	for _, p := range all {
		if p.Join == nil {
			continue
		}
		if n, err := p.Join(ctx, j); n != nil || err != nil {
			return n, err
		}
	}
	return nil, nil
}
