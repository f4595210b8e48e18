package db

import (
	"os"
	"os/exec"
	"testing"

	"relay/db/file"
	"relay/db/internal/sqlite"
)

// A copy that follows a log syncs its transactions at checkpoints alone. A power cut may take the
// end of its file's log: then it applies those entries again, and is like the others.
func TestReplicasApplyAgainWhatAPowerCutTook(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	for range 60 {
		a.mustSend(k, 0)
		b.catchUp() // so b makes many transactions, of which the cut takes some
	}
	b.catchUp()
	b.poke(func() {
		if level, err := b.w.C.Number("PRAGMA synchronous"); level != 1 || err != nil {
			t.Errorf("synchronous is %d, %v; want 1, NORMAL", level, err)
		}
	})
	cut := newNode(t, l, "cut", Options{}, nil)
	for _, ending := range []string{"", "-wal"} { // by another process: one that closes the file drops this one's locks
		if out, err := exec.Command("cp", b.options.Path+ending, cut.options.Path+ending).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	info, err := os.Stat(cut.options.Path + "-wal")
	if err == nil {
		err = os.Truncate(cut.options.Path+"-wal", info.Size()*2/3)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := sqlite.Open(cut.options.Path, sqlite.Reading)
	if err != nil {
		t.Fatal(err)
	}
	at, _, err := file.ReadReplica(c)
	c.Close()
	if err != nil || at.Applied == 0 || at.Applied >= l.length() {
		t.Fatalf("the file is at entry %d of %d, %v; it must have lost some", at.Applied, l.length(), err)
	}
	cut.start()
	wantEnd(a, b, cut)
	wantMessages(cut, 60)
}
