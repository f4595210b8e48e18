//go:build cluster

package cluster

import "fmt"

// marks has the hashes of a store after the latest entries whose numbers are marks (file.Place).
type marks struct {
	numbers, hashes [marksKept]uint64
	next            int
}

const marksKept = 16

func (m *marks) add(number, hash uint64) {
	if _, ok := m.at(number); ok {
		return
	}
	m.numbers[m.next], m.hashes[m.next] = number, hash
	m.next = (m.next + 1) % marksKept
}

func (m *marks) at(number uint64) (hash uint64, ok bool) {
	for i, have := range m.numbers {
		if have == number && number != 0 {
			return m.hashes[i], true
		}
	}
	return 0, false
}

// compareMarks compares the marks of this node's store with the marks of the other nodes. If a
// majority of the members agrees with each other and not with this node, this node must stop. The
// caller must hold the lock of the heartbeats.
func (n *Node) compareMarks(s *heartbeats) {
	for i, number := range s.marks.numbers {
		votes, own := map[uint64]int{}, s.marks.hashes[i]
		for _, p := range s.peers {
			if hash, ok := p.marks.at(number); ok && hash != own {
				votes[hash]++
			}
		}
		for _, count := range votes {
			err := fmt.Errorf("the store of node %s is not like that of %d others: "+
				"after entry %d of the log its hash is another", n.c.Node, count, number)
			if !s.differs {
				s.differs = true
				n.log.Error(err.Error())
			}
			if count >= s.quorum {
				n.fail(fmt.Errorf("%w. A majority agrees, so this node stops: begin again with a copy of the file of another node",
					err))
			}
		}
	}
}
