package directory

import (
	"testing"
)

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		n    int
	}{{"bob^acme", "bob^acme", 0}, {"bbo^acme", "bob^acme", 1}, {"bob^acm", "bob^acme", 1}, {"bob", "bob^acme", suggestEdits + 1}, {"kitten", "sitting", 3}} {
		if n := edits(c.a, c.b); n != c.n {
			t.Errorf("edits(%q, %q) = %d, want %d", c.a, c.b, n, c.n)
		}
	}
}
