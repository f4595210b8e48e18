//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// lease is how long a node may answer reads after it sent a heartbeat, if the answers of a
// majority, itself counted, say that it had applied everything that they had. So whatever a
// majority has applied, such as a revocation, holds on each node that answers reads, at most
// this time later.
const lease = 2 * time.Second

// live is how long a node counts as live after its last heartbeat.
const live = lease

// Fresh reports whether this node may answer reads: in the last 2 s a majority of the members,
// this one counted, confirmed that it is up to date. A node that is cut off loses the lease. The
// call is cheap.
func (n *Node) Fresh() bool { return n.elapsed() < time.Duration(n.until.Load()) }

// KeepsLog reports whether this node issues maintenance writes: it is Fresh, and no live node
// that follows the log has a lower name. For a moment none may be, or two.
func (n *Node) KeepsLog() bool { return n.keeps.Load() && n.Fresh() }

// renew determines until when this node has the lease, whether it keeps the log, and whether
// its store equals the others.
func (n *Node) renew() {
	if !n.isSure() {
		return
	}
	at := n.store.Place()
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	now, keeps := n.elapsed(), true
	var confirmed []time.Duration
	for name, p := range s.peers {
		p.pending = slices.DeleteFunc(p.pending, func(c confirmation) bool {
			if c.entry <= at.Applied {
				p.confirmed = max(p.confirmed, c.sent)
			}
			return c.entry <= at.Applied || c.sent+lease < now
		})
		if p.confirmed > 0 {
			confirmed = append(confirmed, p.confirmed)
		}
		keeps = keeps && !(name < n.c.Node && p.isLive(now) && p.last.Sure)
	}
	n.keeps.Store(keeps)
	if others := s.quorum - 1; len(confirmed) >= others {
		slices.SortFunc(confirmed, func(a, b time.Duration) int { return int(b - a) })
		n.until.Store(int64(confirmed[others-1] + lease))
	}
	if at.Mark != 0 {
		s.marks.add(at.Mark, at.MarkHash)
	}
	n.compareMarks(s)
}

func (p *peer) isLive(now time.Duration) bool { return p.last.Run != 0 && now-p.at < live }

// Seen waits until each other member has applied the entry of a number, or cannot have the lease
// without having applied it. Error: ctx has ended before.
//
// A member that has not confirmed this has the lease at most until every majority that could
// renew it includes a member that has applied the entry, plus the length of a lease.
func (n *Node) Seen(ctx context.Context, number uint64) error {
	select {
	case <-n.sure:
	case <-ctx.Done():
		return ctx.Err()
	}
	s := n.heartbeats
	blocked := time.Duration(-1) // since when every majority includes a member that has applied it
	for {
		s.mu.Lock()
		applied, changed := 0, s.changed
		if n.isSure() && n.store.Place().Applied >= number {
			applied = 1
		}
		for _, p := range s.peers {
			if p.last.Sure && p.last.Applied >= number {
				applied++
			}
		}
		members := len(s.peers) + 1
		s.mu.Unlock()
		now := n.elapsed()
		switch {
		case applied == members:
			return nil
		case applied < members-s.quorum+1:
			blocked = -1
		case blocked < 0:
			blocked = now
		case now-blocked > lease+beatEvery:
			return nil
		}
		timer := time.NewTimer(beatEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("not all nodes have said that they have applied entry %d: %w", number, ctx.Err())
		}
		timer.Stop()
	}
}
