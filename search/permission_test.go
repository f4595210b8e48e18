package search_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"relay/search"
)

// The index has profiles that others must not see: nobody else may read it, even in a
// folder that was made beforehand, or by an earlier program.
func TestNobodyElseReadsTheIndex(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("it has no such permissions")
	}
	dir := filepath.Join(t.TempDir(), "index")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
		t.Fatal(err)
	}
	note := filepath.Join(dir, "note.txt")
	write(t, note, "not ours")
	if err := os.Chmod(note, 0o644); err != nil {
		t.Fatal(err)
	}
	s := newShelf(travel()...)
	fill(t, dir, s)
	wantPrivate(t, dir)

	for path := range tree(t, dir) {
		if path != note {
			if err := os.Chmod(path, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(t, dir, s)
	wantPrivate(t, dir)
	if info, err := os.Stat(note); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("what is not its own has %v now, %v", info.Mode(), err)
	}

	// Rebuilt, it is as private.
	truncate(t, filepath.Join(dir, "store", "root.bolt"), 1000)
	x, err := search.Open(dir, search.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantPrivate(t, dir)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// tree returns the mode of a folder and of all that is in it.
func tree(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	all := map[string]fs.FileMode{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				all[path] = info.Mode()
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantPrivate(t *testing.T, dir string) {
	t.Helper()
	all := tree(t, dir)
	if len(all) < 5 {
		t.Errorf("there is only %v", all)
	}
	for path, mode := range all {
		want := fs.FileMode(0o600)
		if mode.IsDir() {
			want = 0o700
		}
		if filepath.Base(path) != "note.txt" && mode.Perm() != want {
			t.Errorf("%s has %v", path, mode)
		}
	}
}
