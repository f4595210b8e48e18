package search_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// amount returns how large a directory is, or how often something is done: half
// as much with -short, as the race detector has it.
func amount(t testing.TB, usual, longer int) int {
	switch {
	case scratch.Long(t):
		return longer
	case testing.Short():
		return (usual + 1) / 2
	}
	return usual
}

// Indexes are made here by the dozen: a quarter of the time would go into
// collecting what they have thrown away.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && !testing.Short() {
		flag.Set("test.parallel", "6") // some wait for timers
	}
	os.Exit(m.Run())
}

// patience ends a test that would otherwise never end. It does not measure speed: a
// search that has so much time is not cut short on a busy machine.
const patience = time.Minute

// A shelf is a Source in memory: the table of profiles, one row per Mecha.
type shelf struct {
	mu   sync.Mutex
	rows map[relay.MechaNumber]relay.Entry
	last int64
	page int // entries a page; 0: as asked
	// learned is what completed exchanges have taught, by Mecha.
	learned map[relay.MechaNumber]relay.Learned
	taught  relay.Position
	// gate, if set, is read from before each page: the test decides when.
	gate chan struct{}
}

func newShelf(entries ...relay.Entry) *shelf {
	s := &shelf{rows: map[relay.MechaNumber]relay.Entry{}}
	for _, e := range entries {
		s.put(e)
	}
	return s
}

func (s *shelf) put(e relay.Entry) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	e.Revision = s.last
	s.rows[e.Number] = e
	return s.last
}

func (s *shelf) remove(id relay.MechaNumber) int64 {
	e := relay.Entry{Removed: true}
	e.Number = id
	return s.put(e)
}

func (s *shelf) EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error) {
	if s.gate != nil {
		select {
		case <-s.gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.page > 0 {
		limit = min(limit, s.page)
	}
	var list []relay.Entry
	for _, e := range s.rows {
		if e.Revision > revision {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b relay.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	return list[:min(len(list), limit)], nil
}

// lookup is the callback for highlights.
func (s *shelf) lookup(_ context.Context, ids []relay.MechaNumber) ([]relay.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []relay.Entry
	for _, id := range ids {
		if e, ok := s.rows[id]; ok {
			list = append(list, e)
		}
	}
	return list, nil
}

// boost is the Boost of a ring, for the indexes of tests.
var boost = func(source any) search.Boost { return nil }

// mustFollow opens an index in dir that follows the source until the test ends.
func mustFollow(t testing.TB, dir string, source search.Source) *search.Index {
	t.Helper()
	return mustFollowLogging(t, dir, source, slog.New(slog.DiscardHandler))
}

func mustFollowLogging(t testing.TB, dir string, source search.Source, log *slog.Logger) *search.Index {
	t.Helper()
	x, err := search.Open(dir, search.Options{Wait: patience, Budget: patience, Logger: log, Boost: boost(source)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := x.Follow(context.Background(), source); err != nil {
			t.Errorf("Follow: %v", err)
		}
	}()
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		<-done
	})
	return x
}

// waitFor waits until the index has applied a revision.
func waitFor(t testing.TB, x *search.Index, revision int64) {
	t.Helper()
	until(t, x, fmt.Sprintf("it reaches revision %d", revision), func(p search.Progress) bool { return p.Ready && p.Revision >= revision })
}

// until waits until an index says so of itself.
func until(t testing.TB, x *search.Index, what string, so func(search.Progress) bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(x.Progress()); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s: %+v", patience, what, x.Progress())
		}
	}
}

// mustIndex returns an index of the entries, applied in batches of so many.
func mustIndex(t testing.TB, entries []relay.Entry, batch int) *search.Index {
	t.Helper()
	s := newShelf(entries...)
	s.page = batch
	x := mustFollow(t, scratch.Dir(t), s)
	waitFor(t, x, s.last)
	return x
}

// mecha is an entry with an address and a description.
func mecha(id relay.MechaNumber, address, description string) relay.Entry {
	var e relay.Entry
	e.Number, e.Address, e.Description = id, relay.Address(address), description
	e.UpdatedAt = time.Unix(1_700_000_000+int64(id), 0)
	return e
}

func mustSearch(t testing.TB, x *search.Index, req search.Request) *search.Result {
	t.Helper()
	r, err := x.Search(context.Background(), req)
	if err != nil {
		t.Fatalf("search %q: %v", req.Query, err)
	}
	return r
}

// addresses lists whom a search found, in order.
func addresses(r *search.Result) []string {
	list := []string{}
	for _, h := range r.Hits {
		list = append(list, string(h.Address))
	}
	return list
}

func wantAddresses(t testing.TB, r *search.Result, want ...string) {
	t.Helper()
	if got := addresses(r); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}
