package db

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db/file"
	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// A plain file becomes the first copy of a log and, later, a plain file again. Ids, cursors
// and keys stay valid all the time.
func TestAFileIsACopyOfALogForAWhile(t *testing.T) {
	t.Parallel()
	maria := relay.Actor{UID: 7, User: "maria", Command: "cluster init"}
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{Create: true}, nil)
	plain := func() *DB {
		t.Helper()
		o := a.options
		o.Log = nil
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	a.DB = plain()
	k := a.issue("bob^demo")
	first := a.mustSend(k, 11)
	if _, err := replication.CreateLog(a.options.Path, a.options.Schema, maria, ""); err == nil || !strings.Contains(err.Error(), "served by another process") {
		t.Errorf("a served file: %v", err)
	}
	a.stop()
	if err := replication.LeaveLog(a.options.Path, a.options.Schema, maria, ""); err == nil || !strings.Contains(err.Error(), "belongs to no cluster") {
		t.Errorf("a plain file: %v", err)
	}
	id, err := replication.CreateLog(a.options.Path, a.options.Schema, maria, "three nodes")
	if err != nil || id == (file.LogID{}) {
		t.Fatal(id, err)
	}
	if _, err := replication.CreateLog(a.options.Path, a.options.Schema, maria, ""); err == nil || !strings.Contains(err.Error(), "to a cluster already") {
		t.Errorf("twice: %v", err)
	}
	o := a.options
	o.Log = nil
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "--cluster") {
		t.Errorf("without its log: %v", err)
	}
	b := newNode(t, l, "b", Options{}, nil).copyOf(a)
	a.start()
	second := b.mustSend(k, 13)
	if a.Place().Log != id {
		t.Errorf("the copy follows %x, not %x", a.Place().Log, id)
	}
	wantEnd(a, b)
	was := replicated(a.w).Replica.File.Last
	if err := replication.LeaveLog(a.options.Path, a.options.Schema, maria, "back again"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"replica", "origin", "entry_nonce"} {
		if n := a.count(table); n != 0 {
			t.Errorf("%s has %d rows", table, n)
		}
	}
	if _, said, r := checked(t, a.options.Path); r.Faults > 0 {
		t.Errorf("relay check:\n%s", said)
	}
	before := time.Now()
	a.DB = plain()
	if earliest := a.EarliestTimestamp(time.Now()); earliest.Before(before) {
		t.Errorf("a request that another copy has taken could come again: those signed from %s on are taken", earliest)
	}
	page, err := a.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, After: first.ID, Limit: 9})
	if err != nil || len(page.Messages) != 1 || page.Messages[0].ID != second.ID {
		t.Errorf("behind the cursor: %+v, %v", page, err)
	}
	third := a.mustSend(k, 15)
	if at, ok := a.w.IDs.MessagePosition(third.ID); !ok || at <= was {
		t.Errorf("the next message is at %d, after %d", at, was)
	}
	a.stop()
	if n := a.count("audit WHERE what IN ('cluster_founded', 'cluster_left') AND user = 'maria'"); n != 2 {
		t.Errorf("%d acts are in the audit log", n)
	}
	if _, err := replication.RecreateLog(a.options.Path, a.options.Schema, maria, ""); !errors.Is(err, replication.ErrPlain) {
		t.Errorf("founding anew on a plain file: %v", err)
	}
	again, err := replication.CreateLog(a.options.Path, a.options.Schema, maria, "")
	if err != nil || again == id {
		t.Errorf("another log: %x, %v", again, err)
	}
	if third, err := replication.RecreateLog(a.options.Path, a.options.Schema, maria, ""); err != nil || third == again || third == id {
		t.Errorf("a third log: %x, %v", third, err)
	}
	if _, said, r := checked(t, a.options.Path); r.Faults > 0 {
		t.Errorf("relay check:\n%s", said)
	}
}

// A cluster may begin without a file.
func TestALogIsFoundedOnANewFile(t *testing.T) {
	t.Parallel()
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{}, nil)
	if _, err := replication.CreateLog(a.options.Path, a.options.Schema, relay.Actor{}, ""); err != nil {
		t.Fatal(err)
	}
	a.start()
	a.issue("bob^demo")
	wantEnd(a)
	if _, err := replication.CreateLog(filepath.Join(scratch.Memory(t), "no", "folder.db"), a.options.Schema, relay.Actor{}, ""); err == nil {
		t.Error("a file was made in a folder that does not exist")
	}
}
