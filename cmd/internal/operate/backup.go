package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/db/file"
)

func (a *app) backupCommand() *cobra.Command {
	var o file.BackupOptions
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the database, even while a server runs on it",
		Long: `Copy the database to FILE, even while a server runs on it. The copy is a
consistent snapshot: it has every message whose 201 came before the command
began. It is checked, as by relay check, before it gets its name: FILE is
complete or does not exist. The server keeps working, but for a few seconds per
GiB it cannot truncate its WAL.

The copy is one file, readable by its owner only. Keep it as safe as the
database: it holds all messages, and the signing secrets of keys that have one.
The search index is not copied; a server rebuilds it.`,
		Example: `  relay backup /backups/relay-$(date +%F).db
  relay backup --db /var/lib/relay/relay.db latest.db --force --json`,
		Args: cli.Exactly(1, "one file, the copy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = a.DBPath, args[0]
			return a.backup(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Replace, "force", false, "replace FILE if it exists")
	cmd.Flags().BoolVar(&o.Unchecked, "no-check", false, "skip the check of the copy, for a database with faults")
	a.DBFlag(cmd)
	return cmd
}

func (a *app) backup(ctx context.Context, o file.BackupOptions) error {
	progress, end := show.Reporting(a.Stderr)
	o.Schema, o.Progress = a.Schema, progress
	began := time.Now()
	r, err := file.Backup(ctx, o)
	end()
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: no copy was made")
	case err != nil:
		return a.NotCopied(o, r, err)
	}
	if a.JSON {
		return a.PrintJSON(cli.CopiedJSON(r, o, time.Since(began)))
	}
	fmt.Fprintf(a.Stdout, "%s: %s, %s\n", r.Path, show.Bytes(r.Bytes), contents(r, o))
	_, err = fmt.Fprintln(a.Stderr, "(it holds messages and signing secrets: keep it as safe as the database)")
	return err
}

// contents describes a copy in words.
func contents(r file.BackupResult, o file.BackupOptions) string {
	checked := "checked"
	if o.Unchecked {
		checked = "not checked"
	}
	return fmt.Sprintf("%d messages, %d Mechas, %s", r.Messages, r.Mechas, checked)
}
