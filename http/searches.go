package http

import (
	"sync"
	"time"

	"relay/db/relay"
)

// searches holds the answers that wait for their commit, so that they can be
// fetched at once, and for their hour those that could not be written: they
// were promised. The zero value is ready; it is safe for concurrent use.
type searches struct {
	mu    sync.Mutex
	all   map[relay.SearchID]*heldSearch
	bytes int
	// kept are those that could not be written, oldest first; the first `over`
	// of them have lost their text, for their hour is over.
	kept []relay.SearchID
	over int
}

// maxHeldSearches bounds what is held, in bytes: nobody waits for the commits,
// so nothing else would, if the disk is slower than searches are.
const maxHeldSearches = 64 << 20

type heldSearch struct {
	owner  relay.MechaID
	answer []byte
	until  time.Time // when its hour is over; zero while it waits
}

// size is about what it takes, the room for its id included.
func (h *heldSearch) size() int { return 256 + len(h.answer) }

// put is false if too much is waiting. Those that are only kept make room.
func (s *searches) put(id relay.SearchID, owner relay.MechaID, answer []byte, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetTexts(now)
	h := &heldSearch{owner: owner, answer: answer}
	for s.bytes+h.size() > maxHeldSearches && len(s.kept) > 0 {
		s.remove(s.kept[0])
		s.kept, s.over = s.kept[1:], max(s.over-1, 0)
	}
	if s.bytes+h.size() > maxHeldSearches && s.bytes > 0 {
		return false
	}
	s.bytes += h.size()
	if s.all == nil {
		s.all = map[relay.SearchID]*heldSearch{}
	}
	s.all[id] = h
	return true
}

// drop ends the waiting: the answer is in the file.
func (s *searches) drop(id relay.SearchID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(id)
}

func (s *searches) remove(id relay.SearchID) {
	if h := s.all[id]; h != nil {
		s.bytes -= h.size()
		delete(s.all, id)
	}
}

// keep ends the waiting in the other way: the answer will not be in the file.
func (s *searches) keep(id relay.SearchID, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.all[id]; h != nil {
		h.until = until
		s.kept = append(s.kept, id)
	}
}

// get gives what is held. expired is when its hour ended, if it has; then there is no answer.
func (s *searches) get(id relay.SearchID, now time.Time) (owner relay.MechaID, answer []byte, expired time.Time, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetTexts(now)
	h := s.all[id]
	switch {
	case h == nil:
		return 0, nil, expired, false
	case !h.until.IsZero() && !now.Before(h.until):
		return h.owner, nil, h.until, true
	}
	return h.owner, h.answer, expired, true
}

// forgetTexts takes the text out of what has expired. That there was an answer
// can be told until newer ones need the room.
func (s *searches) forgetTexts(now time.Time) {
	for ; s.over < len(s.kept); s.over++ {
		h := s.all[s.kept[s.over]]
		if now.Before(h.until) {
			return
		}
		s.bytes -= len(h.answer)
		h.answer = nil
	}
}
