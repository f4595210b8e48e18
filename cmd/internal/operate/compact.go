package operate

import (
	"context"
	"errors"
	"fmt"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/file"
	"relay/db/relay"

	"github.com/spf13/cobra"
)

func (a *app) compactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Give unused space of the database back to the file system",
		Long: `Give space that the database no longer uses back to the file system.

While a server runs, the command gives unused pages back a few at a time, and
leaves most of the time to sends. Without a server it rebuilds the file, which
makes it as small as possible. That needs free disk of twice the file's size; if
there is less, the command only gives unused pages back.`,
		Example: `  relay compact
  relay compact --db /var/lib/relay/relay.db --json`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.compact(cmd.Context()) },
	}
	a.DBFlag(cmd)
	return cmd
}

func (a *app) compact(ctx context.Context) error {
	progress, end := show.Reporting(a.Stderr)
	r, err := db.Compact(ctx, file.CompactOptions{Path: a.DBPath, Schema: a.Schema, Progress: progress})
	end()
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: the database is whole, but still has unused space")
	}
	if err != nil {
		return system.Denied(a.DBPath, true, err)
	}
	if err := a.Note(relay.ActCompacted, fmt.Sprintf("%s before, %s after",
		show.Bytes(r.Before), show.Bytes(r.After))); err != nil {
		return err
	}
	if a.JSON {
		return a.PrintJSON(struct {
			File    string `json:"file"`
			Before  int64  `json:"bytes_before"`
			After   int64  `json:"bytes_after"`
			Unused  int64  `json:"bytes_unused"` // before the command
			Rebuilt bool   `json:"rebuilt"`
			TookMS  int64  `json:"took_ms"`
		}{r.Path, r.Before, r.After, r.Free, r.Rebuilt, r.Took.Milliseconds()})
	}
	how := "gave unused pages back"
	if r.Rebuilt {
		how = "rebuilt it"
	}
	if r.NoRoom {
		fmt.Fprintf(a.Stderr, "(the file was not rebuilt: that needs %s of free disk)\n", show.Bytes(r.Needed))
	}
	_, err = fmt.Fprintf(a.Stdout, "%s: %s before, %s now; %s\n", r.Path, show.Bytes(r.Before), show.Bytes(r.After), how)
	return err
}
