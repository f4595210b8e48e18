//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// A starting node does not vote until the others have admitted it. Until then it talks to them by
// a NATS server without the log, so it neither votes nor counts for a majority. It asks what they
// know of its folder:
//
//   - Have they known another folder under its name? Then it has lost its disk.
//   - Have they heard of an age and an incarnation that it did not have? Then its disk was rolled
//     back to an older state.
//
// Either is refused. The answers of a majority are enough, the node itself counted, and it waits a
// little for the rest: it cannot require more, because two of three must be able to start alone.
// Nodes that start at the same time answer each other, since an answer needs no log. Then an
// incarnation of the folder begins, and the node does not vote before a majority has that on disk.
// So an older state of the folder is refused wherever one of these nodes is heard.

// admitTimeout is how long a node that has the answers of a majority waits for the others.
const admitTimeout = 2 * time.Second

var (
	errLostFolder = errors.New("the node had another folder before: a machine that has lost it comes back under a new " +
		"name (relay cluster add, relay cluster remove)")
	errRolledBack = errors.New("the disk of this node was put back to an older state, and has forgotten what it has " +
		"acknowledged: the machine comes back under a new name, with an empty folder (relay cluster add, relay cluster " +
		"remove)")
	errTaken = errors.New("its disk was put back to an older state, but it still takes part in the log, which " +
		"may have lost acknowledged messages: this node stops, and does not start again (to recover, see relay docs " +
		"cluster)")
)

// farewell is how long a node keeps talking after it learns that its disk was rolled back, so
// that the node that knows about the rollback learns that this one votes.
const farewell = time.Second

// rolledBack stops this node, since another node knows that its disk was rolled back. It was admitted
// while that node was away.
func (n *Node) rolledBack(by string) {
	err := fmt.Errorf("%w (%s, as %s remembers)", errRolledBack, n.c.Node, by)
	n.all.Go(func() {
		if pause(n.ctx, farewell) {
			n.fail(err)
		}
	})
}

// taken stops this node for good, since a node votes whose disk was rolled back. The caller
// must hold the lock of the heartbeats.
func (n *Node) taken(why error) {
	if n.heartbeats.taken != nil {
		return
	}
	n.heartbeats.taken = why
	n.all.Go(func() {
		if err := n.id.end(why); err != nil {
			n.log.Error("the file node.json cannot be written", "dir", n.c.Dir, "error", err)
		}
		n.fail(why)
	})
}

// enter has the node admitted to the cluster. It closes decided.
func (n *Node) enter(ctx context.Context, s *natsServer) {
	defer close(n.decided)
	if n.refusal = n.admit(ctx, s); n.refusal == nil {
		n.refusal = n.join()
	}
}

// admit asks the others by a server without the log, which it closes.
func (n *Node) admit(ctx context.Context, s *natsServer) error {
	defer s.close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, err := n.beat(ctx, s.conn)
	if err != nil {
		return err
	}
	err = n.ask(ctx)
	cancel()
	<-ended
	return err
}

// ask returns nil once the node may vote.
func (n *Node) ask(ctx context.Context) error {
	enough := time.Duration(-1) // since when a majority has answered
	err := n.await(ctx, func() (bool, error) {
		answers, all, err := n.answers()
		switch {
		case err != nil:
			return false, err
		case !n.suffices(answers):
			enough = -1
		case enough < 0:
			enough = n.elapsed()
		}
		return all || enough >= 0 && n.elapsed()-enough >= cmp.Or(n.c.admitTimeout, admitTimeout), nil
	})
	if err != nil {
		return err
	}
	if err := n.id.live(); err != nil {
		return err
	}
	n.heartbeats.hurry()
	return n.await(ctx, func() (bool, error) {
		if _, _, err := n.answers(); err != nil {
			return false, err
		}
		return n.suffices(n.noted()), nil
	})
}

// answers counts the members whose answers are heard, this one counted. all says that none is
// missing. Error: one of them says that this node must not come back.
func (n *Node) answers() (count int, all bool, err error) {
	s, id, isNew := n.heartbeats, n.id.get(), n.id.isNew()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken != nil {
		return 0, false, s.taken
	}
	count = 1
	for other, p := range s.peers {
		old := p.last.Met[n.c.Node]
		switch {
		case p.last.Run == 0:
		case old != "" && old != id.Folder:
			return 0, false, fmt.Errorf("%w (%s, as %s remembers)", errLostFolder, n.c.Node, other)
		case !id.hadAll(p.last.Known[n.c.Node]):
			return 0, false, fmt.Errorf("%w (%s, as %s remembers)", errRolledBack, n.c.Node, other)
		case p.last.New && !isNew: // it knows nothing yet
		default:
			count++
		}
	}
	return count, count == len(s.peers)+1, nil
}

// noted counts the members that have noted the incarnation of this node's folder, this one counted.
func (n *Node) noted() int {
	s, id := n.heartbeats, n.id.get()
	s.mu.Lock()
	defer s.mu.Unlock()
	count := 1
	for _, p := range s.peers {
		if p.last.Known[n.c.Node][id.incarnation()] > 0 {
			count++
		}
	}
	return count
}

// suffices reports whether so many members are a majority. If not, it logs after a while that the
// node waits.
func (n *Node) suffices(count int) bool {
	n.heartbeats.mu.Lock()
	defer n.heartbeats.mu.Unlock()
	if count < n.heartbeats.quorum && n.elapsed() > waitSilent {
		n.sayWaiting(errNotHeard)
	}
	return count >= n.heartbeats.quorum
}

// await waits until condition is true or fails. It checks after each heartbeat of another
// node, and at least as often as a node sends them.
func (n *Node) await(ctx context.Context, condition func() (bool, error)) error {
	for {
		n.heartbeats.mu.Lock()
		changed := n.heartbeats.changed
		n.heartbeats.mu.Unlock()
		if done, err := condition(); done || err != nil {
			return err
		}
		timer := time.NewTimer(beatEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("the other nodes do not answer: %w", ctx.Err())
		}
		timer.Stop()
	}
}

const waitingForLog = "waiting for the log of the cluster, which needs a majority of the nodes"

var errNotHeard = errors.New("a majority of the nodes is not heard")

// sayWaiting logs once that the node waits for a majority.
func (n *Node) sayWaiting(why error) {
	if n.ctx.Err() == nil && n.waits.CompareAndSwap(false, true) {
		n.log.Warn(waitingForLog, "error", why)
	}
}

// join starts the node's part of the log.
func (n *Node) join() error {
	s, err := n.startServer(true)
	if err != nil {
		return err
	}
	n.nats = s
	n.heartbeats.reset()
	if err := n.serveSnapshots(); err != nil {
		s.close()
		return err
	}
	ended, err := n.beat(n.ctx, s.conn)
	if err != nil {
		s.close()
		return err
	}
	n.all.Go(func() { <-ended })
	n.all.Go(n.evict)
	n.all.Go(n.grow)
	n.all.Go(n.watchLog)
	close(n.admitted)
	return nil
}

// How often a folder becomes older, while the log grows and while it does not. If the disk
// is rolled back to a later state than the last time, no one notices that acknowledged
// writes are missing.
const (
	growEvery  = time.Second
	growSeldom = 10 * time.Second
)

// grow increases the age of the folder from time to time.
func (n *Node) grow() {
	last, known, failed := n.elapsed(), uint64(0), false
	for pause(n.ctx, growEvery) {
		if n.known.Load() == known && n.elapsed()-last < growSeldom {
			continue
		}
		last, known = n.elapsed(), n.known.Load()
		err := n.id.rise()
		if err != nil && !failed {
			n.log.Error("the file node.json cannot be written", "dir", n.c.Dir, "error", err)
		}
		failed = err != nil
	}
}
