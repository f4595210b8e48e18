package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db"
	"relay/db/look"
	"relay/db/relay"
)

// unseenClock is how far the clock may be ahead of the last time that the store trusts; beyond it, relay prune
// requires --force.
const unseenClock = 24 * time.Hour

func (a *app) pruneCommand() *cobra.Command {
	var age cli.Days
	var dry, force bool
	cmd := &cobra.Command{
		Use:   "prune --older-than AGE",
		Short: "Remove old messages",
		Long: `Remove the messages that are older than AGE, with their payloads and receipts,
and return the space to the file system. This cannot be undone: run relay backup
first. relay serve --retention does the same continuously.

If a server runs on the database, it does the work, a little in each of its
transactions, so that sends continue; the command waits for it. The removal
stops when the command or the server ends, as by Ctrl-C; run the command again
to continue. Messages that were sent with an Idempotency-Key are kept for 24
hours.

If the clock is more than a day ahead of the time at which a server last trusted
its clock, the command requires --force, so that a wrong clock does not remove
everything.`,
		Example: `  relay prune --older-than 30d --dry-run
  relay prune --older-than 30d
  relay prune --older-than 12h --json | jq .messages`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if age < cli.Days(time.Second) {
				return cli.Usagef("--older-than is required, from 1s, as in 30d or 12h")
			}
			return a.prune(cmd.Context(), time.Duration(age), dry, force)
		},
	}
	cmd.Flags().Var(&age, "older-than", "the `age`, as in 30d or 12h")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "count the messages and remove none")
	cmd.Flags().BoolVar(&force, "force", false,
		"trust the clock, though no server has trusted its own for more than a day")
	a.DBFlag(cmd)
	return cmd
}

func (a *app) prune(ctx context.Context, age time.Duration, dry, force bool) error {
	now := time.Now()
	var due relay.Pruned
	err := a.WithInspector(func(in *look.Inspector) error {
		seen, err := in.ClockSeen()
		if err != nil {
			return err
		}
		if ahead := now.Sub(seen); !seen.IsZero() && ahead > unseenClock && !force && !dry {
			return fmt.Errorf("the clock says %s, but a server last trusted its clock at %s: "+
				"if the clock is right, --force removes the messages",
				relay.FormatTime(now), relay.FormatTime(seen))
		}
		due, err = in.Prunable(ctx, now.Add(-age), now)
		return err
	})
	switch {
	case err != nil:
		return err
	case dry:
		return a.printPruned(db.PruneResult{Messages: int64(due.Messages), Bytes: due.Bytes, Kept: int64(due.Kept)}, true)
	}
	if due.Messages > 0 { // recorded first, in case this command is killed
		err := a.WithDB(false, func(d *db.DB) error {
			return d.Note(relay.ActPruneBegun, fmt.Sprintf("%d messages from before %s",
				due.Messages, relay.FormatTime(now.Add(-age))))
		})
		if err != nil {
			return err
		}
	}
	progress, end := show.Reporting(a.Stderr)
	result, err := db.Prune(ctx, a.DBPath, a.Schema, now.Add(-age), func(so db.PruneResult) {
		progress("removing", so.Messages, int64(due.Messages))
	})
	end()
	if result.Messages > 0 {
		noted := a.Note(relay.ActMessagesPruned, fmt.Sprintf("%d messages from before %s, with %s of payload",
			result.Messages, relay.FormatTime(now.Add(-age)), show.Bytes(result.Bytes)))
		err = cmp.Or(err, noted)
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: %d messages were removed", result.Messages)
	}
	if err != nil {
		return system.Denied(a.DBPath, true, err)
	}
	return a.printPruned(result, false)
}

func (a *app) printPruned(r db.PruneResult, dry bool) error {
	if a.JSON {
		return a.PrintJSON(struct {
			db.PruneResult
			DryRun bool `json:"dry_run"`
		}{r, dry})
	}
	what := "removed"
	if dry {
		what = "to remove"
	}
	text := fmt.Sprintf("messages %s: %d, with %s of payload", what, r.Messages, show.Bytes(r.Bytes))
	if r.Kept > 0 {
		text += fmt.Sprintf("; %d must stay for now (relay docs retention)", r.Kept)
	}
	_, err := fmt.Fprintln(a.Stdout, text)
	return err
}
