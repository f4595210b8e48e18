package db

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/db/file"
	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// Nobody but the server that follows the log may write to the file of a node, and a node
// begins with the file of another one.
func TestReplicasAreWrittenByTheirServersAlone(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	a.issue("bob^demo")
	wantEnd(a, b)
	path := a.options.Path
	without := a.options
	without.Log = nil
	notServing := a.options
	notServing.Serve = false
	again := founding(a.options)
	for what, o := range map[string]Options{"a server without a log": without} {
		if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "belongs to a cluster") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, o := range map[string]Options{"a command with the log": notServing, "founding again": again} {
		if _, err := Open(o); err == nil {
			t.Errorf("%s was let in", what)
		}
	}
	before := a.rows()
	copied := filepath.Join(scratch.Memory(t), "copy.db")
	if _, err := file.Backup(t.Context(), file.BackupOptions{From: path, To: copied, Schema: without.Schema}); err != nil {
		t.Fatal(err)
	}
	o := file.RestoreOptions{BackupOptions: file.BackupOptions{From: copied, To: path, Schema: without.Schema, Replace: true}, By: relay.Actor{UID: 1, User: "maria"}}
	if _, err := file.Restore(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if after := a.rows(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("the restored copy differs from its backup:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
	o.RevokeNewer = true
	if _, err := file.Restore(t.Context(), o); err == nil {
		t.Error("a restore was to end keys in one copy alone")
	}
	other := newNode(t, a.log.testLog, "other", Options{Create: true}, nil)
	if err := other.tryToStart(); err == nil || !strings.Contains(err.Error(), "follows no log") {
		t.Errorf("a node with a file of its own: %v", err)
	}
	if _, err := os.Stat(copied); err != nil {
		t.Fatal(err)
	}
	a.start()
	wantEnd(a, b)
}

// A copy stops rather than leave an entry out, and says why.
func TestReplicasStopWhereTheyCannotGoOn(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		spoil func(*testLog)
		want  error
	}{
		"the log has forgotten entries": {func(l *testLog) { l.first = 9 }, replication.ErrLogTruncated},
		"the log has lost entries":      {func(l *testLog) { l.entries = l.entries[:1] }, replication.ErrLogBehind},
		"an entry cannot be read":       {func(l *testLog) { l.add([]byte("nonsense")) }, replication.ErrEnvelope},
		"a later version": {func(l *testLog) {
			l.add(append([]byte{replication.EnvelopeVersion + 1}, l.entries[0].Data[1:]...))
		}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			l, a, b := pair(t)
			k := a.issue("bob^demo")
			b.catchUp()
			b.stop()
			for range 10 {
				a.mustSend(k, 0)
			}
			if what == "the log has lost entries" {
				b.start()
				b.catchUp()
				b.stop()
			}
			a.stop()
			l.set(func() { c.spoil(l) })
			b.start()
			b.wantFatal(c.want)
		})
	}
	l, a, b := pair(t)
	a.issue("bob^demo")
	b.catchUp()
	b.stop()
	byHand := b.execute("UPDATE replica SET version = 99")
	if err := b.tryToStart(); err == nil || !strings.Contains(err.Error(), "newer relay") {
		t.Errorf("%v, after %v", err, byHand)
	}
	// Somebody has changed the place while the node was at work.
	if err := b.execute("UPDATE replica SET version = 1"); err != nil {
		t.Fatal(err)
	}
	b.start()
	if err := b.execute("UPDATE replica SET applied = applied + 1"); err != nil {
		t.Fatal(err)
	}
	a.issue("eve^demo")
	b.wantFatal(nil)
	if l.length() != 2 || !errors.Is(b.Failed(), b.fatal) {
		t.Error(l.length(), b.Failed())
	}
}

// A copy follows its own log alone. It stops before it applies an entry of another one, and
// says so.
func TestReplicasFollowTheirOwnLogAlone(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	a.mustSend(k, 0)
	b.catchUp()
	longer := newTestLog(1)
	c := newNode(t, longer, "c", Options{}, nil).found()
	k = c.issue("bob^demo")
	for range 5 {
		c.mustSend(k, 0)
	}
	c.stop()
	wrong := newNode(t, longer, "wrong", Options{}, nil).copyOf(a)
	wrong.wantFatal(replication.ErrOtherLog)
	wrong.stop()
	founder := newNode(t, longer, "d", Options{Create: true, Log: &replication.Following{Found: true}}, nil)
	founder.start()
	founder.wantFatal(replication.ErrOtherLog)
	founder.stop()
	if n := founder.count("mecha"); n != 0 {
		t.Errorf("a copy that was founded on a log with entries has taken %d Mechas from it", n)
	}
	wantEnd(a, b)
	wantSame(a, wrong)
	l.wantLength(t, 2)
	longer.wantLength(t, 6)
}

// After an opening that has created a log and then failed, the next one continues.
func TestReplicasAreFoundedAtTheSecondTry(t *testing.T) {
	t.Parallel()
	l := newTestLog(1)
	a := newNode(t, l, "a", Options{}, nil).found()
	first := replicated(a.w).Replica.File.Log
	a.stop()
	a.found()
	if id := replicated(a.w).Replica.File.Log; id != first || id == (file.LogID{}) {
		t.Errorf("the second try has named the log %x, the first one %x", id, first)
	}
	a.issue("bob^demo")
	b := newNode(t, l, "b", Options{}, nil).copyOf(a)
	wantEnd(a, b)
}
