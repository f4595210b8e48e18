package search_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

func TestFollowsChanges(t *testing.T) {
	t.Parallel()
	s := newShelf(travel()...)
	x := mustFollow(t, t.TempDir(), s)
	waitFor(t, x, s.last)

	changed := mecha(4, "weather-oracle^meteo", "Casts horoscopes.")
	s.put(changed)
	s.put(mecha(6, "newcomer^acme", "Casts bronze."))
	s.remove(2)
	x.Wake()
	waitFor(t, x, s.last) // nothing but Wake tells it
	wantAddresses(t, mustSearch(t, x, search.Request{Query: "horoscopes"}), "weather-oracle^meteo")
	wantAddresses(t, mustSearch(t, x, search.Request{Query: "bronze"}), "newcomer^acme")
	if r := mustSearch(t, x, search.Request{Query: "tomorrow"}); r.Total != 0 {
		t.Errorf("the old profile is found: %v", addresses(r))
	}
	if r := mustSearch(t, x, search.Request{Query: "gethotelrooms"}); r.Total != 0 {
		t.Errorf("a removed Mecha is found: %v", addresses(r))
	}
	if p := x.Progress(); p.Entries != 5 || p.Revision != s.last || p.Rebuilt != "" {
		t.Errorf("progress %+v", p)
	}
}

func TestReopensWhereItWas(t *testing.T) {
	t.Parallel()
	s := newShelf(travel()...)
	dir := t.TempDir()
	fill(t, dir, s)
	counted := &countingSource{Source: s}
	x := mustFollow(t, dir, counted)
	waitFor(t, x, s.last)
	if n := counted.entries.Load(); n > 1 { // one to see that it is the same store
		t.Errorf("read %d entries again", n)
	}
	wantAddresses(t, mustSearch(t, x, search.Request{Query: "flights"}), "skyfinder^acme")
}

type countingSource struct {
	search.Source
	entries atomic.Int64
}

func (c *countingSource) EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error) {
	list, err := c.Source.EntriesAfter(ctx, revision, limit)
	c.entries.Add(int64(len(list)))
	return list, err
}

// fill makes an index of the source in dir and closes it.
func fill(t *testing.T, dir string, source *shelf) {
	t.Helper()
	x, err := search.Open(dir, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- x.Follow(context.Background(), source) }()
	waitFor(t, x, source.last)
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Whatever is wrong with the files: the index says so and is rebuilt.
func TestDamageIsRepaired(t *testing.T) {
	t.Parallel()
	g, all := newGenerator(t, 3), amount(t, 50, 300)
	s := newShelf(append(travel(), g.entries(all)[5:]...)...)
	whole := scratch.Dir(t)
	fill(t, whole, s)
	for name, damage := range map[string]func(t *testing.T, dir string){
		"truncated root.bolt":     func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "store", "root.bolt"), 2) },
		"tiny root.bolt":          func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "store", "root.bolt"), 1000) },
		"empty root.bolt":         func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "store", "root.bolt"), 0) },
		"scribbled root.bolt":     func(t *testing.T, dir string) { scribble(t, filepath.Join(dir, "store", "root.bolt")) },
		"truncated segment":       func(t *testing.T, dir string) { truncate(t, segment(t, dir), 2) },
		"empty segment":           func(t *testing.T, dir string) { truncate(t, segment(t, dir), 0) },
		"scribbled segment":       func(t *testing.T, dir string) { scribble(t, segment(t, dir)) },
		"removed segment":         func(t *testing.T, dir string) { remove(t, segment(t, dir)) },
		"emptied index_meta.json": func(t *testing.T, dir string) { truncate(t, filepath.Join(dir, "index_meta.json"), 0) },
		"removed index_meta.json": func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "index_meta.json")) },
		"foreign index_meta.json": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "index_meta.json"), `{"storage":"boltdb","index_type":"upside_down"}`)
		},
		"removed store": func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "store")) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch.Dir(t)
			if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "note.txt"), "not ours")
			damage(t, dir)
			var log bytes.Buffer
			x := mustFollowLogging(t, dir, s, slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})))
			if !strings.HasPrefix(log.String(), "time=") {
				t.Error("it does not say what is wrong")
			}
			waitFor(t, x, s.last)
			if r := mustSearch(t, x, search.Request{Query: "skyfinder"}); string(r.Hits[0].Address) != "skyfinder^acme" {
				t.Errorf("finds %v", addresses(r))
			}
			if p := x.Progress(); p.Rebuilt == "" {
				t.Errorf("it does not say so: %+v", p)
			}
			if p := x.Progress(); p.Entries != all {
				t.Errorf("%d entries", p.Entries)
			}
			if _, err := os.Stat(filepath.Join(dir, "note.txt")); err != nil {
				t.Error("it removed what is not its own")
			}
		})
	}
	t.Run("removed folder", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "index")
		fill(t, dir, s)
		remove(t, dir)
		waitFor(t, mustFollow(t, dir, s), s.last)
	})
}

// A segment cut short under a running index: searches fail at worst, the process lives,
// and the index is rebuilt.
func TestDamageWhileRunning(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("a mapped file cannot be cut short everywhere")
	}
	g := newGenerator(t, 3)
	s := newShelf(append(travel(), g.entries(300)[5:]...)...)
	dir := t.TempDir()
	x := mustFollow(t, dir, s)
	waitFor(t, x, s.last)
	names, _ := filepath.Glob(filepath.Join(dir, "store", "*.zap"))
	for _, n := range names {
		truncate(t, n, 0)
	}
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		r, err := x.Search(context.Background(), search.Request{Query: "skyfinder"})
		if err == nil && len(r.Hits) > 0 && x.Progress().Rebuilt != "" && x.Ready() {
			break
		}
		if err != nil && relay.ErrorCode(err) != relay.Overloaded {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("not repaired: %v, %+v", err, x.Progress())
		}
	}
}

func TestOtherStoreIsRebuilt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newShelf(travel()...)
	fill(t, dir, s)
	// The same store from an older backup, and another that is longer.
	older := newShelf(travel()[:3]...)
	x := mustFollow(t, dir, older)
	waitFor(t, x, 3)
	until(t, x, "it is made anew", func(p search.Progress) bool { return p.Rebuilt != "" && p.Entries == 3 })
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	other := newShelf(mecha(70, "a^b", "x"), mecha(71, "b^b", "x"), mecha(72, "c^b", "x"), mecha(73, "d^b", "x"))
	x = mustFollow(t, dir, other)
	until(t, x, "it is made anew", func(p search.Progress) bool { return p.Rebuilt != "" && p.Entries == 4 })
	if r := mustSearch(t, x, search.Request{Query: "skyfinder"}); r.Total != 0 {
		t.Errorf("finds %v of another store", addresses(r))
	}
}

// Close and Follow begin at once, as when a server cannot listen: Close waits
// for a Follow that has begun, and none begins after it.
func TestCloseWhileFollowBegins(t *testing.T) {
	t.Parallel()
	s := newShelf(travel()...)
	for range 20 {
		x, err := search.Open(t.TempDir(), search.Options{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- x.Follow(context.Background(), s) }()
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestFolderInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newShelf(travel()...)
	x := mustFollow(t, dir, s)
	waitFor(t, x, s.last)
	if y, err := search.Open(dir, search.Options{}); err == nil {
		y.Close()
		t.Error("two have the folder open")
	} else if !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
	wantAddresses(t, mustSearch(t, x, search.Request{Query: "flights"}), "skyfinder^acme")
}

// A source that fails is asked again; meanwhile searches use the entries that are there.
func TestSourceFails(t *testing.T) {
	t.Parallel()
	s := newShelf(travel()...)
	failing := &failingSource{Source: s, failed: make(chan struct{}, 1)}
	x := mustFollow(t, t.TempDir(), failing)
	select {
	case <-failing.failed:
	case <-time.After(patience):
		t.Fatal("the source was not asked")
	}
	if x.Ready() {
		t.Error("ready without a page")
	}
	mustSearch(t, x, search.Request{Query: "flights"})
	failing.repaired.Store(true)
	waitFor(t, x, s.last)
}

// failingSource fails until it is repaired.
type failingSource struct {
	search.Source
	repaired atomic.Bool
	failed   chan struct{} // tells that it has failed
}

func (f *failingSource) EntriesAfter(ctx context.Context, revision int64, limit int) ([]relay.Entry, error) {
	if !f.repaired.Load() {
		select {
		case f.failed <- struct{}{}:
		default:
		}
		return nil, errors.New("disk on fire")
	}
	return f.Source.EntriesAfter(ctx, revision, limit)
}

// The source waits for a search before it gives the next page: a search that
// waited for the index to be whole would never end.
func TestSearchWorksDuringARebuild(t *testing.T) {
	t.Parallel()
	g := newGenerator(t, 5)
	s := newShelf(g.entries(amount(t, 120, 600))...)
	s.page, s.gate = 20, make(chan struct{})
	x := mustFollow(t, t.TempDir(), s)
	counts := map[int]bool{}
	for revision := int64(0); revision <= s.last; revision += 20 {
		until(t, x, "the page is applied", func(p search.Progress) bool { return p.Revision >= revision })
		r := mustSearch(t, x, search.Request{Filter: search.Filter{Languages: []string{"en", "de", "fr"}}})
		counts[r.Total] = true
		s.gate <- struct{}{}
	}
	if len(counts) < 3 {
		t.Errorf("saw %d states", len(counts))
	}
	waitFor(t, x, s.last)
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	s := newShelf(newGenerator(t, 5).entries(amount(t, 100, 200))...)
	s.page = 10
	x, err := search.Open(t.TempDir(), search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() { x.Follow(context.Background(), s) })
	for n := range 4 { // of four Mechas: one would find its share taken on a busy machine
		all.Go(func() {
			for {
				if _, err := x.Search(context.Background(), search.Request{Query: "a word", Caller: relay.Address(fmt.Sprintf("client%d^acme", n))}); err != nil {
					if relay.ErrorCode(err) != relay.ShuttingDown && !errors.Is(err, search.ErrBusy) {
						t.Error(err)
					}
					return
				}
				x.Wake()
				x.Progress()
			}
		})
	}
	until(t, x, "it is at work", func(p search.Progress) bool { return p.Revision > 0 })
	for range 2 {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	if err := x.Follow(context.Background(), s); err != nil {
		t.Errorf("Follow after Close: %v", err)
	}
}

func segment(t *testing.T, dir string) string {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(dir, "store", "*.zap"))
	if len(names) == 0 {
		t.Fatal("no segments")
	}
	return names[0]
}

// truncate leaves a file's first bytes: half of them if n is 2.
func truncate(t *testing.T, name string, n int64) {
	t.Helper()
	if n == 2 {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		n = info.Size() / 2
	}
	if err := os.Truncate(name, n); err != nil {
		t.Fatal(err)
	}
}

// scribble overwrites a stretch in the middle of a file.
func scribble(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		if i%3 != 0 {
			b[i] = byte(i * 7)
		}
	}
	write(t, name, string(b))
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

func ExampleIndex() {
	dir, _ := os.MkdirTemp("", "index")
	defer os.RemoveAll(dir)
	x, err := search.Open(dir, search.Options{Budget: time.Minute}) // words are corrected early in a search alone
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	e := relay.Entry{Revision: 1}
	e.Number, e.Address, e.Description = 1, "skyfinder^acme", "Books flights."
	go x.Follow(context.Background(), newShelf(e))
	for end := time.Now().Add(patience); !x.Ready() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	r, _ := x.Search(context.Background(), search.Request{Query: "who books fligths?"})
	fmt.Println(r.Hits[0].Address, r.Hits[0].Matched.Terms, r.CorrectedQuery)
	// Output: skyfinder^acme [books flights] who books flights?
}
