package late_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"relay/db/internal/late"
	"relay/db/internal/sqlite"
)

// The tables of the tests: two that are written, and one in memory.
const (
	byOwner = iota
	byTopic
	unread
)

// letter is an item: each has an owner, some have a topic.
type letter struct{ at, owner, topic int64 }

func (l letter) Position() int64 { return l.at }

func (l letter) Key(table int) (of int64, is bool) {
	if table == byTopic {
		return l.topic, l.topic != 0
	}
	return l.owner, true
}

// state is a file: its letters, the rows of its tables, and the watermark.
type state struct {
	letters map[int64]letter
	rows    [2]map[late.Row[int64]]bool
	upto    int64
}

func (s *state) clone() *state {
	return &state{maps.Clone(s.letters), [2]map[late.Row[int64]]bool{maps.Clone(s.rows[0]), maps.Clone(s.rows[1])}, s.upto}
}

// store is a file with a writer. A transaction works on next, which takes the place of file.
type store struct {
	*testing.T
	*late.Index[letter, int64]
	file, next *state
	removed    []letter
	read       []late.Row[int64]
	inserted   int   // tables that the present transaction inserts into
	before     int64 // the watermark before the present one, or that of the start
}

const segment, perLetter, least = 7, 5, 3

func open(t *testing.T, file *state) *store {
	s := &store{T: t, file: file, before: file.upto}
	insert := func(table int) func(*sqlite.Conn, []late.Row[int64]) error {
		return func(_ *sqlite.Conn, rows []late.Row[int64]) error {
			if s.inserted++; !slices.IsSortedFunc(rows, func(a, b late.Row[int64]) int {
				return slices.Compare([]int64{a.Of, a.At}, []int64{b.Of, b.At})
			}) {
				t.Errorf("rows out of order: %v", rows)
			}
			for _, r := range rows {
				s.next.rows[table][r] = true
			}
			return nil
		}
	}
	s.Index = late.New[letter](late.Options[int64]{
		Tables:    []func(*sqlite.Conn, []late.Row[int64]) error{insert(byOwner), insert(byTopic), unread: nil},
		Watermark: func(_ *sqlite.Conn, upto int64) error { s.next.upto = upto; return nil },
		Segment:   segment, PerItem: perLetter, MinRows: least, ScanRatio: 4,
	})
	err := s.Start(file.upto, func(add func(letter)) error {
		for _, at := range slices.Sorted(maps.Keys(file.letters)) {
			if at > file.upto {
				add(file.letters[at])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// write makes a transaction of f, or rolls it back.
func (s *store) write(commit bool, f func()) {
	s.Begin()
	s.next, s.removed, s.read, s.inserted = s.file.clone(), nil, nil, 0
	f()
	if err := s.BeforeCommit(nil, s.removed); err != nil {
		s.Fatal(err)
	}
	if s.inserted > 1 {
		s.Errorf("a transaction has inserted rows into %d tables", s.inserted)
	}
	if commit {
		if s.file.upto != s.next.upto {
			s.before = s.file.upto
		}
		s.file = s.next
		s.AfterCommit(unread, s.read, s.removed)
	}
}

func (s *store) add(l letter) {
	s.next.letters[l.at] = l
	s.Expect(l)
}

func (s *store) remove(l letter) {
	delete(s.next.letters, l.at)
	for table := range s.next.rows {
		of, _ := l.Key(table)
		delete(s.next.rows[table], late.Row[int64]{Of: of, At: l.at})
	}
	s.removed = append(s.removed, l)
}

// wantFound checks what a read of a state of the file finds in it and in the memory of now. It
// need not find what is removed in the state now.
func (s *store) wantFound(seen, now *state) {
	s.Helper()
	for of := range int64(4) {
		for table := range seen.rows {
			k := late.Key{Table: table, Of: of}
			from, to := int64(len(seen.letters)/3), int64(1<<40)
			positions, many, known := s.Find(seen.upto, from, to, k)
			if reaches := seen.upto >= s.before; known != reaches {
				s.Fatalf("the memory reaches back to %d; whether it knows what comes after %d: %v", s.before, seen.upto, known)
			}
			found := map[int64]bool{}
			for _, at := range positions {
				found[at] = true
			}
			for at, l := range seen.letters {
				if (many || !known) && at > seen.upto { // it scans
					found[at] = true
				}
				if own, is := l.Key(table); seen.rows[table][late.Row[int64]{Of: own, At: at}] && is && own == of {
					found[at] = true
				}
			}
			for at, l := range seen.letters {
				_, there := now.letters[at]
				if own, is := l.Key(table); is && own == of && from <= at && at < to && there && !found[at] {
					s.Fatalf("letter %+v is not found by %+v at the watermark %d", l, k, seen.upto)
				}
			}
			if r := (late.Row[int64]{Of: of}); !many {
				for _, r.At = range positions {
					if l, there := seen.letters[r.At]; there && r.At > seen.upto {
						if own, is := l.Key(table); !is || own != of {
							s.Fatalf("letter %+v is found by %+v", l, k)
						}
					}
				}
			}
		}
	}
	for table, rows := range s.file.rows {
		for r := range rows {
			if _, there := s.file.letters[r.At]; !there {
				s.Fatalf("table %d has the row %v of a removed letter", table, r)
			}
		}
	}
}

// Whatever is added, removed, rolled back or killed, each read finds all letters of its state.
func TestReadsFindWhatIsNotIndexed(t *testing.T) {
	for seed := range uint64(25) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := open(t, &state{letters: map[int64]letter{}, rows: [2]map[late.Row[int64]]bool{{}, {}}})
		at, unreads := int64(0), map[int64]letter{}
		var old []*state
		for range 100 {
			commit := random.IntN(8) > 0
			added, gone := map[int64]letter{}, []int64(nil)
			s.write(commit, func() {
				for range random.IntN(4) {
					at += 1 + random.Int64N(3)
					l := letter{at, random.Int64N(3), random.Int64N(4)}
					added[at] = l
					s.add(l)
				}
				for _, l := range s.file.letters {
					switch random.IntN(30) {
					case 0:
						s.remove(l)
						gone = append(gone, l.at)
					case 1:
						s.read = append(s.read, late.Row[int64]{Of: l.owner, At: l.at})
						gone = append(gone, l.at)
					}
				}
				s.wantFound(s.next, s.next) // as the writer sees it
			})
			if commit {
				maps.Copy(unreads, added)
				for _, p := range gone {
					delete(unreads, p)
				}
			}
			s.wantFound(s.file, s.file)
			if old = append(old, s.file); len(old) > 12 {
				old = old[1:]
			}
			for _, seen := range old {
				s.wantFound(seen, s.file)
			}
			if random.IntN(40) == 0 { // a kill: what was read is found unread again, until the next start asks the file
				s, old, unreads = open(t, s.file), nil, maps.Clone(s.file.letters)
			}
			s.wantUnread(unreads)
		}
		s.Flush(func() bool { return true }, func() { s.write(true, func() {}) })
		if s.Missing() != 0 || at > 0 && len(s.file.letters) > 0 && s.file.upto < slices.Max(slices.Collect(maps.Keys(s.file.letters))) {
			t.Fatalf("seed %d: after Flush %d letters are missing, the watermark is %d", seed, s.Missing(), s.file.upto)
		}
		for _, l := range s.file.letters {
			for table := range s.file.rows {
				if of, is := l.Key(table); is != s.file.rows[table][late.Row[int64]{Of: of, At: l.at}] {
					t.Fatalf("seed %d: table %d and %+v", seed, table, l)
				}
			}
		}
	}
}

// wantUnread checks the table that is in memory alone.
func (s *store) wantUnread(want map[int64]letter) {
	s.Helper()
	got := map[int64]bool{}
	after := s.Lists(unread, func(list []int64) {
		for _, at := range list {
			got[at] = true
		}
	})
	for at := range got {
		if _, is := want[at]; !is {
			s.Fatalf("letter %d counts as unread", at)
		}
	}
	for at, l := range want {
		if at > after && !got[at] {
			s.Fatalf("letter %d is not among the unread ones after %d", at, after)
		}
		if s.Collects(unread, late.Row[int64]{Of: l.owner, At: at}) && !got[at] {
			s.Fatalf("letter %d is collected", at)
		}
	}
}

// An index that was not started knows nothing, and writes nothing but what it is told to.
func TestAnIndexThatWasNotStarted(t *testing.T) {
	file := &state{letters: map[int64]letter{}, rows: [2]map[late.Row[int64]]bool{{}, {}}}
	s := &store{T: t, next: file}
	var rows []late.Row[int64]
	s.Index = late.New[letter](late.Options[int64]{Tables: []func(*sqlite.Conn, []late.Row[int64]) error{
		func(_ *sqlite.Conn, some []late.Row[int64]) error { rows = append(rows, some...); return nil },
		func(_ *sqlite.Conn, some []late.Row[int64]) error { rows = append(rows, some...); return nil },
		nil,
	}})
	if _, _, known := s.Find(0, 0, 100, late.Key{}); known || s.Missing() > 0 {
		t.Error("it knows something")
	}
	for _, l := range []letter{{1, 5, 0}, {2, 5, 6}} {
		if err := s.InsertOne(nil, l); err != nil {
			t.Fatal(err)
		}
	}
	if want := []late.Row[int64]{{Of: 5, At: 1}, {Of: 5, At: 2}, {Of: 6, At: 2}}; !slices.Equal(rows, want) {
		t.Error(rows)
	}
	s.AfterCommit(unread, nil, nil)
	s.Flush(func() bool { return true }, func() { t.Error("it writes") })
}

// Rows are inserted as letters come, not too few at a time.
func TestThePaceOfRows(t *testing.T) {
	var rows []int
	insert := func(_ *sqlite.Conn, some []late.Row[int64]) error {
		rows[len(rows)-1] += len(some)
		return nil
	}
	x := late.New[letter](late.Options[int64]{
		Tables:    []func(*sqlite.Conn, []late.Row[int64]) error{insert, insert},
		Watermark: func(*sqlite.Conn, int64) error { return nil },
		Segment:   7, PerItem: 2, MinRows: 3, ScanRatio: 4,
	})
	if err := x.Start(0, func(func(letter)) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for at := range int64(14) {
		rows = append(rows, 0)
		x.Begin()
		x.Expect(letter{at + 1, at % 5, 1})
		if err := x.BeforeCommit(nil, nil); err != nil {
			t.Fatal(err)
		}
		x.AfterCommit(0, nil, nil)
	}
	if want := []int{0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 3, 3, 0, 4}; !slices.Equal(rows, want) {
		t.Errorf("the transactions insert %v rows, want %v", rows, want)
	}
	if p, many, known := x.Find(0, 0, 100, late.Key{Table: byOwner, Of: 4}); !slices.Equal(p, []int64{5, 10}) || many || !known {
		t.Error(p, many, known)
	}
	if p, many, known := x.Find(0, 0, 100, late.Key{Table: byTopic, Of: 1}); p != nil || !many || !known {
		t.Error(p, many, known)
	}
	if p, many, _ := x.Find(7, 0, 12, late.Key{Table: byOwner, Of: 4}); !slices.Equal(p, []int64{10}) || many {
		t.Error(p, many)
	}
}

// InsertNow makes one transaction of all rows, or none.
func TestInsertNow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.Open(path, sqlite.Creating)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := errors.Join(c.Exec("CREATE TABLE owned (owner, letter)"), c.Exec("CREATE TABLE upto (at)")); err != nil {
		t.Fatal(err)
	}
	var fault error
	x := late.New[letter](late.Options[int64]{
		Tables: []func(*sqlite.Conn, []late.Row[int64]) error{func(c *sqlite.Conn, rows []late.Row[int64]) error {
			for _, r := range rows {
				if err := c.Exec("INSERT INTO owned VALUES (?, ?)", r.Of, r.At); err != nil {
					return err
				}
			}
			return nil
		}},
		Watermark: func(c *sqlite.Conn, upto int64) error {
			return errors.Join(c.Exec("INSERT INTO upto VALUES (?)", upto), fault)
		},
	})
	for _, fault = range []error{errors.New("a fault"), nil} {
		err := x.Start(0, func(add func(letter)) error {
			for at := range int64(10) {
				add(letter{at + 1, at % 3, 0})
			}
			return nil
		})
		if err == nil {
			err = x.InsertNow(c)
		}
		if !errors.Is(err, fault) {
			t.Error(err)
		}
		want := int64(10)
		if fault != nil {
			want = 0
		}
		rows, err := c.Number("SELECT count(*) FROM owned")
		upto, err2 := c.Number("SELECT coalesce(max(at), 0) FROM upto")
		if rows != want || upto != want || errors.Join(err, err2) != nil {
			t.Errorf("%d rows, the watermark is %d; %v, %v", rows, upto, err, err2)
		}
	}
	if x.Missing() != 0 {
		t.Errorf("%d letters are missing", x.Missing())
	}
}
