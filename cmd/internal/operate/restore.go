package operate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db/file"
	"relay/db/relay"
	"relay/search"
)

func (a *app) restoreCommand() *cobra.Command {
	var o file.RestoreOptions
	folder := ""
	cmd := &cobra.Command{
		Use:   "restore [FILE]",
		Short: "Restore from a backup",
		Long: `Replace the database with a checked copy of the backup FILE. No server may run
on the database. An existing database is replaced only with --force, which keeps
it under another name; remove that file when you no longer need it. The search
index is removed; the server rebuilds it.

With --from DIR instead of FILE, restore the newest copy that relay backup
--every has made in DIR. A copy with faults is reported and skipped for the next
older one. A copy that a newer relay wrote is not skipped: use that relay.

Everything after the backup is lost:
  - Messages, acknowledgements, keys and revocations since then are gone. A key
    that was revoked or rotated since then works again. With --force, the
    command lists those keys; with --revoke-newer as well, they stay as they
    were.
  - Requests that somebody has captured since then are still refused: the used
    nonces are in a separate file, which stays.
  - Clients may still resume after the id of a lost message. They get what the
    relay accepts from now on. No id is reused: the created_at of new messages
    begins ten seconds ahead of the clock.`,
		Example: `  relay restore /backups/relay-2026-01-31.db --db /var/lib/relay/relay.db
  relay restore latest.db --force --revoke-newer
  relay restore --from /backups --db /var/lib/relay/relay.db`,
		Args: cli.Between(0, 1, "one file, the backup, or --from DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.To = a.DBPath
			switch {
			case (len(args) == 1) == (folder != ""):
				return cli.Usagef("name either the backup or, with --from, a folder of copies")
			case folder != "":
				return a.restoreNewest(cmd.Context(), o, folder)
			}
			o.From = args[0]
			return a.restore(cmd.Context(), o, nil)
		},
	}
	cmd.Flags().StringVar(&folder, "from", "", "the folder `DIR` whose newest valid copy is restored")
	_ = cmd.MarkFlagDirname("from")
	cmd.Flags().BoolVar(&o.Replace, "force", false, "replace an existing database and keep it under another name")
	cmd.Flags().BoolVar(&o.Unchecked, "no-check", false, "skip the check of the backup, which may have faults")
	cmd.Flags().BoolVar(&o.RevokeNewer, "revoke-newer", false,
		"keep what the replaced database has revoked or rotated since the backup; needs --force")
	a.DBFlag(cmd)
	return cmd
}

// restoreNewest restores the newest copy in a folder that can be restored.
func (a *app) restoreNewest(ctx context.Context, o file.RestoreOptions, folder string) error {
	copies, err := file.SeriesCopies(folder)
	if err != nil {
		return err
	}
	if len(copies) == 0 {
		return fmt.Errorf("there is no copy in %s: relay backup --every makes them, "+
			"with names such as relay-20260131T120000.000Z.db", folder)
	}
	for _, c := range copies {
		o.From = c.Path
		err := a.restore(ctx, o, &c)
		if !file.IsUnusable(err) {
			return err
		}
		fmt.Fprintf(a.Stderr, "%s is skipped: %v\n", filepath.Base(c.Path), err)
	}
	return fmt.Errorf("none of %s in %s can be restored, and nothing was changed",
		show.Count(len(copies), "backup"), folder)
}

// restore restores the backup o.From. chosen is that copy if the command has chosen it, not the user.
func (a *app) restore(ctx context.Context, o file.RestoreOptions, chosen *file.SeriesCopy) error {
	if o.RevokeNewer && !o.Replace {
		return cli.Usagef("--revoke-newer keeps the revocations of the database that --force replaces: add --force")
	}
	progress, end := show.Reporting(a.Stderr)
	o.Schema, o.Progress, o.By = a.Schema, progress, a.Actor()
	began := time.Now()
	r, err := file.Restore(ctx, o)
	end()
	if err != nil {
		return a.notRestored(o, r, err)
	}
	if err := a.removeIndexes(r.Path); err != nil {
		return fmt.Errorf("the database is restored, but its search index could not be removed; "+
			"remove it before the server starts: %w", err)
	}
	if a.JSON {
		done := restored{
			Copied:  cli.CopiedJSON(r.BackupResult, o.BackupOptions, time.Since(began)),
			Kept:    show.Optional(r.Kept),
			Revived: revivedJSON(r.Revived), Ended: o.RevokeNewer, KeysRead: r.KeysUnread == nil,
		}
		if chosen != nil {
			done.From, done.MadeAt, done.Newest = &chosen.Path, show.OptionalTime(chosen.At), show.OptionalTime(timeOf(r.Last))
		}
		return a.PrintJSON(done)
	}
	if chosen != nil {
		fmt.Fprintf(a.Stderr, "(from %s, made %s, newest write %s)\n",
			filepath.Base(chosen.Path), agoOrAhead(began.Sub(chosen.At)), newestWrite(r.Last))
	}
	if ahead := r.Last.Time().Sub(began); ahead > time.Minute {
		fmt.Fprintf(a.Stderr, "The newest write is %s ahead of this machine's clock. "+
			"Set the clock before the server starts, or created_at stays constant for that long.\n", show.Gap(ahead))
	}
	if r.Kept != "" {
		fmt.Fprintf(a.Stderr, "(the database from before is now %s)\n", r.Kept)
	}
	a.warnOfKeys(r, o.RevokeNewer)
	_, err = fmt.Fprintf(a.Stdout, "%s: %s, %s\n", r.Path, show.Bytes(r.Bytes), contents(r.BackupResult, o.BackupOptions))
	return err
}

// agoOrAhead describes the age of a copy, which is negative if the copy is dated ahead of
// the clock.
func agoOrAhead(age time.Duration) string {
	if age < 0 {
		return show.Gap(-age) + " ahead of this machine's clock"
	}
	return show.Gap(age) + " ago"
}

// timeOf returns the time of a position, or the zero time for the position 0.
func timeOf(p relay.Position) time.Time {
	if p == 0 {
		return time.Time{}
	}
	return p.Time()
}

// newestWrite describes the time of the last write in a copy.
func newestWrite(p relay.Position) string {
	if p == 0 {
		return "none"
	}
	return relay.FormatTime(p.Time())
}

// notRestored turns the error of a restore into a sentence for the user.
func (a *app) notRestored(o file.RestoreOptions, r file.RestoreResult, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: nothing was changed")
	case file.IsFaulty(err):
		from, _ := filepath.Abs(o.From)
		return &faulty{fmt.Sprintf("the backup has %s, and nothing was changed; relay check %s lists them, "+
			"and --no-check restores the backup anyway", show.Count(r.Faults, "fault"), relay.ShellWord(from)), err}
	}
	return system.Denied(o.To, true, system.Denied(o.From, false, err))
}

// faulty is the error for a backup that has faults.
type faulty struct {
	text  string
	cause error
}

func (f *faulty) Error() string { return f.text }
func (f *faulty) Unwrap() error { return f.cause }

// restored is the output of restore with --json.
type restored struct {
	cli.Copied
	From   *string `json:"from,omitempty"`    // with --from: the copy that was chosen
	MadeAt *string `json:"made_at,omitempty"` // with --from: when that copy was made
	// with --from: the time of the last write in that copy, if there is one
	Newest   *string      `json:"newest_write_at,omitempty"`
	Kept     *string      `json:"kept,omitempty"` // the path of the replaced database
	Revived  []revivedKey `json:"revived_keys"`   // the keys that the replaced database had ended
	Ended    bool         `json:"revoked_again"`  // false: these keys work again
	KeysRead bool         `json:"keys_compared"`  // false: the keys of the replaced database could not be read
}

type revivedKey struct {
	ID        relay.KeyID   `json:"key_id"`
	Address   relay.Address `json:"mecha_id"`
	Label     string        `json:"label"`
	RevokedAt *string       `json:"revoked_at"`
	ExpiresAt *string       `json:"expires_at"`
}

func revivedJSON(keys []file.RevivedKey) []revivedKey {
	list := []revivedKey{}
	for _, k := range keys {
		list = append(list, revivedKey{k.ID, k.Address, k.Label, show.OptionalTime(k.RevokedAt), show.OptionalTime(k.EndsAt)})
	}
	return list
}

// warnOfKeys lists the keys that the replaced database had ended, and says whether they
// work again.
func (a *app) warnOfKeys(r file.RestoreResult, ended bool) {
	if r.KeysUnread != nil {
		fmt.Fprintf(a.Stderr, "Keys that were revoked since the backup work again. This command cannot list them: %v\n",
			r.KeysUnread)
		return
	}
	if len(r.Revived) == 0 {
		return
	}
	outcome := "and valid again now"
	if ended {
		outcome = "and still so"
	}
	fmt.Fprintf(a.Stderr, "Revoked or rotated since the backup, %s:\n", outcome)
	for _, k := range r.Revived {
		how := "revoked " + show.TimeOrDash(k.RevokedAt)
		if k.RevokedAt.IsZero() {
			how = "rotated, ends " + show.TimeOrDash(k.EndsAt)
		}
		fmt.Fprintf(a.Stderr, "  %s  %s  %s  %s\n", k.ID, k.Address, how, relay.Visible(k.Label))
	}
	if !ended {
		fmt.Fprintln(a.Stderr,
			"(relay key revoke KEY_ID revokes one again; with --revoke-newer, relay restore would have kept them all ended)")
	}
}

// removeIndexes removes the search index of a replaced database. A server notices that an index belongs to
// another database, but no longer after the restored one has changed.
func (a *app) removeIndexes(path string) error {
	named, err := filepath.Abs(a.DBPath) // --db may be a link to path
	if err != nil {
		return err
	}
	return errors.Join(search.Remove(path+".index"), search.Remove(named+".index"))
}
