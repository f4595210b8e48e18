//go:build cluster && !windows

package cmd_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A load has senders that each send to the next one, over their own node, or another one that
// answers, and the ledger of what they were answered.
type load struct {
	*trio
	agents  []agent
	stop    context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup
	sent    [][]clusterLetter // of each sender
	acked   atomic.Int64
	retries atomic.Int64
	mu      sync.Mutex
	lastAck time.Time
	silence time.Duration // the longest time without a 201 since calm was called
}

type clusterLetter struct {
	token, id string
	createdAt time.Time
}

const clusterSenders = 12

// clusterClient leaves a node that is paused, and does not answer.
var clusterClient = &http.Client{Timeout: 40 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

func (c *trio) load(agents []agent) *load {
	l := &load{trio: c, agents: agents, sent: make([][]clusterLetter, len(agents)), lastAck: time.Now()}
	l.ctx, l.stop = context.WithCancel(c.t.Context())
	urls := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		urls[i] = "http://" + n.addr
	}
	for i := range agents {
		l.wg.Go(func() { l.work(i, urls) })
	}
	return l
}

// work sends until the load stops, and sends each message until it has a 201.
func (l *load) work(i int, urls []string) {
	me, to := l.agents[i], l.agents[(i+1)%len(l.agents)].Address
	for n := 0; l.ctx.Err() == nil; n++ {
		at := i // its own node, unless that one does not take the message
		token := fmt.Sprintf("%s/%d", me.Address, n)
		body := fmt.Sprintf(`{"to":%q,"payload":{"token":%q,"text":"%s"}}`, to, token, strings.Repeat("x", rand.IntN(800)))
		for {
			ans, err := me.request("POST", "/api/v1/messages", body, "Idempotency-Key", token).by(clusterClient, urls[at%len(urls)])
			if err == nil && ans.status == 201 {
				m := parse[record](l.t, ans.body)
				l.sent[i] = append(l.sent[i], clusterLetter{token, m.MessageID, m.CreatedAt})
				l.noteAck()
				break
			}
			tooOld := err == nil && ans.status == 401 && strings.Contains(string(ans.body), "timestamp_out_of_range") // by a node that has lost nonces
			if err == nil && ans.status < 500 && ans.status != 429 && !tooOld {
				l.t.Errorf("%s: status %d: %s", token, ans.status, ans.body)
				return
			}
			l.retries.Add(1)
			at++ // the next node
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func (l *load) noteAck() {
	l.acked.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.silence = max(l.silence, now.Sub(l.lastAck))
	l.lastAck = now
}

// calm waits for n more 201s, and gives the longest silence since the call before.
func (l *load) calm(n int64) time.Duration {
	l.t.Helper()
	until := l.acked.Load() + n
	for end := time.Now().Add(patience); l.acked.Load() < until; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("only %d of %d messages were accepted", l.acked.Load()-until+n, n)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.silence
	l.silence = 0
	return s
}

// end stops the senders once each has the 201 of its last message.
func (l *load) end() {
	l.stop()
	l.wg.Wait()
}

// verify compares the ledger with what each node has.
func (l *load) verify() {
	l.t.Helper()
	l.level()
	for _, n := range l.running() {
		for i := range l.agents {
			l.verifySender(n, i)
		}
	}
}

func (l *load) verifySender(n *clusterNode, i int) {
	found := map[string][]record{}
	for _, m := range n.server.history(l.agents[i], "direction=out") {
		found[m.MessageID] = append(found[m.MessageID], m)
	}
	last := ""
	for _, s := range l.sent[i] {
		switch m := found[s.id]; {
		case len(m) == 0:
			l.t.Errorf("%s: %s of %s was acknowledged and is lost", n.name, s.id, s.token)
		case len(m) > 1:
			l.t.Errorf("%s: %s is there %d times", n.name, s.id, len(m))
		case !m[0].CreatedAt.Equal(s.createdAt):
			l.t.Errorf("%s: %s has moved from %v to %v", n.name, s.id, s.createdAt, m[0].CreatedAt)
		}
		if s.id <= last {
			l.t.Errorf("%s: %s stands before %s, which was accepted before it", n.name, s.id, last)
		}
		last = s.id
	}
	if len(found) != len(l.sent[i]) {
		l.t.Errorf("%s: %s was told of %d messages, and has %d: some are doubled", n.name, l.agents[i].Address, len(l.sent[i]), len(found))
	}
}

func trioAddresses(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("m%d^trio", i))
	}
	return all
}

// issue makes keys by the server of a node.
func (n *clusterNode) issue(addresses ...string) []agent {
	n.trio.t.Helper()
	return agents(n.trio.t, mustRelay(n.trio.t, append([]string{"key", "create", "--json", "--db", n.db}, addresses...)...))
}
