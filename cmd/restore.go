package cmd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"relay/db/file"
	"relay/db/relay"
	"relay/search"
)

func (a *app) restoreCommand() *cobra.Command {
	var o file.RestoreOptions
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in the database's place",
		Long: `Put a checked copy of the backup FILE in the database's place. No server may run
on the database. If there is one already, --force replaces it and keeps it under
another name; remove it when you no longer need it. The search index is removed,
and the server builds it anew.

The backup does not have what came after it:
  - Messages, acknowledgements, keys and revocations since then are gone. A key
    that was revoked or rotated since then works again. With --force, the command
    lists those keys; with --revoke-newer as well, they stay as they were.
  - If somebody captured requests since then, the relay refuses them all the
    same: the used nonces are in a file of their own, which stays.
  - Clients may still resume after the id of a lost message. They get what the
    relay accepts from now on.`,
		Example: `  relay restore /backups/relay-2026-01-31.db --db /var/lib/relay/relay.db
  relay restore latest.db --force --revoke-newer`,
		Args: exactly(1, "one file, the backup"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.From, o.To = args[0], a.dbPath
			return a.restore(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.Replace, "force", false, "replace an existing database, and keep it under another name")
	cmd.Flags().BoolVar(&o.Unchecked, "no-check", false, "do not check the backup; it may have faults")
	cmd.Flags().BoolVar(&o.RevokeNewer, "revoke-newer", false, "keep what the replaced database has revoked or rotated since the backup; needs --force")
	a.dbFlag(cmd)
	return cmd
}

func (a *app) restore(ctx context.Context, o file.RestoreOptions) error {
	if o.RevokeNewer && !o.Replace {
		return usagef("--revoke-newer keeps the revocations of the database that --force replaces: add --force")
	}
	progress, end := a.reporting()
	o.Schema, o.Progress, o.By = a.schema, progress, a.actor()
	began := time.Now()
	r, err := file.Restore(ctx, o)
	end()
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted: nothing was changed")
	case file.IsFaulty(err):
		from, _ := filepath.Abs(o.From)
		return fmt.Errorf("the backup has %s, and nothing was changed; relay check %s lists them, and --no-check restores the backup all the same", counted(r.Faults, "fault"), relay.ShellWord(from))
	case err != nil:
		return denied(o.To, true, denied(o.From, false, err))
	}
	if err := a.removeIndexes(r.Path); err != nil {
		return fmt.Errorf("the database is restored, but its search index could not be removed; remove it before the server starts: %w", err)
	}
	if a.json {
		return a.printJSON(restored{
			copiedJSON(r.BackupResult, o.BackupOptions, time.Since(began)),
			optional(r.Kept), revivedJSON(r.Revived), o.RevokeNewer, r.KeysUnread == nil,
		})
	}
	if r.Kept != "" {
		fmt.Fprintf(a.stderr, "(the database from before is now %s)\n", r.Kept)
	}
	a.warnOfKeys(r, o.RevokeNewer)
	_, err = fmt.Fprintf(a.stdout, "%s: %s, %s\n", r.Path, bytesOf(r.Bytes), contents(r.BackupResult, o.BackupOptions))
	return err
}

// restored is the output of restore with --json.
type restored struct {
	copied
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
		list = append(list, revivedKey{k.ID, k.Address, k.Label, optionalTime(k.RevokedAt), optionalTime(k.EndsAt)})
	}
	return list
}

// warnOfKeys lists the keys that the replaced database had ended, and says whether they
// work again.
func (a *app) warnOfKeys(r file.RestoreResult, ended bool) {
	if r.KeysUnread != nil {
		fmt.Fprintf(a.stderr, "Keys that were revoked since the backup work again. This command cannot list them: %v\n", r.KeysUnread)
		return
	}
	if len(r.Revived) == 0 {
		return
	}
	outcome := "and valid again now"
	if ended {
		outcome = "and still so"
	}
	fmt.Fprintf(a.stderr, "Revoked or rotated since the backup, %s:\n", outcome)
	for _, k := range r.Revived {
		how := "revoked " + timeOrDash(k.RevokedAt)
		if k.RevokedAt.IsZero() {
			how = "rotated, ends " + timeOrDash(k.EndsAt)
		}
		fmt.Fprintf(a.stderr, "  %s  %s  %s  %s\n", k.ID, k.Address, how, relay.Visible(k.Label))
	}
	if !ended {
		fmt.Fprintln(a.stderr, "(relay key revoke KEY_ID revokes one again; with --revoke-newer, relay restore would have kept them all ended)")
	}
}

// removeIndexes removes the search index of a replaced database. A server notices
// an index of another database, but no longer once the restored one has changed.
func (a *app) removeIndexes(path string) error {
	named, err := filepath.Abs(a.dbPath) // --db may be a link to path
	if err != nil {
		return err
	}
	return errors.Join(search.Remove(path+".index"), search.Remove(named+".index"))
}
