package cmd_test

import (
	"os"
	"testing"
)

// Somebody tidies up. A server that has a file open does not feel its removal:
// writes and fsyncs succeed, and all is gone when the process ends. So it looks,
// saves what it can, and stops.
func TestCrashAFileIsTakenFromUnderTheServer(t *testing.T) {
	notOnWindows(t, "an open file cannot be removed")
	t.Parallel()
	remove := func(suffix string) func(*testing.T, string) {
		return func(t *testing.T, db string) {
			if err := os.Remove(db + suffix); err != nil {
				t.Error(err)
			}
		}
	}
	rename := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, db string) {
			if err := os.Rename(db+from, db+to); err != nil {
				t.Error(err)
			}
		}
	}
	nothing := func(*testing.T, string) {}
	for name, c := range map[string]struct {
		take, putBack func(*testing.T, string)
		gone          bool // with all that it had
		long          bool // in the long form only
		says          string
	}{
		"log removed":         {take: remove("-wal"), putBack: nothing, says: "relay.db-wal was removed or renamed"},
		"log emptied by name": {take: func(t *testing.T, db string) { remove("-wal")(t, db); touch(t, db+"-wal") }, putBack: nothing, long: true, says: "relay.db-wal was re"},
		"log's index removed": {take: remove("-shm"), putBack: nothing, long: true, says: "relay.db-shm was removed or renamed"},
		"lock removed":        {take: remove(".lock"), putBack: nothing, says: "relay.db.lock was removed or renamed"},
		"database renamed":    {take: rename("", ".old"), putBack: rename(".old", ""), says: "relay.db was removed or renamed"},
		"database removed":    {take: remove(""), putBack: nothing, gone: true, says: "relay.db was removed or renamed"},
		"database replaced": {take: func(t *testing.T, db string) { rename("", ".old")(t, db); touch(t, db) },
			putBack: rename(".old", ""), long: true, says: "relay.db was re"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.long {
				notQuick(t)
			}
			t.Parallel()
			for range rounds(t, 1, 10) {
				db, l := tempDB(t), newLedger()
				keys := issue(t, db, "a^gone", "b^gone", "c^gone")
				s := startProcess(t, db, "--rate-limit", "0")
				wait := l.goOn(s, keys[:2], "c^gone", 200, nil)
				eventually(t, patience, "messages are accepted", func() bool { return l.count() > 50 })
				c.take(t, db)
				s.wantExit(75, c.says, "all that was accepted is in the database file")
				wait()
				if c.gone {
					continue
				}
				c.putBack(t, db)
				wantWhole(t, db)
				s = startServer(t, db)
				l.compare(s, keys[2])
				t.Logf("%d messages: none lost, doubled or out of order", l.count())
				s.end()
			}
		})
	}
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Error(err)
	}
}
