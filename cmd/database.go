package cmd

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/file"
)

func (a *app) dbFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.dbPath, "db", "relay.db", "the database `file`")
}

// createFlag is dbFlag for commands that may come before the first relay serve.
// Without --create, a mistyped path would quietly get a database of its own.
func (a *app) createFlag(cmd *cobra.Command) {
	a.dbFlag(cmd)
	cmd.Flags().BoolVar(&a.create, "create", false, "create the database if there is none, as relay serve does")
}

// withDB opens the database for one command that may change it.
func (a *app) withDB(create bool, f func(*db.DB) error) error {
	d, err := db.Open(db.Options{Path: a.dbPath, Schema: a.schema, Create: create, By: a.actor()})
	if err != nil {
		return system.Denied(a.dbPath, true, err)
	}
	if err := f(d); err != nil {
		d.Close()
		return system.Denied(a.dbPath, true, file.Explain(d.Path(), err)) // SQLite opens a file that it may not write, and then only reads
	}
	return d.Close()
}

// withInspector opens the database for one command that only reads it.
func (a *app) withInspector(f func(*db.Inspector) error) error {
	in, err := db.Inspect(a.dbPath)
	if err != nil {
		return system.Denied(a.dbPath, false, err)
	}
	defer in.Close()
	err = f(in)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: not everything was read")
	}
	return plain(file.Explain(in.Path(), err))
}
