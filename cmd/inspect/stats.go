package inspect

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/look/browse"
	"relay/db/relay"
)

func (a *app) statsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Count Mechas, keys and messages, and measure the files",
		Long: `Count Mechas, keys and messages by their state, show the oldest pending message
and the busiest Mechas, and measure the files. The command reads a row of every
message, which takes about a second for a million. While a server runs on the
database, it pauses often, so that the server can truncate its WAL, and takes
several times as long.`,
		Example: "  relay stats\n  relay stats --json | jq .messages.pending",
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.read(func(in browse.Inspector) error {
				s, err := in.Stats(cmd.Context())
				if err != nil {
					return err
				}
				f := measureFiles(in.Path())
				if a.JSON {
					return a.printStatsJSON(s, f)
				}
				return a.printStats(s, f, time.Now())
			})
		},
	}
	a.DBFlag(cmd)
	return cmd
}

// files is the disk space of the store, in bytes.
type files struct {
	Path  string `json:"path"`
	File  int64  `json:"file_bytes"`
	Free  int64  `json:"free_bytes"`
	Log   int64  `json:"wal_bytes"`
	Index int64  `json:"index_bytes"`
}

func measureFiles(path string) files {
	f := files{Path: path}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return f
	}
	if info, err := os.Stat(real); err == nil {
		f.File = info.Size()
	}
	if info, err := os.Stat(real + "-wal"); err == nil { // SQLite puts it next to the file itself
		f.Log = info.Size()
	}
	f.Index = sizeOfFolder(real + ".index")
	// a server puts its index next to the link
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		f.Index += sizeOfFolder(path + ".index")
	}
	return f
}

// sizeOfFolder returns the bytes of the files in a folder, or 0 if it does not exist. A file that is removed
// meanwhile does not count.
func sizeOfFolder(path string) (sum int64) {
	_ = filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil
	})
	return sum
}

type busyJSON struct {
	Mecha    relay.Address `json:"mecha_id"`
	Sent     int           `json:"sent"`
	Received int           `json:"received"`
	Pending  int           `json:"pending"`
}

func (a *app) printStatsJSON(s browse.Stats, f files) error {
	f.Free = s.FreeBytes
	var oldest any
	if s.Oldest != "" {
		oldest = map[string]any{"message_id": s.Oldest, "to": s.OldestFor, "created_at": relay.FormatTime(s.OldestAt)}
	}
	busy := make([]busyJSON, len(s.Busiest))
	for i, b := range s.Busiest {
		busy[i] = busyJSON(b)
	}
	return a.PrintJSON(map[string]any{
		"mechas": map[string]int{"registered": s.Mechas, "removed": s.Removed, "with_profile": s.Profiles},
		"keys":   map[string]int{"live": s.Keys, "expired": s.KeysExpired, "revoked": s.KeysRevoked},
		"messages": map[string]any{"total": s.Messages, "pending": s.Queued + s.Delivered, "queued": s.Queued,
			"delivered": s.Delivered, "acknowledged": s.Acknowledged, "expired": s.Expired, "payload_bytes": s.PayloadBytes,
			"first_at": show.OptionalTime(s.First), "last_at": show.OptionalTime(s.Last)},
		"kept": map[string]int{"words": s.Words, "empty_conversations": s.Dormant, "nonces": s.KeptNonces,
			"removed_messages": s.Unlisted},
		"oldest_pending": oldest, "busiest": busy, "files": f, "schema_version": s.SchemaVersion,
	})
}

func (a *app) printStats(s browse.Stats, f files, now time.Time) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(a.Stdout, "%-10s "+format+"\n", append([]any{name}, args...)...)
	}
	line("Mechas", "%d registered (%d with a profile), %d removed", s.Mechas, s.Profiles, s.Removed)
	line("Keys", "%d live, %d expired, %d revoked", s.Keys, s.KeysExpired, s.KeysRevoked)
	line("Messages", "%d: %d queued, %d delivered, %d acknowledged, %d expired; %s of payload", s.Messages,
		s.Queued, s.Delivered, s.Acknowledged, s.Expired, show.Bytes(s.PayloadBytes))
	if s.Messages > 0 {
		line("", "from %s to %s", display.At(s.First), display.At(s.Last))
	}
	if s.Oldest != "" {
		line("Oldest", "%s has waited for %s for %s", s.Oldest, s.OldestFor, show.Gap(now.Sub(s.OldestAt)))
	}
	line("Kept", "%d interned strings, %d conversations without a message, %d nonces; "+
		"%d removed messages still in mailboxes",
		s.Words, s.Dormant, s.KeptNonces, s.Unlisted)
	line("Files", "database %s (%s of it free), WAL %s, search index %s",
		show.Bytes(f.File), show.Bytes(s.FreeBytes), show.Bytes(f.Log), show.Bytes(f.Index))
	line("", "%s, schema %d", f.Path, s.SchemaVersion)
	if len(s.Busiest) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	w := show.NewTable(a.Stdout, "BUSIEST", "SENT", "RECEIVED", "PENDING")
	for _, b := range s.Busiest {
		w.Row(b.Mecha, b.Sent, b.Received, b.Pending)
	}
	return w.End()
}
