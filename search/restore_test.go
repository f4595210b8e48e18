package search_test

import (
	"fmt"
	"testing"
	"time"

	"relay/db/relay"
	"relay/search"
)

// A backup of the store is restored next to the index, which has advanced since, and
// changed before the index sees it. Entries of the lost time must go. The same store's
// own later history does not make the index begin again.
func TestARestoredBackupIsNoticed(t *testing.T) {
	t.Parallel()
	const lost = "horoscopes" // what only profiles of the lost time say
	for name, c := range map[string]struct {
		entries  int
		later    func(s *shelf) // after the backup, seen by the index
		restored func(s *shelf) // after the backup was restored, not seen; nil: it was not
		meantime func(s *shelf) // without a restore: what the index did not see
		anew     bool
	}{
		"another Mecha changes": {5,
			func(s *shelf) { s.put(mecha(2, "two^x", lost)); s.put(mecha(4, "four^x", "new")) },
			func(s *shelf) { s.put(mecha(1, "one^x", "newer")) }, nil, true},
		"the last changed one changes": {5,
			func(s *shelf) { s.put(mecha(2, "two^x", lost)); s.put(mecha(4, "four^x", "new")) },
			func(s *shelf) { s.put(mecha(4, "four^x", "newer")) }, nil, true},
		"a Mecha of the lost time is replaced by nobody": {5,
			func(s *shelf) { s.put(mecha(9, "nine^x", lost)); s.put(mecha(4, "four^x", "new")) },
			func(s *shelf) { s.put(mecha(4, "four^x", "newer")) }, nil, true},
		"a removal of the lost time": {5,
			func(s *shelf) { s.remove(2); s.put(mecha(4, "four^x", "new")) },
			func(s *shelf) { s.put(mecha(4, "four^x", "newer")) }, nil, true},
		"more change than the index remembers": {400,
			func(s *shelf) { s.put(mecha(1, "one^x", lost)); s.puts(2, 390) },
			func(s *shelf) { s.puts(2, 390) }, nil, true},
		"all that was lost changes again": {5,
			func(s *shelf) { s.put(mecha(2, "two^x", lost)); s.put(mecha(4, "four^x", lost)) },
			func(s *shelf) { s.put(mecha(4, "four^x", "newer")); s.put(mecha(2, "two^x", "newer")) }, nil, false},
		"no restore, another changes": {5, func(s *shelf) { s.put(mecha(4, "four^x", "new")) },
			nil, func(s *shelf) { s.put(mecha(1, "one^x", "newer")) }, false},
		"no restore, the last one changes": {400, func(s *shelf) { s.put(mecha(4, "four^x", "new")) },
			nil, func(s *shelf) { s.put(mecha(4, "four^x", "newer")); s.remove(5) }, false},
		"no restore, every one changes": {5, func(s *shelf) { s.put(mecha(4, "four^x", lost)) },
			nil, func(s *shelf) { s.puts(1, 5) }, false},
		"no restore, the last hundreds change": {400, func(s *shelf) {},
			nil, func(s *shelf) { s.puts(200, 400) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			backup := newShelf()
			backup.puts(1, c.entries)
			s := newShelf()
			s.puts(1, c.entries)
			c.later(s)
			s.page = 150 // what is remembered goes over several pages
			dir := t.TempDir()
			fill(t, dir, s)
			if c.restored != nil {
				s = backup
				s.last += 10_000 // revisions are times
				c.restored(s)
			} else {
				c.meantime(s)
			}
			s.page = 0
			x := mustFollow(t, dir, s)
			entries, removed := 0, 0
			for _, e := range s.rows {
				if entries++; e.Removed {
					removed++
				}
			}
			for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
				p := x.Progress()
				if p.Ready && p.Revision == s.last && p.Entries == entries-removed && (p.Rebuilt != "") == c.anew {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%+v; want %d entries, revision %d, made anew: %v", p, entries-removed, s.last, c.anew)
				}
			}
			if r := mustSearch(t, x, search.Request{Query: lost}); r.Total != 0 {
				t.Errorf("finds %v of the lost time", addresses(r))
			}
			// And it remembers how far it has come: opened again, nothing is read twice.
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			counted := &countingSource{Source: s}
			x = mustFollow(t, dir, counted)
			waitFor(t, x, s.last)
			if n := counted.entries.Load(); n > 1 || x.Progress().Rebuilt != "" {
				t.Errorf("%d entries read again, %+v", n, x.Progress())
			}
		})
	}
}

// puts changes a range of Mechas.
func (s *shelf) puts(from, to int) {
	for i := from; i <= to; i++ {
		s.put(mecha(relay.MechaNumber(i), fmt.Sprintf("mecha%d^x", i), "an ordinary one"))
	}
}
