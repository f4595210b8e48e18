package db

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/replication"
	"relay/db/scratch"
)

// Three nodes follow one log. They have different clocks, settings and transactions, are
// started again at different times, and only some write to sockets and answer searches. One
// begins with a copy of another's file. In the end all have the same rows.
func TestReplicas(t *testing.T) {
	t.Parallel()
	lives, rounds, least := 3, 30, uint64(0)
	if scratch.Long(t) {
		lives, rounds, least = math.MaxInt, 2000, 40_000
		if os.Getenv("RELAY_TEST_FULL") != "" {
			least = 100_000
		}
	} else if testing.Short() {
		rounds = 20
	}
	l := newTestLog(uint64(time.Now().UnixNano()))
	l.faults = true
	c := cluster{T: t, log: l,
		a: newNode(t, l, "a", withLearning(Options{MaxPending: 12, MaxAttempts: 4, ConversationLimit: 40, MaxBroadcast: 5, By: relay.Actor{UID: 1000, User: "maria", Command: "serve"}}, 2*time.Hour), nil),
		b: newNode(t, l, "b", withLearning(Options{MaxPending: 20, MaxAttempts: 2, MaxBroadcast: 3, Now: func() time.Time { return time.Now().Add(-time.Hour) }}, time.Hour),
			func(d *DB) { replicated(d.w).Follow.MaxBatch = 1 }),
		// This one only follows. By its own clock, settings and disk, it would refuse nearly everything.
		c: newNode(t, l, "c", Options{MaxPending: 1, ConversationLimit: 1, MinFreeDisk: math.MaxInt64, Now: func() time.Time { return time.Now().Add(25 * time.Hour) }},
			func(d *DB) { replicated(d.w).Follow.MaxBatch = 37 }),
	}
	c.a.found()
	c.a.issue("first^crew0")
	c.b.copyOf(c.a)
	c.begin()
	for life := 0; life < lives && (life < 3 || l.length() < least); life++ {
		c.live(life, rounds)
	}
	c.end()
	wantSame(c.a, c.b, c.c)
	c.wantAll()
}

// wantAll fails the test unless the log has writes of all kinds, and envelopes twice.
func (c *cluster) wantAll() {
	kinds, repeated, seen := map[string]int{}, 0, map[string]bool{}
	for _, e := range c.log.entries {
		env, err := replication.ReadEnvelope(e.Data)
		if err != nil {
			c.Fatal(err)
		}
		if id := env.Origin.ID(env.Counter); seen[id] {
			repeated++
		} else {
			seen[id] = true
		}
		for kind, n := range kindsOf(e) {
			kinds[kind] += n
		}
	}
	if len(kinds) != 18 || repeated == 0 {
		c.Errorf("the log has not everything: %v, %d repeated", kinds, repeated)
	}
	c.Logf("%d entries, %d of them repeated: %v; %d rows", len(c.log.entries), repeated, kinds, len(c.a.rows()))
}

// cluster is the nodes of TestReplicas.
type cluster struct {
	*testing.T
	log     *testLog
	a, b, c *node
	stop    chan struct{} // ends what c does
	begun   chan struct{} // closed when c has begun
	all     sync.WaitGroup
}

// begin has the third node begin in the midst of it all, and start again until the end.
func (c *cluster) begin() {
	c.stop, c.begun = make(chan struct{}), make(chan struct{})
	c.all.Go(func() {
		random := rand.New(rand.NewPCG(7, 7))
		c.log.waitForLength(300, nil)
		c.c.copyOf(c.a)
		close(c.begun)
		for c.log.waitForLength(c.log.length()+uint64(random.IntN(300)), c.stop) {
			c.c.stop() // wherever it is
			c.c.start()
		}
	})
}

// live has players use the first two nodes at the same time. Then the second one starts
// again, or the first. The log's clock jumps.
func (c *cluster) live(life, rounds int) {
	c.log.set(func() { c.log.ahead = []time.Duration{0, 25 * time.Hour, -time.Hour}[life%3] })
	c.a.keep(life%2 == 0)
	c.b.keep(life%3 == 1)
	var all sync.WaitGroup
	for i, n := range []*node{c.a, c.b} {
		if life == 0 || life == 4 {
			(&player{T: c.T, d: n.DB, random: rand.New(rand.NewPCG(uint64(life), uint64(9+i)))}).progress()
		}
		(&player{T: c.T, d: n.DB, random: rand.New(rand.NewPCG(uint64(life), uint64(11+i)))}).teach(life / 2) // twice, a day apart
		for j := range 3 {
			all.Go(func() {
				p := &player{T: c.T, d: n.DB, random: rand.New(rand.NewPCG(uint64(life), uint64(10*i+j)))}
				for k := range 4 {
					p.keys = append(p.keys, p.mustIssue(fmt.Sprintf("m%d^crew%d", k, (i+j)%2)))
				}
				p.play(rounds)
				if j == 0 {
					p.fine(n.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: relay.Address(fmt.Sprintf("m%d^crew0", life%4))}))
					p.fine(n.Note(relay.ActCompacted, "in the middle of it all"))
				}
			})
		}
	}
	all.Wait()
	c.a.rareWrites()
	again := []*node{c.b, c.a}[life%2]
	again.stop()
	again.start()
}

// rareWrites makes the writes that the players make too seldom.
func (n *node) rareWrites() {
	n.Helper()
	k := n.issue("rare^crew2")
	first, second := n.message(k, 0), n.message(k, 0)
	first.MaxMessages, first.AckBy = 1, first.At.Add(time.Second)
	sent, err := n.Send(first)
	n.want("", err)
	second.Conversation = sent.Conversation
	_, err = n.Send(second) // and then the founder is told
	n.want(relay.ConversationFull, err)
	now := time.Now()
	all := []relay.Write{
		&relay.NoteOverdue{At: now}, &relay.EndAttempts{At: now}, &relay.ExpireMessage{At: now, ID: sent.ID},
		&relay.RevokeKey{At: now, ID: k.ID}, &relay.ExpireDue{At: now},
		&relay.PruneMessages{At: now, Before: relay.PositionAt(now.Add(-time.Second)), Limit: 20}, &relay.PruneUnused{At: now, EmptySince: now, Limit: 20},
	}
	if lessonsTeach != nil {
		all = append(all, lessonsTeach(now, "rare^crew2")...)
	}
	for _, w := range all {
		if _, err := n.Apply(w); err != nil && relay.ErrorCode(err) != relay.MessageExpired {
			n.Error(err)
		}
	}
}

// end stops the nodes when all have all entries.
func (c *cluster) end() {
	nodes := []*node{c.a, c.b, c.c}
	for _, n := range nodes {
		n.keep(false)
	}
	<-c.begun
	close(c.stop)
	c.all.Wait()
	for _, n := range nodes { // what is on its way comes into the log
		n.stop()
	}
	for _, n := range nodes {
		n.start()
		n.catchUp()
		n.stop()
	}
}
