package cmd

import (
	"context"
	"errors"
	"fmt"

	"relay/db/file"

	"github.com/spf13/cobra"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Give space that the database no longer uses back to the file system",
		Long: `Give space that the database no longer uses back to the file system.

While a server runs on it, unused pages are given back a few at a time, and most
of the time is left to sends. Without a server the file is rebuilt, which makes
it as small as can be; that needs free disk of twice its size, and where there
is less only the unused pages are given back.`,
		Example: `  relay compact
  relay compact --db /var/lib/relay/relay.db --json`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.compact(cmd.Context()) },
	}
	a.dbFlag(cmd)
	return cmd
}

func (a *app) compact(ctx context.Context) error {
	progress, end := a.reporting()
	r, err := file.Compact(ctx, file.CompactOptions{Path: a.dbPath, Schema: a.schema, Progress: progress})
	end()
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: the database is whole, but not all of its unused space was given back")
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(struct {
			File    string `json:"file"`
			Before  int64  `json:"bytes_before"`
			After   int64  `json:"bytes_after"`
			Unused  int64  `json:"bytes_unused"` // before
			Rebuilt bool   `json:"rebuilt"`
			TookMS  int64  `json:"took_ms"`
		}{r.Path, r.Before, r.After, r.Free, r.Rebuilt, r.Took.Milliseconds()})
	}
	how := "unused pages were given back"
	if r.Rebuilt {
		how = "rebuilt"
	}
	if r.NoRoom {
		fmt.Fprintf(a.stderr, "(not rebuilt: that needs %s of free disk)\n", mebibytes(r.Needed))
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s before, %s now; %s\n", r.Path, mebibytes(r.Before), mebibytes(r.After), how)
	return err
}
