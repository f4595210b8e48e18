//go:build cluster

package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// SetFile has the node continue with another file of its cluster, which has a member more or
// less. From then on the node takes connections of the members of that file alone. It connects to
// a new member after its next start; until then the new member connects to it. Error: the file
// belongs to another cluster, or does not list the node.
func (n *Node) SetFile(f *File) error {
	if id := n.file.Load().ID; f.ID != id {
		return fmt.Errorf("it is the file of cluster %s, and this node is of cluster %s", f.ID, id)
	}
	if f.Address(n.c.Node) == "" {
		return fmt.Errorf("the cluster file has no member %s", n.c.Node)
	}
	n.file.Store(f)
	n.heartbeats.set(f.Members, n.c.Node)
	return nil
}

// evictEvery is how often a node looks for removed members that NATS still counts.
const evictEvery = 2 * time.Second

// evict removes former members from the voting group, and has another member take over their
// copy of the log. The node that keeps the log does it, once there are enough others.
func (n *Node) evict() {
	done := map[string]bool{}
	for pause(n.ctx, evictEvery) {
		if !n.KeepsLog() || n.following() < Replicas {
			continue
		}
		for _, name := range n.file.Load().Removed {
			if done[name] {
				continue
			}
			err := n.removePeer(n.ctx, name)
			if err != nil && n.ctx.Err() == nil {
				n.nats.log.Warnf("a member that was removed still has its vote: %v", err)
			}
			done[name] = err == nil
		}
	}
}

// following returns how many live members follow the log, this one counted.
func (n *Node) following() (count int) {
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.peers {
		if p.isLive(n.elapsed()) && p.last.Sure {
			count++
		}
	}
	return count + 1
}

// removePeer removes a former member from NATS. It returns nil if NATS does not know it.
func (n *Node) removePeer(ctx context.Context, name string) error {
	var r server.JSApiMetaServerRemoveResponse
	err := ask(ctx, n.nats.admin, server.JSApiRemoveServer,
		server.JSApiMetaServerRemoveRequest{Server: name, Peer: peerID(name)}, &r)
	switch {
	case isAPIError(err, server.JSClusterServerNotMemberErr):
		return nil
	case err != nil:
		return err
	case !r.Success:
		return errors.New("NATS did not do it")
	}
	n.log.Info("a member was removed", "node", name)
	return nil
}

// isAPIError reports whether err is a JetStream error of a kind.
func isAPIError(err error, kind server.ErrorIdentifier) bool {
	var api *server.ApiError
	return errors.As(err, &api) && server.IsNatsErr(api, kind)
}

// peerID returns the name under which NATS counts the vote of a server: it forgets the names of
// servers that were away when it started (getHash in its server/events.go).
func peerID(name string) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	sum := sha256.Sum256([]byte(name))
	id := make([]byte, 8)
	for i := range id {
		id[i] = digits[int(sum[i])%len(digits)]
	}
	return string(id)
}
