package db

import (
	"path/filepath"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/relay"
)

// The ids that a relay gave out after the backup are gone with their messages. The restored
// relay gives none of them out again, whatever the clock of the lost machine said, and
// their holders may continue after them.
func TestARestoreGivesNoIDTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		ahead time.Duration // of the lost machine's clock
		lost  time.Duration // how long the lost relay went on after the backup
		there bool          // the lost database is still there when the backup is restored
	}{
		{"its clock was right", 0, 0, false},
		{"its clock was an hour ahead", time.Hour, 0, false},
		{"its clock was ahead by less than the time that is skipped", skippedByRestore - time.Second, 0, false},
		{"its clock was set ahead after the backup", 0, time.Hour, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lost, clock := openSetClock(t)
			clock.set(c.ahead)
			k := mustIssue(t, lost, "a^b")
			sendAt(t, lost, clock, k)
			dir := t.TempDir()
			copied, restored := filepath.Join(dir, "copy.db"), filepath.Join(dir, "relay.db")
			if _, err := file.Backup(t.Context(), file.BackupOptions{From: lost.w.Path, To: copied, Schema: lost.w.Opts.Schema}); err != nil {
				t.Fatal(err)
			}
			clock.set(c.lost)
			given := map[relay.MessageID]bool{}
			var last relay.MessageID
			for range 100 {
				last = sendAt(t, lost, clock, k)
				given[last] = true
			}
			if err := lost.Close(); err != nil {
				t.Fatal(err)
			}
			if c.there {
				restored = lost.w.Path
			}
			o := file.BackupOptions{From: copied, To: restored, Schema: lost.w.Opts.Schema, Replace: c.there}
			if _, err := file.Restore(t.Context(), file.RestoreOptions{BackupOptions: o}); err != nil {
				t.Fatal(err)
			}
			clock.set(-c.ahead) // the clock of the other machine is right
			again := openHere(t, clock.tells, func(o *Options) { o.Path = restored })
			for range 100 {
				if id := sendAt(t, again, clock, k); given[id] {
					t.Fatalf("%s was given out twice", id)
				}
			}
			page, err := again.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 1000, After: last})
			if err != nil || len(page.Messages) != 100 {
				t.Errorf("%d messages come after the last lost one, %v; want 100", len(page.Messages), err)
			}
		})
	}
}

const skippedByRestore = 10 * time.Second

func sendAt(t *testing.T, d *DB, clock *setClock, k *relay.Key) relay.MessageID {
	t.Helper()
	m := message(k, "a^b", `{}`)
	m.At = clock.now()
	sent, err := d.Send(m)
	if err != nil {
		t.Fatal(err)
	}
	return sent.ID
}
