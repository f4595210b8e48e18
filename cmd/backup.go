package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"relay/db/file"
	"relay/search"
)

func (a *app) backupCommand() *cobra.Command {
	var o file.BackupOptions
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the database, also while a server runs on it",
		Long: `Copy the database to FILE, also while a server runs on it: one state of it, in
which every message stands whose 201 came before the command began. The copy is
checked like relay check does before it gets its name; FILE is there whole, or
not at all. A few seconds for each GiB the server cannot shorten its log, and
goes on all the while.

The copy is one file, readable by its owner only. Keep it as safe as the
database: it holds all messages, and the signing secrets of keys that have one.
The search index is not in it, and not needed: a server makes it anew.`,
		Example: `  relay backup /backups/relay-$(date +%F).db
  relay backup --db /var/lib/relay/relay.db latest.db --force --json`,
		Args: exactly(1, "one file to copy to"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = a.dbPath, args[0]
			return a.backup(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Replace, "force", false, "replace FILE if it is there")
	cmd.Flags().BoolVar(&o.Unchecked, "no-check", false, "keep the copy unchecked, as of a database that has faults")
	a.dbFlag(cmd)
	return cmd
}

func (a *app) backup(ctx context.Context, o file.BackupOptions) error {
	progress, end := a.reporting()
	o.Schema, o.Progress = a.schema, progress
	began := time.Now()
	r, err := file.Backup(ctx, o)
	end()
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: no copy was made")
	case file.IsFaulty(err):
		from, _ := filepath.Abs(o.From)
		return fmt.Errorf("the copy has %s, and was not kept; relay check --db %s tells if the database has them, and --no-check copies it all the same", several(r.Faults, "fault"), from)
	case err != nil:
		return err
	}
	if a.json {
		return a.printJSON(copied{r.Path, r.Bytes, r.Messages, r.Mechas, !o.Unchecked, time.Since(began).Milliseconds(), nil})
	}
	fmt.Fprintf(a.stdout, "%s: %s, %s\n", r.Path, mebibytes(r.Bytes), contents(r, o))
	_, err = fmt.Fprintln(a.stderr, "(it holds messages and signing secrets: keep it as safe as the database)")
	return err
}

// copied is what backup and restore print with --json.
type copied struct {
	File     string  `json:"file"`
	Bytes    int64   `json:"bytes"`
	Messages int64   `json:"messages"`
	Mechas   int64   `json:"mechas"`
	Checked  bool    `json:"checked"`
	TookMS   int64   `json:"took_ms"`
	Kept     *string `json:"kept,omitempty"` // where the replaced database is
}

func contents(r file.BackupResult, o file.BackupOptions) string {
	checked := "checked"
	if o.Unchecked {
		checked = "not checked"
	}
	return fmt.Sprintf("%d messages, %d Mechas, %s", r.Messages, r.Mechas, checked)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func (a *app) restoreCommand() *cobra.Command {
	var o file.BackupOptions
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the database's place",
		Long: `Put a checked copy of the backup FILE in the database's place. No server may run
on it. If there is a database already, --force replaces it, and keeps it under
another name: remove that when you no longer need it. The search index goes; the
server makes it anew.

What came after the backup is not in it, and clients should know:
  - messages, acknowledgements, keys and revocations since then are gone: revoke
    again what must not work;
  - requests from since then, if somebody has captured them, would be taken once
    more until their timestamps are too old: wait for --clock-skew (5 minutes)
    before you start the server if that matters;
  - the ids of lost messages still work as cursors: they stand for a moment, and
    what is accepted from now on is later.`,
		Example: `  relay restore /backups/relay-2026-01-31.db --db /var/lib/relay/relay.db
  relay restore latest.db --force`,
		Args: exactly(1, "one backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = args[0], a.dbPath
			return a.restore(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Replace, "force", false, "replace the database that is there, and keep it under another name")
	cmd.Flags().BoolVar(&o.Unchecked, "no-check", false, "restore it unchecked, though it may have faults")
	a.dbFlag(cmd)
	return cmd
}

func (a *app) restore(ctx context.Context, o file.BackupOptions) error {
	progress, end := a.reporting()
	o.Schema, o.Progress = a.schema, progress
	began := time.Now()
	r, err := file.Restore(ctx, o)
	end()
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: nothing was changed")
	case file.IsFaulty(err):
		from, _ := filepath.Abs(o.From)
		return fmt.Errorf("the backup has %s, and nothing was changed; relay check %s lists them, and --no-check restores it all the same", several(r.Faults, "fault"), from)
	case err != nil:
		return err
	}
	if err := a.removeIndexes(r.Path); err != nil {
		return fmt.Errorf("the database is restored, but its search index must be removed by hand before the server starts: %w", err)
	}
	if a.json {
		return a.printJSON(copied{r.Path, r.Bytes, r.Messages, r.Mechas, !o.Unchecked, time.Since(began).Milliseconds(), optional(r.Kept)})
	}
	if r.Kept != "" {
		fmt.Fprintf(a.stderr, "(the database that was there is now %s)\n", r.Kept)
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s, %s\n", r.Path, mebibytes(r.Bytes), contents(r.BackupResult, o))
	return err
}

// removeIndexes removes the search index of a replaced database. A server
// would notice that it is of another one, but not once that has new changes.
func (a *app) removeIndexes(path string) error {
	named, err := filepath.Abs(a.dbPath) // may be a link to path
	if err != nil {
		return err
	}
	return errors.Join(search.Remove(path+".index"), search.Remove(named+".index"))
}
