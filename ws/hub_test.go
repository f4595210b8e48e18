package ws_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db"
	"relay/db/relay"
	"relay/db/scratch"
	"relay/db/scratch/wire"
	"relay/ws"
)

func (r *testRelay) mustRevoke(k relay.IssuedKey) {
	r.t.Helper()
	if err := r.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}); err != nil {
		r.t.Fatal(err)
	}
}

func TestARevokedKeyEndsItsConnections(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	second := r.mustIssue("bob^test")
	a, b, c, kept := r.mustDial(alice, ""), r.mustDial(bob, ""), r.mustDial(bob, "sync_limit=0"), r.mustDial(second, "")
	r.mustRevoke(bob)
	for _, c := range []*client{b, c} {
		if reason := c.expectClose(websocket.StatusPolicyViolation); reason != "key_revoked" {
			t.Errorf("reason %q", reason)
		}
	}
	a.expectNothing()
	kept.expectMessage(r.mustSend(alice, "bob^test", `{}`)) // by its other key the Mecha is still there
	if _, resp, err := r.dial(bob, ""); err == nil || resp.StatusCode != 401 {
		t.Errorf("got %v, %v", resp, err)
	}
}

// Another process, the command line, revokes: the same file, a store of its own.
func TestAKeyRevokedByAnotherProcessEndsItsConnections(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	a, b := r.mustDial(alice, ""), r.mustDial(bob, "")
	a.expectNothing()
	b.expectNothing()
	other, err := db.Open(db.Options{Path: r.Path()})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Revoke(&relay.RevokeKey{At: time.Now(), ID: bob.ID}); err != nil {
		t.Fatal(err)
	}
	b.expectClose(websocket.StatusPolicyViolation)
	a.expectNothing()
}

func TestAKeyThatExpiresEndsItsConnections(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		r.mustPair()
		k, err := r.Issue(&relay.IssueKey{At: r.now(), Address: "bob^test", ExpiresAt: r.soon()})
		if err != nil {
			t.Fatal(err)
		}
		c := r.mustDial(k, "")
		c.expectNothing()
		r.advance(time.Minute)
		if reason := c.expectClose(websocket.StatusPolicyViolation); reason != "key_expired" {
			t.Errorf("reason %q", reason)
		}
	})
}

// A rotated key continues for its overlap, and no longer: also on a connection
// that was open before.
func TestARotatedKeyEndsItsConnectionsAfterTheOverlap(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		before := r.mustDial(bob, "")
		_, ended, stop, err := r.hub.Watch(bob.Key)
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		next, err := r.Issue(&relay.IssueKey{At: r.now(), Replaces: bob.ID, Overlap: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		after, fresh := r.mustDial(bob, ""), r.mustDial(next, "")
		for _, c := range []*client{before, after, fresh} {
			c.expectNothing()
		}
		r.advance(time.Minute)
		for _, c := range []*client{before, after} {
			if reason := c.expectClose(websocket.StatusPolicyViolation); reason != "key_expired" {
				t.Errorf("reason %q", reason)
			}
		}
		if err := <-ended; relay.ErrorCode(err) != relay.KeyExpired {
			t.Errorf("the long-poll ended with %v", err)
		}
		fresh.expectMessage(r.mustSend(alice, "bob^test", `{}`))
	})
}

// A connection learns of the end that its key was given, without another one
// that was opened after it.
func TestARotatedKeyEndsAConnectionThatIsAlone(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		_, bob := r.mustPair()
		c := r.mustDial(bob, "")
		if _, err := r.Issue(&relay.IssueKey{At: time.Now(), Replaces: bob.ID, Overlap: 300 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
		if reason := c.expectClose(websocket.StatusPolicyViolation); reason != "key_expired" {
			t.Errorf("reason %q", reason)
		}
	})
}

// Whenever the revocation falls into a handshake, no connection outlives it.
func TestRevokingDuringTheHandshake(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	r.mustPair()
	for round := range 40 {
		k := r.mustIssue("bob^test")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				c, resp, err := r.dial(k, "sync_limit=0")
				if err != nil {
					if resp == nil || resp.StatusCode != 401 {
						t.Errorf("round %d: got %v, %v", round, resp, err)
					}
					return
				}
				if f, err := c.next(); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
					t.Errorf("round %d: got %+v, %v", round, f, err)
				}
			})
		}
		wg.Go(func() {
			<-time.After(time.Duration(round) * 50 * time.Microsecond)
			if err := r.Revoke(&relay.RevokeKey{At: time.Now(), ID: k.ID}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

func TestAClosedHubTakesNobody(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	r.hub.Close(ctx)
	r.expectRefused(bob, "", 503, relay.ShuttingDown)
	if _, _, _, err := r.hub.Watch(bob.Key); relay.ErrorCode(err) != relay.ShuttingDown {
		t.Fatal(err)
	}
	r.hub.CheckKeys()
}

// However many close it, each returns when it is over.
func TestCloseMayBeCalledByMany(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t, func(c *ws.Config) { c.SyncAckWait = 0 })
		alice, bob := r.mustPair()
		r.mustSendMany(alice, "bob^test", 50)
		for range 5 {
			r.mustDial(bob, "sync_limit=10").expect("message")
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond) // nobody answers the close frame
				defer cancel()
				r.hub.Close(ctx)
				if n := goroutinesLeft(r.mine); n > 0 {
					t.Errorf("Close returned with %d goroutines left", n)
				}
			})
		}
		wg.Wait()
	})
}

func TestConnectingWhileTheHubCloses(t *testing.T) {
	t.Parallel()
	for range scratch.Amount(t, 5, 10) {
		r := mustServe(t)
		_, bob := r.mustPair()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				c, resp, err := r.dial(bob, "")
				if err != nil {
					if resp == nil || resp.StatusCode != 503 {
						t.Errorf("got %v, %v", resp, err)
					}
					return
				}
				if f, err := c.next(); websocket.CloseStatus(err) != websocket.StatusGoingAway {
					t.Errorf("got %+v, %v", f, err)
				}
			})
		}
		wg.Go(func() { r.hub.Close(ctx) })
		wg.Wait()
		r.stop()
	}
}

func expectWake(t testing.TB, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(patience):
		t.Fatal("the long-poll was not woken")
	}
}

func TestLongPollsAreWoken(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	ofAlice, aliceEnded, stopAlice, err := r.hub.Watch(alice.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer stopAlice()
	ofBob, bobEnded, stopBob, err := r.hub.Watch(bob.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer stopBob()
	id := r.mustSend(alice, "bob^test", `{}`) // it is in both histories
	expectWake(t, ofAlice)
	expectWake(t, ofBob)
	r.mustAck(bob, id, "completed")
	expectWake(t, ofAlice)
	expectWake(t, ofBob)
	for range 100 { // nobody listens: the writer is not held up
		r.mustSend(alice, "bob^test", `{}`)
	}
	expectWake(t, ofBob)

	r.mustRevoke(alice)
	if err := <-aliceEnded; relay.ErrorCode(err) != relay.KeyRevoked {
		t.Fatal(err)
	}
	r.hub.Close(ctx)
	if err := <-bobEnded; err != nil {
		t.Fatal(err)
	}
}
