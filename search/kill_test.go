package search_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/blevesearch/bleve/v2"

	"relay/db/relay"
	"relay/search"
)

const rungs = 40 // entries of a page

// A ladder is a source without end: Mecha after Mecha, each as its number says.
type ladder struct{ top int64 }

func (l ladder) EntriesAfter(_ context.Context, revision int64, limit int) ([]relay.Entry, error) {
	var list []relay.Entry
	for n := revision + 1; n <= l.top && len(list) < min(limit, rungs); n++ {
		e := mecha(relay.MechaNumber(n), fmt.Sprintf("m%d^ladder", n), fmt.Sprintf("stands on rung%d", n))
		e.Revision = n
		list = append(list, e)
	}
	return list, nil
}

// Killed at any moment, an index opens again where it was, with nothing lost
// and nothing half done.
func TestKill(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("RELAY_SEARCH_TEST_CHILD"); dir != "" {
		x, err := search.Open(dir, search.Options{})
		if err != nil {
			t.Fatal(err)
		}
		go x.Follow(context.Background(), ladder{1 << 40})
		for {
			fmt.Println(x.Progress().Revision)
			time.Sleep(time.Millisecond)
		}
	}
	if testing.Short() {
		t.Skip("kills processes for some seconds")
	}
	dir := t.TempDir()
	for round := range amount(t, 2, 6) {
		reached := followAndKill(t, dir, rand.N(20*int64(rungs)))
		x, err := search.Open(dir, search.Options{Wait: patience, Budget: patience}) // a busy machine must not decide
		if err != nil {
			t.Fatal(err)
		}
		p := x.Progress()
		// A batch is seen just before it is on the disk: the last may be gone.
		if p.Rebuilt != "" || p.Revision < reached-rungs || int64(p.Entries) != p.Revision {
			t.Errorf("round %d: it had reached %d, and now %+v", round, reached, p)
		}
		for _, n := range []int64{min(1, p.Revision), p.Revision / 2, p.Revision} {
			if n == 0 { // killed before anything was on the disk
				continue
			}
			r := mustSearch(t, x, search.Request{Query: fmt.Sprintf("rung%d", n)})
			if len(r.Hits) == 0 || r.Hits[0].ID != relay.MechaNumber(n) {
				t.Errorf("round %d: rung%d finds %v", round, n, addresses(r))
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// followAndKill runs a child that follows the ladder in dir, kills it when it says to be
// further by so much, and gives the last revision that it said to have reached. The child
// continues meanwhile: it is killed at any moment.
func followAndKill(t *testing.T, dir string, further int64) int64 {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^TestKill$")
	child.Env = append(os.Environ(), "RELAY_SEARCH_TEST_CHILD="+dir)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(patience, func() { child.Process.Kill() })
	defer late.Stop()
	first, reached := int64(-1), int64(0)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		n, err := strconv.ParseInt(lines.Text(), 10, 64)
		if err != nil {
			continue
		}
		if first < 0 {
			first = n
		}
		if reached = n; n > first+further {
			child.Process.Kill() // what it has said until then is read to the end
		}
	}
	if reached <= first+further {
		t.Errorf("it began at %d, reached %d and did not come further by %d within %v", first, reached, further, patience)
	}
	child.Wait()
	return reached
}

// An index that another version of the program made is not used.
func TestOtherVersionIsRebuilt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newShelf(travel()...)
	fill(t, dir, s)
	b, err := bleve.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.SetInternal([]byte("relay.version"), []byte("0")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	x := mustFollow(t, dir, s)
	if p := x.Progress(); p.Rebuilt == "" {
		t.Errorf("it does not say so: %+v", p)
	}
	waitFor(t, x, s.last)
	if p := x.Progress(); p.Entries != len(travel()) {
		t.Errorf("%+v", p)
	}
}
