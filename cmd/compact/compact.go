// Package compact is relay compact: it gives unused space of a database back to the file system, by
// the rebuild of db/file/compact or by the server of the file, and notes that in the audit log.
package compact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/admin"
	"relay/db/file/compact"
	"relay/db/relay"
	"relay/http/docs"

	"github.com/spf13/cobra"
)

func init() {
	cli.Register(cli.Ring{Name: "compact", Commands: cli.Commands("operating", (*app).command)})
	docs.Register(docs.Ring{Name: "compact"}) // the page "backups" tells of it
}

type app struct{ *cli.App }

func (a *app) command() *cobra.Command {
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
	r, err := giveBack(ctx, a.DBPath, a.Schema, func(given, all int64) { progress("compacting", given, all) })
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

// giveBack returns the unused space of a file back to the file system: by a rebuild; or, if the file is
// served, or the disk has no room for that, by its server, which cuts unused pages off, a few at a
// time. say is told how many bytes of all are given.
func giveBack(ctx context.Context, path, schema string, say func(given, all int64)) (compact.Result, error) {
	began := time.Now()
	r, err := compact.Rebuild(ctx, path, schema)
	if !r.NoRoom && !errors.Is(err, admin.ErrServed) {
		return r, err
	}
	before, err := compact.Measure(path)
	if before.NoRoom = r.NoRoom; err != nil || before.Free == 0 {
		return before, err
	}
	err = db.GiveBack(ctx, before.Path, schema, before.Free, func(given int64) { say(given, before.Free) })
	after, failed := compact.Measure(path)
	before.After, before.Took = after.Before, time.Since(began)
	return before, cmp.Or(err, failed)
}
