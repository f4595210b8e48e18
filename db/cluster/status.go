//go:build cluster

package cluster

import (
	"context"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Status is what a node knows of the cluster.
type Status struct {
	Cluster     string // the id of the cluster
	Node        string
	Fresh       bool
	KeepsLog    bool
	Leader      string // the name of the node that leads the log; "" if it is not known
	First, Last uint64 // the numbers of the first and last entry that the log has; 0 if they are not known
	Bytes       uint64 // of the log
	Members     []MemberStatus
}

// MemberStatus is what a node knows of a member, by its last heartbeat.
type MemberStatus struct {
	Member
	Live    bool          // it was heard in the last 2 s
	Silence time.Duration // since it was last heard; 0 for this node; negative if never since this node's start
	Follows bool          // its store follows the log
	// Holds says that the member had a current copy of the log, which counts for the majority, at
	// some moment while Status ran. A new member gets one some seconds after another member was
	// removed. Holds is also false while the leader of the log is unknown.
	Holds   bool
	Version string // of its program
	Rules   int64  // the rules of the log in force for its store (file.Place)
	Knows   int64  // the newest rules that its program knows
	Applied uint64
	// Mark and Hash compare stores (file.Place).
	Mark, Hash uint64
	Differs    bool // its hash differs from this node's, for a mark that both have
	ClockAhead time.Duration
	ClockKnown bool // ClockAhead is known
}

// A working member usually lags by an entry or so, and now and then has all. A member that has
// lost its part of the log, or is catching up, never has all.
const (
	holdsLooks = 10
	holdsPause = 100 * time.Millisecond
)

// Status returns the state of the cluster. It asks the leader of the log, and waits for up to 2 s
// for one to be elected. It takes up to a second if a live member has no current copy of the log.
func (n *Node) Status(ctx context.Context) Status {
	st := Status{Cluster: n.file.Load().ID, Node: n.c.Node, Fresh: n.Fresh(), KeepsLog: n.KeepsLog()}
	holders := map[string]bool{}
	looking := ctx
	for look := range holdsLooks {
		if look == 1 { // the first look may have had to wait for a leader
			var cancel context.CancelFunc
			looking, cancel = context.WithTimeout(ctx, holdsLooks*holdsPause)
			defer cancel()
		}
		if !n.isAdmitted() || look > 0 && (n.allHold(holders) || !pause(looking, holdsPause)) {
			break // a node that is not admitted has no log to ask
		}
		info, err := n.streamInfo(looking)
		if err != nil {
			break
		}
		st.First, st.Last, st.Bytes = info.State.FirstSeq, info.State.LastSeq, info.State.Bytes
		if info.Cluster != nil {
			st.Leader = info.Cluster.Leader
			addHolders(holders, info.Cluster)
		}
	}
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	now := n.elapsed()
	for _, m := range n.file.Load().Members {
		var of MemberStatus
		if m.Name == n.c.Node {
			of = n.own(m)
		} else if p := s.peers[m.Name]; p != nil {
			of = p.status(m, now, &s.marks)
		} else {
			continue
		}
		of.Holds = holders[peerID(m.Name)]
		st.Members = append(st.Members, of)
	}
	return st
}

// addHolders adds the peers that have a current copy of the stream: its leader, and the peers
// that the leader hears and that do not lag.
func addHolders(holders map[string]bool, c *server.ClusterInfo) {
	if c.Leader != "" {
		holders[peerID(c.Leader)] = true
	}
	for _, p := range c.Replicas {
		if p.Current && !p.Offline && !p.Pending {
			holders[p.Peer] = true
		}
	}
}

// allHold reports whether this node and the other live members are among the holders.
func (n *Node) allHold(holders map[string]bool) bool {
	if !holders[peerID(n.c.Node)] {
		return false
	}
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, p := range s.peers {
		if p.isLive(n.elapsed()) && !holders[peerID(name)] {
			return false
		}
	}
	return true
}

func (n *Node) own(m Member) MemberStatus {
	st := MemberStatus{Member: m, Live: true, Version: n.c.Version, ClockKnown: true, Follows: n.isSure()}
	if n.isAttached() {
		at := n.store.Place()
		st.Rules, st.Knows, st.Applied, st.Mark, st.Hash = at.Version, at.Knows, at.Applied, at.Mark, at.MarkHash
	}
	return st
}

func (p *peer) status(m Member, now time.Duration, own *marks) MemberStatus {
	if p.last.Run == 0 {
		return MemberStatus{Member: m, Silence: -1}
	}
	st := MemberStatus{Member: m, Live: p.isLive(now), Silence: now - p.at, Follows: p.last.Sure, Version: p.last.Version,
		Rules: p.last.Rules, Knows: p.last.Knows, Applied: p.last.Applied, Mark: p.last.Mark, Hash: p.last.Hash,
		ClockAhead: p.ahead, ClockKnown: p.clocked}
	for i, number := range own.numbers {
		if hash, ok := p.marks.at(number); ok && hash != own.hashes[i] {
			st.Differs = true
		}
	}
	return st
}
