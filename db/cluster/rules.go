//go:build cluster

package cluster

// CommonRules returns the newest rules of the log that the programs of all members know, by their
// last heartbeats (replication.Following.CommonRules), or 0 while a member is not heard, or its
// store does not follow the log.
func (n *Node) CommonRules() int64 {
	if !n.isSure() {
		return 0
	}
	common := n.store.Place().Knows
	s := n.heartbeats
	s.mu.Lock()
	defer s.mu.Unlock()
	now := n.elapsed()
	for _, p := range s.peers {
		if !p.isLive(now) || !p.last.Sure {
			return 0
		}
		common = min(common, p.last.Knows)
	}
	return common
}
