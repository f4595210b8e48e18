package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/file"
	"relay/db/look"
)

func (a *App) DBFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.DBPath, "db", "relay.db", "the database `file`")
}

// CreateFlag is DBFlag for commands that may come before the first relay serve.
// Without --create, a mistyped path would quietly get a database of its own.
func (a *App) CreateFlag(cmd *cobra.Command) {
	a.DBFlag(cmd)
	cmd.Flags().BoolVar(&a.MayCreate, "create", false, "create the database if there is none, as relay serve does")
}

// WithDB opens the database for one command that may change it.
func (a *App) WithDB(create bool, f func(*db.DB) error) error {
	d, err := db.Open(db.Options{Path: a.DBPath, Schema: a.Schema, Create: create, By: a.Actor()})
	if err != nil {
		return system.Denied(a.DBPath, true, err)
	}
	if err := f(d); err != nil {
		d.Close()
		// SQLite opens a file that it may not write, and then only reads
		return system.Denied(a.DBPath, true, file.Explain(d.Path(), err))
	}
	return d.Close()
}

// WithInspector opens the database for one command that only reads it.
func (a *App) WithInspector(f func(*look.Inspector) error) error {
	in, err := look.Inspect(a.DBPath)
	if err != nil {
		return system.Denied(a.DBPath, false, err)
	}
	defer in.Close()
	err = f(in)
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: not everything was read")
	}
	return Plain(file.Explain(in.Path(), err))
}
