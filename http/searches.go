package http

import (
	"sync"

	"relay/db"
)

// searches holds the answers that wait for their commit, so that they can be
// fetched at once. The zero value is ready; it is safe for concurrent use.
type searches struct {
	mu    sync.Mutex
	all   map[db.SearchID]waitingSearch
	bytes int
}

// maxWaitingSearches bounds the answers that wait, in bytes: nobody waits for
// their commit, so nothing else would, if the disk is slower than searches are.
const maxWaitingSearches = 64 << 20

type waitingSearch struct {
	owner  db.MechaID
	answer []byte
}

// put is false if too much is waiting.
func (s *searches) put(id db.SearchID, owner db.MechaID, answer []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bytes+len(answer) > maxWaitingSearches && s.bytes > 0 {
		return false
	}
	s.bytes += len(answer)
	if s.all == nil {
		s.all = map[db.SearchID]waitingSearch{}
	}
	s.all[id] = waitingSearch{owner, answer}
	return true
}

func (s *searches) drop(id db.SearchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes -= len(s.all[id].answer)
	delete(s.all, id)
}

func (s *searches) get(id db.SearchID) (owner db.MechaID, answer []byte, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, known := s.all[id]
	return w.owner, w.answer, known
}
