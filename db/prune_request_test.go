package db

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"relay/db/internal/sqlite"
	"relay/db/look"
	"relay/db/relay"
)

// filled makes a file of some messages that no process serves, and returns its path.
func filled(t *testing.T, messages int) (path string) {
	t.Helper()
	d := openHere(t, func(o *Options) { o.Serve = true })
	k := mustIssue(t, d, "a^b")
	for range messages {
		if _, err := d.Send(message(k, "a^b", `{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return d.w.Path
}

// pruneAll makes the options of a Prune of all messages.
func pruneAll(t *testing.T, path string) PruneOptions {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	return PruneOptions{Path: path, Schema: string(schema), Before: time.Now().Add(time.Minute)}
}

func byConn(t *testing.T, path string, f func(*sqlite.Conn) error) {
	t.Helper()
	c, err := sqlite.Open(path, sqlite.Writing)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := f(c); err != nil {
		t.Fatal(err)
	}
}

// A command that finds the file damaged says so and ends.
func TestAPruneOfADamagedFileEnds(t *testing.T) {
	t.Parallel()
	path := filled(t, 3)
	const minute = 60_000 << relay.PositionBits
	byConn(t, path, func(c *sqlite.Conn) error { // the chain of each message leads forward
		err := c.Exec("INSERT INTO receipt (position, message, previous, state) SELECT position - ?1, position, position, 1 FROM message", int64(minute))
		return errors.Join(err, c.Exec("UPDATE message SET receipt = position - ?1", int64(minute)))
	})
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := Prune(bounded, pruneAll(t, path)); !errors.Is(err, sqlite.ErrDamaged) || r.Messages != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A command that serves the file does what other commands ask meanwhile, which wait for it.
func TestAPruneServesOtherCommands(t *testing.T) {
	t.Parallel()
	path := filled(t, 5)
	o := pruneAll(t, path)
	asked := false
	o.Progress = func(int64, int64) {
		if !asked {
			byConn(t, path, func(c *sqlite.Conn) error {
				return c.Exec("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO prune (asked_at, before) SELECT 1, ? FROM n", int64(relay.MaxPosition))
			})
			asked = true
		}
	}
	for !asked { // unless the removal was faster
		if _, err := Prune(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	byConn(t, path, func(c *sqlite.Conn) error {
		if n, err := c.Number("SELECT count(*) FROM prune WHERE ended_at IS NULL"); n != 0 || err != nil {
			t.Errorf("%d requests are left, %v", n, err)
		}
		return nil
	})
}

// What a server has removed for a command counts after its restart.
func TestAPruneCountsOverARestart(t *testing.T) {
	t.Parallel()
	path := filled(t, 5)
	byConn(t, path, func(c *sqlite.Conn) error {
		return c.Exec("INSERT INTO prune (id, asked_at, before, messages, bytes) VALUES (1, 1, ?, 100, 1000)", int64(relay.MaxPosition))
	})
	d := openHere(t, func(o *Options) { o.Path, o.Serve = path, true })
	mustReach(t, d, "requests", "SELECT count(*) FROM prune WHERE ended_at IS NULL", 0)
	if n := scalar(t, d, "SELECT messages FROM prune WHERE id = 1"); n != 105 {
		t.Errorf("%d were removed", n)
	}
}

// A server that stops in the middle of a removal tells how far it has come.
func TestAStoppedServerTellsWhatItHasRemoved(t *testing.T) {
	t.Parallel()
	path := filled(t, 300)
	d := openHere(t, func(o *Options) { o.Path, o.Serve = path, true })
	removing := make(chan struct{}, 1000)
	d.OnCommit(func(*relay.Commit) { removing <- struct{}{} })
	byConn(t, path, func(c *sqlite.Conn) error {
		return c.Exec("INSERT INTO prune (asked_at, before) VALUES (1, ?)", int64(relay.MaxPosition))
	})
	<-removing
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	byConn(t, path, func(c *sqlite.Conn) error {
		told, err := c.Number("SELECT messages FROM prune")
		left, err2 := c.Number("SELECT count(*) FROM message")
		if told != 300-left {
			t.Errorf("%d were removed, it tells of %d", 300-left, told)
		}
		return errors.Join(err, err2)
	})
}

// A command that waits for a server gives up some time after the server has stopped, also
// if it has the file by the name of a link.
func TestAPruneDoesNotWaitForAServerThatIsGone(t *testing.T) {
	t.Parallel()
	path := filled(t, 5)
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	d := openHere(t, func(o *Options) { o.Path, o.Serve = path, true })
	o, stopped := pruneAll(t, link), false
	o.Progress = func(int64, int64) {
		stopped = true
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for removed := int64(0); !stopped; { // unless the removal was faster
		r, err := Prune(bounded, o)
		removed += r.Messages
		if done := err == nil && removed == 5; stopped && !done && (err == nil || !strings.Contains(err.Error(), "the server has stopped")) { // done: just before it stopped
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// A message that was accepted with a clock in doubt is no reason for a command to believe
// that clock.
func TestAClockInDoubtIsNotSeen(t *testing.T) {
	t.Parallel()
	c := &setClock{}
	c.shown.Store(time.Now().UnixMilli())
	d := openHere(t, keeping(c, 24*time.Hour)...)
	k := mustIssue(t, d, "a^b")
	mustSendNow(t, d, c, k)
	c.pass(time.Hour)
	mustRun(t, d)
	right := c.now()
	c.set(365 * 24 * time.Hour)
	mustSendNow(t, d, c, k)
	c.pass(time.Hour)
	mustRun(t, d)
	in, err := look.Inspect(d.w.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if seen, err := in.ClockSeen(); err != nil || seen.After(right) {
		t.Errorf("it has seen %v, %v", seen, err)
	}
}
