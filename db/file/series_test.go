package file_test

import (
	"testing"

	"relay/db/file"
	"relay/db/file/series"
)

// An older file is copied as it is, even next to an older copy.
func TestAnOlderFileIsAddedToASeries(t *testing.T) {
	path, _ := mustMakeOlder(t)
	older, folder := file.CurrentSchema(), t.TempDir()
	defer file.Pretend(step)()
	now := schema(t) + step
	copies := series.New(folder, 2)
	defer copies.Close()
	for range 2 { // the second one looks at the first
		to, err := copies.Add(t.Context(), file.BackupOptions{From: path, Schema: now})
		if err != nil {
			t.Fatal(err)
		}
		wantWhole(t, to.Path, now, older)
	}
	wantWhole(t, path, now, older)
}
