package cmd_test

import (
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"
)

type compacted struct {
	File    string
	Before  int64 `json:"bytes_before"`
	After   int64 `json:"bytes_after"`
	Unused  int64 `json:"bytes_unused"`
	Rebuilt bool
}

// emptied returns a closed database, most pages of which are unused.
func emptied(t *testing.T) (db string, all []agent, size int64) {
	t.Helper()
	db = tempDB(t)
	large(t, db)
	d := byHand(t, db)
	defer d.Close()
	for _, table := range []string{"payload", "message", "received", "sent"} {
		if _, err := d.Exec("DELETE FROM " + table + " WHERE position < (SELECT max(position) FROM " + table + ")"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	all = issue(t, db, crowd(9)...)
	return db, all, sizeOf(t, db)
}

func sizeOf(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestCompactGivesSpaceBackUnderLoad(t *testing.T) {
	notQuickButForRaces(t)
	t.Parallel()
	db, all, before := emptied(t)
	s := startServer(t, db, "--rate-limit", "0", "--max-pending", "0")
	f := busy(t, s, all)
	eventually(t, patience, "messages", func() bool { return f.count() > 50 })
	r := parse[compacted](t, []byte(mustRelay(t, "compact", "--db", db, "--json")))
	now := f.count()
	eventually(t, patience, "the server goes on", func() bool { return f.count() > now })
	f.end()
	most := before/2 + f.bytes()                     // less than half of it was in use, and these bytes were written since
	if r.Rebuilt || r.File != db || r.After > most { // the server may have begun with it by itself
		t.Errorf("%+v of a file of %d bytes; at most %d are needed", r, before, most)
	}
	eventually(t, patience, "the file is shorter", func() bool { return sizeOf(t, db) <= most })
	wantWhole(t, db)
	accepted, _ := f.told()
	there := map[string]bool{}
	for _, m := range s.history(all[len(all)-1], "direction=in") {
		there[m.MessageID] = true
	}
	for id := range accepted {
		if !there[id] {
			t.Fatalf("%s is lost", id)
		}
	}
}

func TestCompactRebuildsAFileThatNobodyServes(t *testing.T) {
	notShort(t)
	t.Parallel()
	db, _, before := emptied(t)
	r := parse[compacted](t, []byte(mustRelay(t, "compact", "--db", db, "--json")))
	if !r.Rebuilt || r.Before != before || r.After != sizeOf(t, db) || r.After > before/10 {
		t.Errorf("%+v; the file has %d bytes", r, sizeOf(t, db))
	}
	wantFiles(t, filepath.Dir(db), "relay.db", "relay.db-nonces", "relay.db.index", "relay.db.lock")
	wantWhole(t, db)
	again := parse[compacted](t, []byte(mustRelay(t, "compact", "--db", db, "--json")))
	if again.After != r.After {
		t.Errorf("%+v, and again %+v", r, again)
	}
}
