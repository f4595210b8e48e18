package db

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"relay/db/admin"
	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// command opens the node's file as a command does.
func (n *node) command() *DB {
	n.Helper()
	d, err := Open(Options{Path: n.options.Path, Schema: n.options.Schema, By: relay.Actor{UID: 7, User: "maria", Command: "key create"}})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { d.Close() })
	return d
}

// While a server runs, the writes of a command go through the log, so that all copies have
// them, with the audit log that names who gave the command.
func TestCommandsWriteThroughTheServer(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	c := a.command()
	issued, err := c.Issue(&relay.IssueKey{At: time.Now(), Address: "bob^demo", Label: "laptop", WithSecret: true})
	if err != nil || issued.Key.Label != "laptop" || issued.Secret == "" || issued.Key.Mecha.Address != "bob^demo" {
		t.Fatalf("%+v, %v", issued, err)
	}
	if k, err := a.Key(t.Context(), issued.Text); err != nil || k.Number != issued.Key.Number {
		t.Errorf("the key does not work when the command has returned: %+v, %v", k, err)
	}
	b.catchUp()
	k, err := b.Key(t.Context(), issued.Text)
	if err != nil {
		t.Fatal(err)
	}
	b.mustSend(k, 0)
	err = c.Revoke(&relay.RevokeKey{At: time.Now(), ID: "key_unknown"})
	a.want(relay.UnknownKey, err)
	if !strings.Contains(err.Error(), "there is no key") {
		t.Error(err)
	}
	a.want("", c.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}))
	_, err = a.Key(t.Context(), issued.Text)
	a.want(relay.KeyRevoked, err)
	a.want("", c.Note(relay.ActPruneBegun, "a note"))
	var under sync.WaitGroup
	for i := range 3 * admin.AtOnce {
		under.Add(1)
		c.PutProfileThen(&relay.PutProfile{At: time.Now(), Address: relay.Address(fmt.Sprintf("m%d^demo", i)), Register: true, Profile: relay.Profile{}.Stored()}, func(err error) {
			a.want("", err)
			under.Done()
		})
	}
	under.Wait()
	a.want("", c.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "m1^demo"}))
	a.want("", c.Close())
	wantEnd(a, b)
	wantMessages(a, 1)
	if n := b.count("audit"); n != 4 {
		t.Errorf("%d acts are in the audit log", n)
	}
	if n := b.count("audit WHERE user = 'maria' AND uid = 7"); n != 4 {
		t.Errorf("%d acts are maria's", n)
	}
	for i := range l.length() {
		if env, err := replication.ReadEnvelope(l.entries[i].Data); err != nil || len(env.Writes) == 0 {
			t.Errorf("entry %d: %+v, %v", i+1, env, err)
		}
	}
}

// relay prune asks the server of one copy, and the messages go in all.
func TestCommandsPruneAllCopies(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	k := a.issue("bob^demo")
	for range 5 {
		a.mustSend(k, 0)
	}
	got, err := pruneAll(t, t.Context(), a.options.Path, nil)
	if err != nil || got.Messages != 5 {
		t.Errorf("%+v, %v", got, err)
	}
	wantEnd(a, b)
	wantMessages(b, 0)
}

// Without a server nothing can be written, and the command says what to do. It can read.
func TestCommandsNeedTheServerToWrite(t *testing.T) {
	t.Parallel()
	_, a, b := pair(t)
	k := a.issue("bob^demo")
	wantEnd(a, b)
	before := a.rows()
	c := a.command()
	if keys, err := c.Keys(t.Context(), ""); err != nil || len(keys) != 1 {
		t.Errorf("%v, %v", keys, err)
	}
	for range 2 {
		err := c.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID})
		if err == nil || !strings.Contains(err.Error(), "relay serve --cluster") {
			t.Errorf("%v", err)
		}
	}
	if _, err := pruneAll(t, t.Context(), a.options.Path, nil); err == nil {
		t.Error("messages could be removed without a server")
	}
	a.want("", c.Close())
	if after := a.rows(); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Error("a command has written to the file")
	}
}

// A server that stops answers the writes that it has taken. The outcome of those that the
// log may have is unknown.
func TestCommandsLearnThatTheServerStops(t *testing.T) {
	t.Parallel()
	l, a, b := pair(t)
	k := a.issue("bob^demo")
	b.catchUp()
	c := a.command()
	silent := make(chan struct{}, 1)
	l.set(func() { l.silent = silent })
	revoked := make(chan error, 1)
	go func() { revoked <- c.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}) }()
	<-silent
	replicated(a.w).Propose.Timeouts.Closing = time.Millisecond
	a.stop()
	a.want(relay.StoreFailed, <-revoked)
	l.set(func() { l.silent = nil })
	a.start()
	again := func() error { return c.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}) } // by a new connection
	err := again()
	if relay.ErrorCode(err) == relay.StoreFailed { // it has only now found the end of the old one
		err = again()
	}
	a.want("", err)
	a.want("", c.Close())
	wantEnd(a, b)
}

// A server whose file has too long a path for a socket does not start, and says why.
func TestTheSocketForCommandsNeedsAShortPath(t *testing.T) {
	t.Parallel()
	l := newTestLog(1)
	n := newNode(t, l, "a", Options{Create: true, Log: &replication.Following{Found: true}}, nil)
	n.options.Path = filepath.Join(scratch.Memory(t), strings.Repeat("long", 25)+".db")
	if err := n.tryToStart(); err == nil || !strings.Contains(err.Error(), "give the file a shorter one") {
		t.Errorf("%v", err)
	}
}

// Revoking a key returns once all nodes have applied it, whether a command, the store or an
// operator revokes it. Other writes do not wait.
func TestRevocationsWaitForAllNodes(t *testing.T) {
	t.Parallel()
	asked, seen := make(chan uint64), make(chan error)
	l, a, b := pair(t, func(o *Options) {
		o.Gate = gate{seen: func(ctx context.Context, number uint64) error {
			select {
			case asked <- number:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case err := <-seen:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}}
	})
	c := a.command()
	var k relay.IssuedKey
	for what, f := range map[string]func() error{
		"a command": func() error { return c.Revoke(&relay.RevokeKey{At: time.Now(), ID: "key_x"}) },
		"the store": func() error { return a.Revoke(&relay.RevokeKey{At: time.Now(), ID: "key_x"}) },
	} {
		if err := f(); relay.ErrorCode(err) != relay.UnknownKey {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, f := range []func() error{
		func() (err error) {
			k, err = c.Issue(&relay.IssueKey{At: time.Now(), Address: "bob^demo"})
			return err
		},
		func() error { return c.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.Key.ID}) },
		func() error {
			_, err := a.Act(relay.Actor{UID: 1}, &relay.RevokeKey{At: time.Now(), ID: k.Key.ID})
			return err
		},
		func() error { return a.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "bob^demo"}) },
	} {
		before, done := l.length(), make(chan error, 1)
		go func() { done <- f() }()
		if n := <-asked; n <= before || n > l.length() {
			t.Errorf("it waits for entry %d, which is not the one that it has made (%d before, %d now)", n, before, l.length())
		}
		select {
		case err := <-done:
			t.Errorf("it has not waited: %v", err)
		default:
		}
		seen <- errors.New("a node does not answer")
		a.want("", <-done)
	}
	a.want("", c.Note(relay.ActPruneBegun, "a note"))
	// A stop does not wait for the other nodes.
	k2 := make(chan error, 1)
	go func() {
		_, err := c.Issue(&relay.IssueKey{At: time.Now(), Address: "bob^demo"})
		k2 <- err
	}()
	<-asked
	wantEnd(a, b)
	a.want("", <-k2)
}
