package search_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"relay/db/relay"
	"relay/search"
)

// A reportingShelf is a shelf that reports its changes, as a Directory does.
type reportingShelf struct {
	*shelf
	changed    func()
	processors []int         // GOMAXPROCS at each page
	read       chan struct{} // receives when all entries have been read
	asked      int           // how often it was asked how much is written
}

func newReportingShelf(entries ...relay.Entry) *reportingShelf {
	return &reportingShelf{shelf: newShelf(entries...), read: make(chan struct{}, 10)}
}

func (d *reportingShelf) OnEntries(changed func()) { d.changed = changed }

// Written says that the server is busy.
func (d *reportingShelf) Written() uint64 {
	d.asked++
	return uint64(d.asked) * 1_000_000
}

func (d *reportingShelf) EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error) {
	d.processors = append(d.processors, runtime.GOMAXPROCS(0))
	list, err := d.shelf.EntriesAfter(ctx, revision, limit)
	if err == nil && len(list) == 0 {
		d.read <- struct{}{}
	}
	return list, err
}

// waitForFirst waits until a search finds the address first.
func waitForFirst(t *testing.T, s *search.Service, query, address string) {
	t.Helper()
	var r *search.Result
	var err error
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		r, err = s.Search(context.Background(), search.Request{Query: query})
		if err == nil && len(r.Hits) > 0 && string(r.Hits[0].Address) == address {
			return
		}
	}
	t.Fatalf("%q does not find %s: %+v, %v", query, address, r, err)
}

// A Service follows its directory without being told to. While it applies many
// entries there are more processors, and afterwards as many as before.
func TestServiceFollowsItsDirectory(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Setenv("GOMAXPROCS", strconv.Itoa(before))
	d := newReportingShelf(travel()...)
	d.puts(100, 1300) // more than a page
	s := search.Serve(filepath.Join(t.TempDir(), "index"), d, boost(d), slog.New(slog.DiscardHandler))
	<-d.read
	waitForFirst(t, s, "skyfinder", "skyfinder^acme")
	d.put(mecha(9001, "newcomer^acme", "Casts bronze."))
	d.changed()
	waitForFirst(t, s, "bronze", "newcomer^acme")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if d.processors[0] != before || d.processors[1] <= before {
		t.Errorf("GOMAXPROCS is %v at the pages, and was %d", d.processors, before)
	}
	if want := len(d.processors) + 2; d.asked != want { // before each page, and after those of many entries
		t.Errorf("it was asked %d times how much is written, want %d", d.asked, want)
	}
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("GOMAXPROCS is %d, and was %d", after, before)
	}
	if _, err := s.Search(context.Background(), search.Request{Query: "bronze"}); relay.ErrorCode(err) != relay.ShuttingDown {
		t.Errorf("after Close: %v", err)
	}
}

// While its index cannot be opened a Service refuses searches, and it opens the
// index as soon as it can.
func TestServiceOpensItsIndexLater(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "index")
	write(t, dir, "a file in the place of the folder")
	d := newReportingShelf(travel()...)
	s := search.Serve(dir, d, boost(d), slog.New(slog.DiscardHandler))
	d.changed() // nobody to wake yet
	var e *relay.Error
	if _, err := s.Search(context.Background(), search.Request{Query: "flights"}); !errors.As(err, &e) || e.Code != relay.Overloaded || e.RetryAfter <= 0 {
		t.Errorf("without an index: %v", err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	waitForFirst(t, s, "flights", "skyfinder^acme")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A Service that is still waiting for its index can be closed.
func TestServiceClosesWithoutAnIndex(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "index")
	write(t, dir, "a file in the place of the folder")
	s := search.Serve(dir, newReportingShelf(), nil, slog.New(slog.DiscardHandler))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
