package file_test

import (
	"strings"
	"testing"

	"relay/db/file"
	"relay/db/file/compact"
)

// A rebuild writes, so it brings an older file up to date.
func TestAnOlderFileIsMadeSmaller(t *testing.T) {
	path, _ := mustMakeOlder(t)
	older := file.CurrentSchema()
	defer file.Pretend(step)()
	now := schema(t) + step
	wantWhole(t, path, now, older)
	if r, err := compact.Rebuild(t.Context(), path, now); err != nil || !r.Rebuilt {
		t.Errorf("%+v, %v", r, err)
	}
	wantWhole(t, path, now, older+1)
}

// A rebuild would change one copy of several alone.
func TestAFileThatFollowsALogIsNotRebuilt(t *testing.T) {
	path, _ := mustMakeOlder(t)
	execute(t, path, "INSERT INTO replica (log, version, applied, at, last, hash) VALUES (x'0102030405060708', 1, 1, 1, 1, 1)")
	if _, follows, err := file.ReplicaAt(path); !follows || err != nil {
		t.Fatal(follows, err)
	}
	if _, err := compact.Rebuild(t.Context(), path, schema(t)); err == nil || !strings.Contains(err.Error(), "follow a log") {
		t.Errorf("relay compact: %v", err)
	}
}
