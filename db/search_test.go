package db_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"relay/db"
	"relay/db/file"
	"relay/db/relay"
	"relay/db/scratch"
)

// searched is a store whose clock stands still until it is moved, and two
// Mechas that search in it.
type searched struct {
	store
	minutes    atomic.Int64 // since it began
	seconds    atomic.Int64 // besides
	alice, bob relay.MechaNumber
}

func (s *searched) now() time.Time {
	return time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC).Add(time.Duration(s.minutes.Load())*time.Minute + time.Duration(s.seconds.Load())*time.Second)
}

func mustSearched(t *testing.T, options ...func(*db.Options)) *searched {
	s := &searched{}
	s.store = mustOpen(t, append(options, func(o *db.Options) { o.Now = s.now })...)
	s.alice, s.bob = s.mustIssue("alice^demo").Mecha.Number, s.mustIssue("bob^demo").Mecha.Number
	return s
}

// mustSave keeps an answer of so many bytes.
func (s *searched) mustSave(m relay.MechaNumber, bytes int) relay.SearchID {
	s.t.Helper()
	w := &relay.SaveSearch{At: s.now(), ID: relay.NewSearchID(), Mecha: m, Answer: []byte(strings.Repeat("x", bytes)), Nonce: 1}
	saved := make(chan error, 1)
	s.SaveSearch(w, func(err error) { saved <- err })
	if err := <-saved; err != nil {
		s.t.Fatal(err)
	}
	return w.ID
}

// kept counts the answers in the file, those with their text, and the bytes of text.
func (s *searched) kept() (rows, full, bytes int) {
	s.t.Helper()
	d := byHand(s.t.(*testing.T), s.Path())
	defer d.Close()
	err := d.QueryRow("SELECT count(*), count(nullif(answer, '')), coalesce(sum(octet_length(answer)), 0) FROM search").Scan(&rows, &full, &bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	return rows, full, bytes
}

// wantKept waits until the file has so many rows, so many of them with their text.
func (s *searched) wantKept(rows, full int) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, f, _ := s.kept()
		if r == rows && f == full {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%d answers, %d with their text; want %d and %d", r, f, rows, full)
		}
	}
}

func (s *searched) wantSearch(id relay.SearchID, m relay.MechaNumber, code relay.Code) {
	s.t.Helper()
	answer, err := s.Search(ctx, id, m)
	if code == "" && (err != nil || len(answer) == 0) || code != "" && relay.ErrorCode(err) != code {
		s.t.Errorf("%d bytes, %v; want %q", len(answer), err, code)
	}
}

// The text of an expired answer leaves the file. Its row stays, so that a request for it
// gets search_expired.
func TestExpiredAnswersAreEmptied(t *testing.T) {
	t.Parallel()
	s := mustSearched(t)
	var old []relay.SearchID
	pairs := scratch.Amount(t, 20, 60)
	for range pairs {
		old = append(old, s.mustSave(s.alice, 100_000), s.mustSave(s.bob, 10))
	}
	s.minutes.Store(30)
	young := s.mustSave(s.alice, 100_000)
	s.wantKept(2*pairs+1, 2*pairs+1)
	s.minutes.Store(62)
	s.wantKept(2*pairs+1, 1)
	for i, id := range old {
		s.wantSearch(id, []relay.MechaNumber{s.alice, s.bob}[i%2], relay.SearchExpired)
	}
	s.wantSearch(old[0], s.bob, relay.NotYourSearch)
	s.wantSearch(young, s.alice, "")
	s.minutes.Store(92)
	s.wantKept(2*pairs+1, 0)
	s.wantSearch(young, s.alice, relay.SearchExpired)

	// An answer that expires while no server runs goes when the next one starts.
	s.mustSave(s.bob, 5000)
	last := s.mustSave(s.bob, 5000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.minutes.Store(200)
	s.store = mustOpen(t, func(o *db.Options) { o.Path, o.Now, o.Create = s.Path(), s.now, false })
	s.wantKept(2*pairs+3, 0)
	s.wantSearch(last, s.bob, relay.SearchExpired)
	// The file is whole, so it can be backed up.
	r, err := file.Check(ctx, file.CheckOptions{Path: s.Path(), Schema: schema(t), Report: func(f file.Finding) {
		if f.Faults > 0 && !f.Warning {
			t.Errorf("%s: %q", f.Check, f.Examples)
		}
	}})
	if err != nil || r.Checks == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Answers that were saved while the clock was far ahead do not keep others from being
// emptied.
func TestAnswersOfTheFutureHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	s := mustSearched(t)
	s.minutes.Store(60 * 24 * 365)
	s.mustSave(s.alice, 10)
	s.minutes.Store(0)
	s.mustSave(s.alice, 10)
	s.mustSave(s.bob, 10)
	s.minutes.Store(62)
	s.wantKept(3, 1)
}

// A process that does not serve empties no answers.
func TestOnlyAServerEmptiesAnswers(t *testing.T) {
	s := mustSearched(t, func(o *db.Options) { o.Serve = false })
	s.mustSave(s.alice, 10)
	s.minutes.Store(62)
	s.mustIssue("carol^demo") // goes through the writer, which first does what is due
	s.mustIssue("dave^demo")
	s.wantKept(1, 1)
}

func TestAnswersAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	s := mustSearched(t)
	small := s.mustSave(s.bob, 10)
	var ids []relay.SearchID
	large := scratch.Amount(t, 12, 20)
	for range large {
		ids = append(ids, s.mustSave(s.alice, 2<<20))
	}
	if rows, full, bytes := s.kept(); rows != large+1 || full != 9 || bytes != 16<<20+10 {
		t.Errorf("%d answers, %d with their text, %d bytes", rows, full, bytes)
	}
	for i, id := range ids {
		s.wantSearch(id, s.alice, map[bool]relay.Code{true: relay.SearchNotFound}[i < large-8])
	}
	s.wantSearch(small, s.bob, "")
	s.wantSearch(s.mustSave(s.alice, 17<<20), s.alice, "") // the newest answer is kept, however long
	if _, full, _ := s.kept(); full != 2 {
		t.Errorf("%d have their text", full)
	}
	for i := range 105 {
		ids = append(ids, s.mustSave(s.alice, 10+i))
	}
	if rows, full, _ := s.kept(); rows != 101 || full != 101 {
		t.Error(fmt.Sprint(rows, " answers, ", full, " with their text: want 100 of one and one of the other"))
	}
}
