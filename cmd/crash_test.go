package cmd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// The promise that the relay is built on: a message that got its 201 is there, once,
// in order, whatever happens to the process. Sixteen senders and four recipients,
// who also listen on WebSockets, work while the server is killed and started
// again on the same file; others change profiles, search, read states, issue
// and revoke keys. A client that missed an answer asks again, and a listener resumes
// where it was; then every history is read and compared with the answers that the
// clients got.
func TestCrashKilledUnderLoadItLosesAndDoublesNothing(t *testing.T) {
	notOnWindows(t, "there is no kill -9")
	t.Parallel()
	n := rounds(t, 1, 36)
	c := newCrash(t)
	for range n {
		c.round()
	}
	c.start()
	c.replayEverything()
	c.catchUp()
	c.compare()
	wantWhole(t, c.db)
	c.server.kill() // a server that has just started must leave a sound file too
	wantWhole(t, c.db)
	c.report(n)
}

const (
	crashSenders    = 16
	crashRecipients = 4
)

type crash struct {
	t          *testing.T
	db         string
	server     *server
	senders    []*sender
	recipients []*recipient
	bystanders []bystander

	accepted  atomic.Int64 // 201s of this round
	target    int64        // the number of 201s at which the server is killed
	kill      func()       // once is enough
	dead      chan struct{}
	committed atomic.Int64 // retries that found their first attempt committed
	fresh     atomic.Int64 // retries that made the message
}

func newCrash(t *testing.T) *crash {
	// On disk, a commit takes long enough that a kill can come in the midst of it: in memory, the
	// usual form does not notice if clients are answered before the commit.
	c := &crash{t: t, db: filepath.Join(t.TempDir(), "relay.db")}
	addresses := make([]string, crashSenders+crashRecipients+2)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("m%d^crash", i)
	}
	for i, a := range issue(t, c.db, addresses...) {
		switch {
		case i < crashSenders:
			c.senders = append(c.senders, &sender{crash: c, agent: a})
		case i < crashSenders+crashRecipients:
			c.recipients = append(c.recipients, &recipient{crash: c, agent: a})
		case i == crashSenders+crashRecipients:
			c.bystanders = append(c.bystanders, &self{beside: beside{crash: c}, agent: a})
		default:
			c.bystanders = append(c.bystanders, &seeker{beside: beside{crash: c}, agent: a})
		}
	}
	c.bystanders = append(c.bystanders, &watcher{beside: beside{crash: c}, ranks: map[string]int{}}, &operator{beside: beside{crash: c}})
	c.start()
	for i, r := range c.recipients { // a cursor for each, from one who is not compared
		m := c.server.send(c.recipients[(i+1)%len(c.recipients)].agent, r.Address, `{}`)
		r.heard = []string{m.MessageID}
	}
	c.server.kill()
	return c
}

func (c *crash) start() {
	c.server = startProcess(c.t, c.db, "--rate-limit", "0", "--auth-failure-limit", "0", "--max-pending", "0")
}

// each runs f for all senders, g for all recipients and h, if there is one, for
// all others, at the same time.
func (c *crash) each(f func(*sender), g func(*recipient), h func(bystander)) {
	var wg sync.WaitGroup
	if h != nil {
		for _, b := range c.bystanders {
			wg.Go(func() { h(b) })
		}
	}
	for _, s := range c.senders {
		wg.Go(func() { f(s) })
	}
	for _, r := range c.recipients {
		wg.Go(func() { g(r) })
	}
	wg.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// round starts the server, resolves the requests that the last kill left open, works,
// and kills.
func (c *crash) round() {
	c.start()
	c.each((*sender).resolve, (*recipient).resolve, bystander.resolve)
	c.accepted.Store(0)
	enough, kill := context.WithTimeout(c.t.Context(), patience)
	c.target, c.kill, c.dead = 100+rand.Int64N(int64(rounds(c.t, 150, 1500))), kill, make(chan struct{})
	for _, r := range c.recipients {
		r.mail = make(chan *letter, 1000)
	}
	for _, b := range c.bystanders {
		*b.turns() = make(chan *letter, 2)
	}
	go func() {
		defer close(c.dead)
		<-enough.Done()
		if n := c.accepted.Load(); n < c.target {
			c.t.Errorf("only %d of %d messages were accepted", n, c.target)
		}
		time.Sleep(rand.N(3 * time.Millisecond)) // not just after a commit: at any moment
		c.server.kill()
	}()
	c.each((*sender).work, func(r *recipient) {
		var wg sync.WaitGroup
		wg.Go(func() { r.listen(func() bool { return false }) })
		r.work()
		wg.Wait()
	}, bystander.work)
	<-c.dead
}

// replayEverything resolves the last round, then replays all rounds.
func (c *crash) replayEverything() {
	c.each((*sender).resolve, (*recipient).resolve, bystander.resolve)
	c.each(func(s *sender) { s.replay(s.letters) }, func(r *recipient) { r.replay(r.deeds) }, nil)
}

func (c *crash) report(rounds int) {
	var messages, refusals, deeds, heard int
	for _, s := range c.senders {
		for _, l := range s.letters {
			if l.outcome == refused {
				refusals++
			} else {
				messages++
			}
		}
	}
	for _, r := range c.recipients {
		deeds += len(r.deeds)
		heard += len(r.heard) - 1
	}
	c.t.Logf("%d kills, %d messages, of which %d had no answer and were there, %d had none and were not; %d refused; %d acknowledged or delivered; %d pushed",
		rounds, messages, c.committed.Load(), c.fresh.Load(), refusals, deeds, heard)
	for _, b := range c.bystanders {
		c.t.Log(b.report())
	}
	c.t.Log("none lost, none doubled, none out of order")
}
