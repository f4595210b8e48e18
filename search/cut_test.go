package search_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"relay/db/relay"
	"relay/db/scratch"
	"relay/search"
)

// However much of root.bolt is left, opening the index ends in an index: bolt
// maps the file and would fault, and with it the process, on what is not there.
func TestRootBoltCutAnywhere(t *testing.T) {
	t.Parallel()
	dir, s := scratch.Dir(t), newShelf()
	for i := range 50 {
		s.put(mecha(relay.MechaNumber(1+i), fmt.Sprintf("m%02d^acme", i), "knows the weather"))
	}
	x := mustFollow(t, dir, s)
	for i := range 20 { // several states, so that pages are used and freed
		revision := s.put(mecha(relay.MechaNumber(1+i), fmt.Sprintf("m%02d^acme", i), "knows the weather by now"))
		x.Wake()
		waitFor(t, x, revision)
	}
	x.Close()
	root := filepath.Join(dir, "store", "root.bolt")
	whole, err := os.ReadFile(root)
	if err != nil {
		t.Fatal(err)
	}
	for size := 0; size < len(whole); size += amount(t, 9000, 3000) {
		to := scratch.Dir(t)
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "store", "root.bolt"), whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		x, err := search.Open(to, search.Options{})
		if err != nil {
			t.Fatalf("%d of %d bytes: %v", size, len(whole), err)
		}
		mustSearch(t, x, search.Request{Query: "weather"})
		x.Close()
	}
}
