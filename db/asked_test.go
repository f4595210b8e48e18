package db

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/admin"
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

// pruneAll has all messages removed. say may be nil.
func pruneAll(t *testing.T, ctx context.Context, path string, say func(PruneResult)) (PruneResult, error) {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	if say == nil {
		say = func(PruneResult) {}
	}
	return Prune(ctx, path, string(schema), time.Now().Add(time.Minute), say)
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
	if r, err := pruneAll(t, bounded, path, nil); !errors.Is(err, sqlite.ErrDamaged) || r.Messages != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A command that serves the file does what other commands ask meanwhile, and ends after that.
func TestAPruneServesOtherCommands(t *testing.T) {
	t.Parallel()
	path := filled(t, 5)
	others, asked, first := make(chan error, 3), false, sync.Once{}
	_, err := pruneAll(t, t.Context(), path, func(PruneResult) {
		first.Do(func() {
			for range cap(others) {
				taken, once := make(chan struct{}), sync.Once{}
				take := func() { once.Do(func() { close(taken) }) }
				go func() {
					_, err := pruneAll(t, t.Context(), path, func(PruneResult) { take() })
					others <- err
					take()
				}()
				<-taken
			}
			asked = true
		})
	})
	if err != nil || !asked {
		t.Fatal(err, asked)
	}
	for range cap(others) {
		if err := <-others; err != nil {
			t.Error(err)
		}
	}
}

// pruning has a server remove all messages, and returns once it has begun.
func pruning(t *testing.T, ctx context.Context, d *DB, path string) (ended chan error, result *PruneResult) {
	t.Helper()
	removing := make(chan struct{}, 1000)
	d.OnCommit(func(*relay.Commit) { removing <- struct{}{} })
	ended, result = make(chan error, 1), &PruneResult{}
	go func() {
		var err error
		*result, err = pruneAll(t, ctx, path, nil)
		ended <- err
	}()
	<-removing
	return ended, result
}

// wantTold compares what a command was told with what is gone of 3,000 messages.
func wantTold(t *testing.T, path string, r *PruneResult) {
	t.Helper()
	byConn(t, path, func(c *sqlite.Conn) error {
		left, err := c.Number("SELECT count(*) FROM message")
		if r.Messages != 3000-left || left == 0 {
			t.Errorf("%d were removed, it tells of %d", 3000-left, r.Messages)
		}
		return err
	})
}

// A server that stops in the middle of a removal reports its progress, even to a command that
// names the file by a link.
func TestAStoppedServerTellsWhatItHasRemoved(t *testing.T) {
	t.Parallel()
	path := filled(t, 3000)
	link := path + ".link"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	d := openHere(t, func(o *Options) { o.Path, o.Serve = path, true })
	ended, r := pruning(t, t.Context(), d, link)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "the server has stopped") {
		t.Error(err)
	}
	wantTold(t, path, r)
}

// A command that is interrupted ends the removal, and reports its progress. A command that
// is killed ends it, too.
func TestAPruneEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	path := filled(t, 3000)
	d := openHere(t, func(o *Options) { o.Path, o.Serve = path, true })
	ctx, cancel := context.WithCancel(t.Context())
	ended, r := pruning(t, ctx, d, path)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	wantTold(t, path, r)
	server, err := admin.NewClient(path)
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = server.Ask(t.Context(), []byte(`{"Before": 9000000000000000000}`), nil)
	}()
	for !d.Retention.IsAsked() {
		time.Sleep(time.Millisecond)
	}
	server.Close()
	<-gone
	for end := time.Now().Add(time.Minute); d.Retention.IsAsked(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the server goes on")
		}
	}
}

// A message that was accepted with a clock in doubt does not make a command believe that
// clock.
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
