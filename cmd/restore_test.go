package cmd_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/http/docs"
)

func TestARestoreReplacesOnlyWhenTold(t *testing.T) {
	t.Parallel()
	db := tempDB(t)
	dir := filepath.Dir(db)
	a := issue(t, db, "a^restore")[0]
	s := startProcess(t, db)
	old := s.send(a, a.Address, `{"n": 1}`)
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	late := s.send(a, a.Address, `{"n": 2}`)
	mustRelay(t, "key", "create", "late^restore", "--db", db)

	runRelay(t, "restore", backup, "--db", db, "--force").wantCode(t, 1, "a server runs on "+db)
	for _, ending := range []string{"-wal", "-shm", "-nonces", ".lock"} { // these are names of the database's own parts
		runRelay(t, "restore", backup, "--db", db+ending, "--force").wantCode(t, 1, "would be taken for a part of a database")
	}
	s.kill() // the log stays
	runRelay(t, "restore", backup, "--db", db).wantCode(t, 1, "there is a database at "+db, "--force")

	r := parse[struct{ File, Kept string }](t, []byte(mustRelay(t, "restore", backup, "--db", db, "--force", "--json")))
	wantFiles(t, dir, "relay.db", "relay.db-nonces", "relay.db.admin.sock", filepath.Base(r.Kept), "relay.db.lock") // the index is gone; used nonces stay used
	s = startServer(t, db)
	if h := s.history(a, ""); len(h) != 1 || h[0].MessageID != old.MessageID {
		t.Errorf("%+v", h)
	}
	// The lost message's id is still a cursor, and a new message comes after it.
	m := s.send(a, a.Address, `{"n": 3}`)
	if h := s.history(a, "since_message_id="+late.MessageID); len(h) != 1 || h[0].MessageID != m.MessageID {
		t.Errorf("after %s: %+v", late.MessageID, h)
	}
	s.end()

	// The replaced database is whole, with the messages that were still in its log.
	wantWhole(t, r.Kept)
	kept := tempDB(t)
	mustRelay(t, "restore", r.Kept, "--db", kept)
	if h := startServer(t, kept).history(a, ""); len(h) != 2 || h[1].MessageID != late.MessageID {
		t.Errorf("%+v", h)
	}
}

// A backup has the keys as they were then. A restore says which keys were revoked since,
// and can keep them revoked.
func TestARestoreTellsWhichKeysItRevives(t *testing.T) {
	notShort(t)
	t.Parallel()
	db := tempDB(t)
	keys := issue(t, db, "a^revive", "b^revive", "c^revive", "d^revive")
	mustRelay(t, "key", "revoke", keys[3].KeyID, "--db", db) // before the backup, which therefore has it
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	mustRelay(t, "key", "revoke", keys[0].KeyID, "--db", db)
	mustRelay(t, "key", "rotate", keys[1].KeyID, "--overlap", "0s", "--db", db)
	works := func(want ...int) {
		t.Helper()
		s := startServer(t, db)
		for i, status := range want {
			s.ask(keys[i], "GET", "/api/v1/whoami", "").want(t, status)
		}
		s.end()
	}
	works(401, 401, 200, 401)

	runRelay(t, "restore", backup, "--db", db, "--revoke-newer").wantCode(t, 2, "add --force")
	runRelay(t, "restore", backup, "--db", tempDB(t), "--force", "--revoke-newer").wantCode(t, 1, "there is no database at", "leave out --revoke-newer")
	r := runRelay(t, "restore", backup, "--db", db, "--force", "--revoke-newer").wantCode(t, 0,
		keys[0].KeyID+"  a^revive  revoked 20", keys[1].KeyID+"  b^revive  rotated, ends 20", "and still so")
	if strings.Contains(r.err, keys[2].KeyID) || strings.Contains(r.err, keys[3].KeyID) {
		t.Errorf("keys that did not change are named:\n%s", r.err)
	}
	works(401, 401, 200, 401)
	wantWhole(t, db)

	told := parse[struct {
		Revived []struct {
			ID        string  `json:"key_id"`
			Address   string  `json:"mecha_id"`
			RevokedAt *string `json:"revoked_at"`
		} `json:"revived_keys"`
		Ended bool `json:"revoked_again"`
		Read  bool `json:"keys_compared"`
	}](t, []byte(mustRelay(t, "restore", backup, "--db", db, "--force", "--json")))
	if len(told.Revived) != 2 || told.Revived[0].ID != keys[0].KeyID || told.Revived[1].RevokedAt != nil || told.Ended || !told.Read {
		t.Errorf("%+v", told)
	}
	works(200, 200, 200, 401)

	mustRelay(t, "key", "revoke", keys[2].KeyID, "--db", db)
	runRelay(t, "restore", backup, "--db", db, "--force").wantCode(t, 0, keys[2].KeyID+"  c^revive  revoked 20", "and valid again now", "relay key revoke KEY_ID")
	works(200, 200, 200, 401)

	if err := os.WriteFile(db, []byte(strings.Repeat("damage\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	runRelay(t, "restore", backup, "--db", db, "--force", "--revoke-newer").wantCode(t, 1, "cannot read the keys", "nothing was changed")
	runRelay(t, "restore", backup, "--db", db, "--force").wantCode(t, 0, "Keys that were revoked since the backup work again")
}

// A log without its database lies next to the place of the restore. SQLite would take it
// for the log of the restored database.
func TestARestoreMindsALogThatWasLeftBehind(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^restore")
	to := tempDB(t)
	if err := os.WriteFile(to+"-wal", []byte("a log"), 0o600); err != nil {
		t.Fatal(err)
	}
	runRelay(t, "restore", db, "--db", to).wantCode(t, 1, to+"-wal", "--force")
	wantFiles(t, filepath.Dir(to), "relay.db-wal")
	r := parse[struct{ Kept string }](t, []byte(mustRelay(t, "restore", db, "--db", to, "--force", "--json")))
	wantFiles(t, filepath.Dir(to), "relay.db", filepath.Base(r.Kept)+"-wal", "relay.db.lock")
	wantWhole(t, to)
}

// A restore replaces a damaged database too.
func TestADamagedDatabaseCanBeReplaced(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^restore")
	backup := filepath.Join(t.TempDir(), "backup.db")
	mustRelay(t, "backup", backup, "--db", db)
	if err := os.WriteFile(db, []byte(strings.Repeat("damage\n", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if docs.Has("check") {
		runRelay(t, "check", "--db", db).wantCode(t, 1, db, "is not a database")
	}
	runRelay(t, "backup", backup+"2", "--db", db).wantCode(t, 1, db, "is not a database")
	mustRelay(t, "restore", backup, "--db", db, "--force")
	wantWhole(t, db)
}

// flip changes a byte in the middle of a page's content.
func flip(t *testing.T, db string, page int) {
	t.Helper()
	content, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	at := page*4096 + 3 // the number of cells
	content[at] ^= 0x55
	if err := os.WriteFile(db, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAFaultyBackupIsNotRestored(t *testing.T) {
	db := tempDB(t)
	issue(t, db, "a^restore")
	flip(t, db, 3)
	to := tempDB(t)
	runRelay(t, "restore", db, "--db", to).wantCode(t, 1, "faults", "relay check "+db)
	runRelay(t, "backup", to, "--db", db).wantCode(t, 1, "faults", "relay check --db "+db, "--no-check")
	wantFiles(t, filepath.Dir(to))
	mustRelay(t, "backup", to, "--db", db, "--no-check") // a copy with faults is better than none
	if docs.Has("check") {
		runRelay(t, "check", to).wantCode(t, 1)
	}
}
