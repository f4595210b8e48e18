package db

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// doom is a local write that has its transaction fail as a whole, once, when all of it
// has been applied. It is a room too.
type doom struct {
	engine.Quiet
	sealed bool
}

func (d *doom) Apply(*engine.Tx) error { d.sealed = true; return nil }
func (d *doom) Size() int              { return 0 }
func (d *doom) BeforeCommit(*engine.Tx) error {
	if !d.sealed {
		return nil
	}
	d.sealed = false
	return errPoison
}

// openDoomed opens a store, and returns a local write that has its transaction fail.
func openDoomed(t *testing.T, path string) (*DB, *doom) {
	t.Helper()
	schema, err := os.ReadFile("../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	fails := &doom{}
	d, err := open(Options{Path: path, Schema: string(schema), Create: true, Serve: true, MaxPending: 3},
		func(d *DB) { d.w.Add(fails) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, fails
}

// If a transaction fails as a whole, nothing of what it knew is remembered: not
// that a key was revoked, nor how many messages wait, nor who may write. Nobody is told of its messages.
func TestATransactionThatFailedIsForgotten(t *testing.T) {
	d, fails := openDoomed(t, filepath.Join(t.TempDir(), "relay.db"))
	var announced []relay.MessageID
	d.OnCommit(func(c *relay.Commit) {
		for _, m := range c.Messages {
			announced = append(announced, m.ID)
		}
	})
	k := mustIssue(t, d, "a^b")
	mustIssue(t, d, "c^d")
	var told []relay.MessageID
	send := func() error {
		sent, err := d.Send(message(k, "c^d", `{}`))
		if err == nil {
			told = append(told, sent.ID)
		}
		return err
	}
	if err := send(); err != nil { // from now on what waits for c^d is counted
		t.Fatal(err)
	}
	b := block{make(chan struct{}), make(chan struct{})}
	go d.wait(b)
	<-b.entered
	got := make(chan error, 7)
	for _, text := range []string{`{"n":1}`, `{"n":2}`} {
		m := message(k, "c^d", text)
		m.MaxPending = 3
		engine.Then(d.w, m, func(_ relay.Sent, err error) { got <- err })
	}
	alone := relay.Profile{AcceptFrom: relay.AcceptFrom{}}
	engine.Then(d.w, &relay.PutProfile{At: time.Now(), Address: "c^d", Profile: alone.Stored()}, func(_ engine.None, err error) { got <- err })
	engine.Then(d.w, message(k, "c^d", `{}`), func(_ relay.Sent, err error) { got <- err }) // refused: the list is remembered
	engine.Then(d.w, &relay.RevokeKey{At: time.Now(), ID: k.ID}, func(_ *relay.Key, err error) { got <- err })
	engine.Then(d.w, message(k, "c^d", `{}`), func(_ relay.Sent, err error) { got <- err }) // refused: the key is remembered as revoked
	d.w.Submit(fails, 0, func(err error) { got <- err })
	close(b.release)
	for i := range 7 {
		if err := <-got; relay.ErrorCode(err) != relay.Internal || !errors.Is(err, errPoison) {
			t.Errorf("write %d of a transaction that failed: %v", i, err)
		}
	}
	for i, want := range []relay.Code{"", "", relay.MailboxFull} {
		if err := send(); relay.ErrorCode(err) != want {
			t.Errorf("message %d after it: %v, want %q", i, err, want)
		}
	}
	if err := d.wait(nothing{}); err != nil { // the listeners have been told of all
		t.Fatal(err)
	}
	p, err := d.History(t.Context(), relay.HistoryQuery{Mecha: k.Mecha.Number, Limit: 10})
	if err != nil || len(p.Messages) != len(told) || !slices.Equal(announced, told) {
		t.Errorf("%d messages in the store, listeners were told of %v, senders of %v (%v)", len(p.Messages), announced, told, err)
	}
}

// A word is removed some time after its last use, and who takes part in a conversation may read it.
// Rows of both that a transaction wrote and lost do not count as written: the next message writes
// them.
func TestWhatAFailedTransactionWroteIsWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	d, _ := openDoomed(t, path)
	a, b := mustIssue(t, d, "a^b"), mustIssue(t, d, "b^b")
	from := func(k *relay.Key) *relay.SendMessage {
		m := message(k, "a^b", `{}`)
		m.Conversation = "label"
		return m
	}
	if _, err := d.Send(from(a)); err != nil {
		t.Fatal(err)
	}
	if err := d.wait(localWrite(func(t *engine.Tx) error { return t.C.Exec("UPDATE word SET used = 0") })); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d, fails := openDoomed(t, path) // it does not remember when a word was used
	held := block{make(chan struct{}), make(chan struct{})}
	go d.wait(held)
	<-held.entered
	failed := make(chan error, 2)
	engine.Then(d.w, from(b), func(_ relay.Sent, err error) { failed <- err })
	d.w.Submit(fails, 0, func(err error) { failed <- err })
	close(held.release)
	for range 2 {
		if err := <-failed; !errors.Is(err, errPoison) {
			t.Fatal(err)
		}
	}
	if _, err := d.Send(from(b)); err != nil {
		t.Fatal(err)
	}
	var unused, participants int64
	err := d.wait(localWrite(func(t *engine.Tx) (err error) {
		if unused, err = t.C.Number("SELECT count(*) FROM word WHERE used = 0 AND id IN (SELECT type FROM message)"); err == nil {
			participants, err = t.C.Number("SELECT count(*) FROM participant")
		}
		return err
	}))
	if err != nil || unused != 0 || participants != 2 {
		t.Errorf("%d words of messages count as unused; %d take part; %v", unused, participants, err)
	}
}
