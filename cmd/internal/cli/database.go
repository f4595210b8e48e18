package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/file"
	"relay/db/look"
	"relay/db/relay"
)

func (a *App) DBFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.DBPath, "db", "relay.db", "the database `file`")
}

// CreateFlag is DBFlag for commands that may run before the first relay serve. --create exists so that a
// mistyped path does not silently become a new database.
func (a *App) CreateFlag(cmd *cobra.Command) {
	a.DBFlag(cmd)
	cmd.Flags().BoolVar(&a.MayCreate, "create", false, "create the database if it does not exist, as relay serve does")
}

// WithDB opens the database for one command that may change it.
func (a *App) WithDB(create bool, f func(*db.DB) error) error {
	d, err := db.Open(db.Options{Path: a.DBPath, Schema: a.Schema, Create: create, By: a.Actor()})
	if err != nil {
		return system.Denied(a.DBPath, true, err)
	}
	if err := f(d); err != nil {
		d.Close()
		// SQLite opens a file that it may not write, and reads only
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

// Copied is the output, with --json, of commands that copy a database.
type Copied struct {
	File     string `json:"file"`
	Bytes    int64  `json:"bytes"`
	Messages int64  `json:"messages"`
	Mechas   int64  `json:"mechas"`
	Checked  bool   `json:"checked"`
	TookMS   int64  `json:"took_ms"`
}

// CopiedJSON returns the output, with --json, for one copy.
func CopiedJSON(r file.BackupResult, o file.BackupOptions, took time.Duration) Copied {
	return Copied{r.Path, r.Bytes, r.Messages, r.Mechas, !o.Unchecked, took.Milliseconds()}
}

// NotCopied turns the error of a backup into a sentence for the user.
func (a *App) NotCopied(o file.BackupOptions, r file.BackupResult, err error) error {
	if file.IsFaulty(err) {
		from, _ := filepath.Abs(o.From)
		return fmt.Errorf("the copy has %s and was not kept; relay check --db %s shows whether the database has them too, "+
			"and --no-check keeps the copy anyway", show.Count(r.Faults, "fault"), relay.ShellWord(from))
	}
	return system.Denied(o.To, true, system.Denied(o.From, false, err))
}
