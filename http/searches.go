package http

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"relay/db"
	"relay/db/relay"
)

// searches keeps the answers to searches for relay.SearchLife. The store writes an
// answer with its next commit, which no request waits for; so the life of an
// answer in memory is:
//
//	save:    the answer is held, so that it can be fetched at once.
//	written: the answer is stored; stop holding it.
//	failed:  it could not be stored; hold it for its hour, as the client was promised.
//
// It is safe for concurrent use.
type searches struct {
	store *db.DB
	log   *slog.Logger

	mu    sync.Mutex
	held  map[relay.SearchID]*heldSearch
	bytes int // of all held answers
	// unstored are the held answers that could not be stored, oldest first. The
	// first `expired` of them have lost their text, since their hour is over.
	unstored []relay.SearchID
	expired  int
	failing  bool // the last answer could not be stored
}

// maxHeldSearches bounds the bytes held. Searches do not wait for commits, so
// nothing else would stop them when the disk is slower than they are.
const maxHeldSearches = 64 << 20

type heldSearch struct {
	owner  relay.MechaNumber
	answer []byte
	until  time.Time // the end of its hour; zero while its write is queued
}

// size is about the memory that an answer takes, with its id.
func (h *heldSearch) size() int { return 256 + len(h.answer) }

// save keeps an answer, and does not wait for the disk. Overloaded: too many
// answers wait for it already.
func (s *searches) save(w *relay.SaveSearch) error {
	if !s.hold(w) {
		e := relay.Errorf(relay.Overloaded, "too many answers to searches wait for the disk")
		e.RetryAfter = time.Second
		return e
	}
	s.store.SaveSearch(w, func(err error) {
		if err != nil {
			s.failed(w, err)
		} else {
			s.written(w)
		}
	})
	return nil
}

// get returns an answer to the Mecha that searched: else SearchNotFound,
// NotYourSearch, and after its hour SearchExpired. Nobody may change the answer.
func (s *searches) get(
	ctx context.Context, id relay.SearchID, caller relay.MechaNumber, now time.Time,
) ([]byte, error) {
	h, held := s.find(id, now)
	switch {
	case !held:
		return s.store.Search(ctx, id, caller)
	case h.owner != caller:
		return nil, relay.Errorf(relay.NotYourSearch, "another Mecha asked for this search")
	case !h.until.IsZero() && !now.Before(h.until):
		return nil, relay.Errorf(relay.SearchExpired, "the answer was kept until %s; search again", relay.FormatTime(h.until))
	}
	return h.answer, nil
}

// hold makes room by dropping the oldest answers that could not be stored. It is
// false if there is no room even so.
func (s *searches) hold(w *relay.SaveSearch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(w.At)
	h := &heldSearch{owner: w.Mecha, answer: w.Answer}
	for s.bytes+h.size() > maxHeldSearches && len(s.unstored) > 0 {
		s.drop(s.unstored[0])
		s.unstored, s.expired = s.unstored[1:], max(s.expired-1, 0)
	}
	if s.bytes+h.size() > maxHeldSearches && s.bytes > 0 {
		return false
	}
	s.bytes += h.size()
	if s.held == nil {
		s.held = map[relay.SearchID]*heldSearch{}
	}
	s.held[w.ID] = h
	return true
}

func (s *searches) drop(id relay.SearchID) {
	if h := s.held[id]; h != nil {
		s.bytes -= h.size()
		delete(s.held, id)
	}
}

// written: the answer is stored; stop holding it.
func (s *searches) written(w *relay.SaveSearch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(w.ID)
	s.failing = false
}

// failed: the answer could not be stored; hold it for its hour. The log gets the
// first of several failures in a row.
func (s *searches) failed(w *relay.SaveSearch, err error) {
	s.mu.Lock()
	first := !s.failing
	s.failing = true
	if h := s.held[w.ID]; h != nil {
		h.until = w.At.Add(relay.SearchLife)
		s.unstored = append(s.unstored, w.ID)
	}
	s.mu.Unlock()
	if first {
		s.log.Error("cannot store answers to searches; they are kept in memory", "search", w.ID, "error", err)
	}
}

// find returns a copy of what is held for an id.
func (s *searches) find(id relay.SearchID, now time.Time) (h heldSearch, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropExpired(now)
	if p := s.held[id]; p != nil {
		return *p, true
	}
	return h, false
}

// dropExpired drops the text of answers whose hour is over. The rest of them
// stays, to answer SearchExpired, until newer answers need the room.
func (s *searches) dropExpired(now time.Time) {
	for ; s.expired < len(s.unstored); s.expired++ {
		h := s.held[s.unstored[s.expired]]
		if now.Before(h.until) {
			return
		}
		s.bytes -= len(h.answer)
		h.answer = nil
	}
}
