package http

import (
	"sync"

	"relay/db"
)

// searches holds the answers that wait for their commit, so that they can be
// fetched at once. The zero value is ready; it is safe for concurrent use.
type searches struct {
	mu  sync.Mutex
	all map[db.SearchID]waitingSearch
}

type waitingSearch struct {
	owner  db.MechaID
	answer []byte
}

func (s *searches) put(id db.SearchID, owner db.MechaID, answer []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[db.SearchID]waitingSearch{}
	}
	s.all[id] = waitingSearch{owner, answer}
}

func (s *searches) drop(id db.SearchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

func (s *searches) get(id db.SearchID) (owner db.MechaID, answer []byte, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, known := s.all[id]
	return w.owner, w.answer, known
}
