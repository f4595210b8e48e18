//go:build cluster

package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	beatSubject = "relay.beat"
	beatEvery   = 250 * time.Millisecond
	beatsKept   = 16 // of this node, to know when the heartbeat of an answer was sent; more than a lease lasts
)

// A beat is a heartbeat: what a node tells the others about itself. Later versions may add fields.
type beat struct {
	Node    string            `json:"node"`
	Folder  string            `json:"folder"`           // identity
	New     bool              `json:"new,omitempty"`    // it does not vote yet
	Asking  bool              `json:"asking,omitempty"` // it asks to be admitted (Node.admit)
	Met     map[string]string `json:"met"`              // identity
	past                      // identity
	Known   map[string]ages   `json:"known"` // identity
	Version string            `json:"version"`
	Rules   int64             `json:"rules"` // the rules of the log in force for its store
	Knows   int64             `json:"knows"` // the newest rules that its program knows
	Run     uint64            `json:"run"`   // random, of this run of the node; not 0
	Count   uint64            `json:"count"` // of the beat in the run
	Clock   int64             `json:"clock"` // Unix ns
	Sure    bool              `json:"sure"`  // its store follows the log of the cluster
	Applied uint64            `json:"applied"`
	Mark    uint64            `json:"mark"`
	Hash    uint64            `json:"hash"`  // after Mark
	Heard   map[string]echo   `json:"heard"` // the last beat of each other node
}

// An echo names a beat, and for how many ns the echoing node has had it.
type echo struct {
	Run   uint64 `json:"run"`
	Count uint64 `json:"count"`
	Held  int64  `json:"held"`
}

// heartbeats is what a node knows from heartbeats.
type heartbeats struct {
	mu      sync.Mutex
	quorum  int // how many members are a majority
	run     uint64
	count   uint64
	sent    [beatsKept]time.Duration // when the last beats were sent, by count
	peers   map[string]*peer
	changed chan struct{} // closed at the next beat of another node
	due     chan struct{} // has a token when the next beat is to be sent at once
	marks   marks         // of this node
	differs bool          // it is logged that marks differ
	taken   error         // why this node must stop (errTaken)
}

// peer is what a node knows of another node.
type peer struct {
	last    beat
	at      time.Duration // when last came
	marks   marks
	pending []confirmation
	// confirmed is when the last beat was sent whose answer said that this node had applied
	// everything that the peer had.
	confirmed time.Duration
	ahead     time.Duration // of the peer's clock before this node's
	clocked   bool          // ahead is known
	foreign   bool          // it is logged that its beats are left out
	doubted   uint64        // the first beat of this node after it left one of the peer's out, or 0
}

// A confirmation is an answer to a beat that was sent at a time: once this node has applied an
// entry, it has applied everything that the peer had then.
type confirmation struct {
	sent  time.Duration
	entry uint64
}

func newHeartbeats(members []Member, self string) *heartbeats {
	b := &heartbeats{peers: map[string]*peer{}, changed: make(chan struct{}), due: make(chan struct{}, 1)}
	b.set(members, self)
	b.reset()
	return b
}

// set adopts the members of a cluster file. It keeps what is known of the members that stay.
func (b *heartbeats) set(members []Member, self string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.quorum = len(members)/2 + 1
	peers := map[string]*peer{}
	for _, m := range members {
		if m.Name == self {
			continue
		}
		if peers[m.Name] = b.peers[m.Name]; peers[m.Name] == nil {
			peers[m.Name] = &peer{}
		}
	}
	b.peers = peers
}

// reset begins a new run, which has heard nothing.
func (b *heartbeats) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	var random [8]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	b.run, b.count = binary.LittleEndian.Uint64(random[:])|1, 0
	for name := range b.peers {
		b.peers[name] = &peer{}
	}
}

// beat sends heartbeats, and receives the heartbeats of the others, until ctx ends or Close.
// Then it closes ended.
func (n *Node) beat(ctx context.Context, c *nats.Conn) (ended chan struct{}, err error) {
	sub, err := c.Subscribe(beatSubject, func(m *nats.Msg) {
		var b beat
		if json.Unmarshal(m.Data, &b) == nil && b.Run != 0 && n.isPeer(b.Node) {
			n.hear(b)
		}
	})
	if err != nil {
		return nil, err
	}
	ended = make(chan struct{})
	go func() {
		defer close(ended)
		defer sub.Unsubscribe()
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			n.sendBeat(c)
			n.renew()
			select {
			case <-tick.C:
			case <-n.heartbeats.due:
			case <-ctx.Done():
				return
			case <-n.ctx.Done():
				return
			}
		}
	}()
	return ended, nil
}

// hurry has the next beat sent at once.
func (b *heartbeats) hurry() {
	select {
	case b.due <- struct{}{}:
	default:
	}
}

// sendBeat sends one beat. It reads which beats it answers before it reads the store's position,
// so that the answer does not describe a time before the question.
func (n *Node) sendBeat(c *nats.Conn) {
	id := n.id.get()
	b := beat{Node: n.c.Node, Folder: id.Folder, New: n.id.isNew(), Asking: !n.isAdmitted(), Met: id.Met, past: id.past,
		Known: id.Known, Version: n.c.Version, Heard: map[string]echo{}}
	s := n.heartbeats
	s.mu.Lock()
	var now time.Duration
	now, b.Clock = n.moment()
	s.count++
	s.sent[s.count%beatsKept] = now
	b.Run, b.Count = s.run, s.count
	for name, p := range s.peers {
		if p.last.Run != 0 {
			b.Heard[name] = echo{p.last.Run, p.last.Count, int64(now - p.at)}
		}
	}
	s.mu.Unlock()
	if b.Sure = n.isSure(); b.Sure {
		at := n.store.Place()
		b.Rules, b.Knows, b.Applied, b.Mark, b.Hash = at.Version, at.Knows, at.Applied, at.Mark, at.MarkHash
	}
	if text, err := json.Marshal(b); err == nil {
		c.Publish(beatSubject, text) // while the connection is broken, the others must hear nothing
	}
}

// clockTrust is the longest round trip by which clocks are compared.
const clockTrust = 500 * time.Millisecond

// moment returns elapsed, and the time of this node's clock in Unix ns, of the same moment. Time
// between two readings would count as a difference of the clocks.
func (n *Node) moment() (elapsed time.Duration, clock int64) {
	now := time.Now()
	return now.Sub(n.began), now.Add(n.c.skew).UnixNano()
}

// maxSkew is how far the clock of a node may be off when it joins the others: it may come to lead
// the log, and give entries their times.
const maxSkew = 30 * time.Second

var errClock = errors.New("the clock of this node differs from the clocks of the other nodes")

// checkClock compares the clock of this node with the clocks of the others. It needs the clocks of
// a majority, its own counted. One that agrees is enough.
func (n *Node) checkClock() error {
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	known, off := 1, time.Duration(0)
	for _, p := range s.peers {
		switch {
		case !p.clocked:
			continue
		case p.ahead.Abs() < maxSkew:
			off = 0
		case known == 1 || off != 0:
			off = p.ahead
		}
		known++
	}
	switch {
	case known < s.quorum:
		return errNotHeard
	case off != 0:
		return fmt.Errorf("%w by %v; at most %v is allowed", errClock, -off.Round(time.Second), maxSkew)
	}
	return nil
}

// hear notes the beat of another node.
func (n *Node) hear(b beat) {
	noted := n.id.note(&b)
	s := n.heartbeats
	s.mu.Lock()
	p := s.peers[b.Node]
	now, clock := n.moment()
	if p == nil { // it has just been removed
		s.mu.Unlock()
		return
	}
	if noted != nil {
		n.leaveOut(p, &b, noted)
		s.mu.Unlock()
		return
	}
	p.last, p.at, p.doubted = b, now, 0
	if id := n.id.get(); n.isAdmitted() && !id.hadAll(b.Known[n.c.Node]) {
		n.rolledBack(b.Node)
	}
	if e := b.Heard[n.c.Node]; e.Run == s.run && e.Count <= s.count && e.Count+beatsKept > s.count {
		sent := s.sent[e.Count%beatsKept]
		if way := now - sent - time.Duration(e.Held); way >= 0 && way < clockTrust {
			p.ahead, p.clocked = time.Duration(b.Clock-clock)+way/2, true
		}
		if b.Sure && len(p.pending) < beatsKept {
			p.pending = append(p.pending, confirmation{sent, b.Applied})
		}
	}
	if b.Sure && b.Mark != 0 {
		p.marks.add(b.Mark, b.Hash)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if b.Asking {
		s.hurry()
	}
	if b.Sure {
		n.know(b.Applied)
	}
	n.renew()
}

// leaveOut leaves out a beat that could not be noted. A folder that looks older may only be a late
// beat, if a third node has already reported a later one. The caller must hold the lock.
func (n *Node) leaveOut(p *peer, b *beat, why error) {
	mayBeLate := errors.Is(why, errOlder) && !b.Asking // a node that asks learns it anyway
	if mayBeLate && !n.isPresent(p, b) {
		return
	}
	if !p.foreign {
		n.log.Error("what a node says of itself is left out", "node", b.Node, "error", why)
	}
	p.foreign = true
	if mayBeLate {
		n.taken(fmt.Errorf("%w: %w", why, errTaken))
	}
}

// isPresent reports whether a beat that contradicts earlier ones is surely younger than they are, and
// was not delayed. For a node that asks to be admitted, all beats are; else the beat must answer one
// that this node sends from now on. The caller must hold the lock.
func (n *Node) isPresent(p *peer, b *beat) bool {
	s := n.heartbeats
	if p.doubted == 0 {
		p.doubted = s.count + 1
		s.hurry()
	}
	e := b.Heard[n.c.Node]
	return !n.isAdmitted() || e.Run == s.run && e.Count >= p.doubted
}
