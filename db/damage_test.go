package db_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db"
	"relay/db/relay"
)

// Rows that contradict each other, though SQLite finds the file sound, stop the store with
// an error that names the command to run. The store never makes up the missing values.
func TestRowsThatContradictEachOtherStopTheStore(t *testing.T) {
	t.Parallel()
	read := func(s store, m *relay.Message, id relay.MessageID, history bool) {
		if !history {
			_, _ = s.Message(ctx, m.Recipient, id)
			_, _ = s.Payload(ctx, m.Recipient, id)
		}
		_, _ = s.History(ctx, relay.HistoryQuery{Mecha: m.Recipient, Limit: 10, Payload: true})
	}
	for name, c := range map[string]struct {
		damage  func(t *testing.T, path string)
		says    string
		history bool // read the history alone
	}{
		"an expiry without its message": {orphanExpiry, "an index of times", false},
		"a message without its payload": {byStatement("DELETE FROM payload"), "no payload", false},
		"a history without a payload":   {byStatement("DELETE FROM payload"), "no payload", true},
		"a message without its type":    {byStatement("DELETE FROM word WHERE text = 'message'"), "FROM word", false},
		"a message without its sender":  {byStatement("DELETE FROM mecha WHERE address = 'a^damage'"), "FROM mecha", false},
		"a message in no state":         {byStatement("PRAGMA ignore_check_constraints = 1; UPDATE message SET state = 9"), "has the state 9", false},
		"a message without its ack":     {byStatement("DELETE FROM receipt"), "no such receipt", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "relay.db")
			at := func(o *db.Options) { o.Path = path }
			s := mustOpen(t, at)
			a, b := s.mustIssue("a^damage"), s.mustIssue("b^damage")
			sent := s.mustSend(a.Key, "b^damage", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(time.Hour) })
			s.mustAck(b.Key, s.mustSend(a.Key, "b^damage", `{}`).ID, "completed")
			m, err := s.Message(ctx, b.Mecha.Number, sent.ID)
			if err != nil || s.Close() != nil {
				t.Fatal(err)
			}
			c.damage(t, path)
			fatal := make(chan error, 1)
			later := func() time.Time { return time.Now().Add(2 * time.Hour) }
			s = mustOpen(t, at, func(o *db.Options) { o.Now, o.Fatal = later, func(err error) { fatal <- err } })
			read(s, m, sent.ID, c.history)
			select {
			case err := <-fatal:
				for _, text := range []string{c.says, "the database is damaged", "relay check"} {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%v does not say %q", err, text)
					}
				}
			case <-time.After(time.Minute):
				t.Error("the store goes on")
			}
		})
	}
}

func byStatement(statement string) func(*testing.T, string) {
	return func(t *testing.T, path string) { makeByHand(t, path, statement) }
}

// orphanExpiry deletes the messages that expire, while the index of their times is not in
// the schema. So the index keeps its entries.
func orphanExpiry(t *testing.T, path string) {
	t.Helper()
	d := byHand(t, path)
	var root int
	var text string
	if err := d.QueryRow("SELECT rootpage, sql FROM sqlite_schema WHERE name = 'message_expiry'").Scan(&root, &text); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	makeByHand(t, path, "PRAGMA writable_schema = ON", "DELETE FROM sqlite_schema WHERE name = 'message_expiry'")
	makeByHand(t, path, "DELETE FROM message WHERE expires_at IS NOT NULL")
	d = byHand(t, path)
	defer d.Close()
	for _, s := range []string{"PRAGMA writable_schema = ON", "INSERT INTO sqlite_schema VALUES ('index', 'message_expiry', 'message', ?, ?)"} {
		args := []any{root, text}
		if !strings.Contains(s, "?") {
			args = nil
		}
		if _, err := d.Exec(s, args...); err != nil {
			t.Fatal(err)
		}
	}
}
