package http

import (
	"net/http"
	"time"

	"relay/db/relay"
)

// An answer is made after room was taken for it: so neither many requests at once nor answers that nobody reads
// fill the memory, and a claim that is refused leases nothing. An endpoint reserves the most that its answer
// may have; what the answer has is counted until it is written.
//
// These endpoints let the client choose the size of the answer: history, conversation, claim, payload,
// trace, profile, search, a send that waits for its reply, and the gateways. The answers of all others have
// at most some KB.
const (
	// recordRoom is for a message without its payload: a detail of 1 KiB may be six times as long in JSON.
	recordRoom = 8 << 10
	// profileRoom is for a profile, with a card.
	profileRoom = 256 << 10
	// resultRoom is for one result of a search.
	resultRoom = 80 << 10
	// traceRoom is for the steps of a message.
	traceRoom = 2 << 20
	// roomWait is how long a request waits for room. The others of a Mecha hold theirs for some
	// milliseconds, while their answers are made, if their clients read.
	roomWait = 250 * time.Millisecond
)

// pageRoom is for a page of up to n messages, or for a claim.
func (s *Server) pageRoom(n int, withPayload bool) int64 {
	room := int64(n) * recordRoom
	if withPayload {
		room += min(int64(n)*s.payloadRoom(), relay.PageBytes)
	}
	return room
}

// payloadRoom is for one payload. One of more than relay.PageBytes, where --max-body allows it, is counted
// once it is read: else a small one would take the room of the largest.
func (s *Server) payloadRoom() int64 {
	if s.config.MaxBody <= 0 {
		return relay.PageBytes
	}
	return min(s.config.MaxBody, relay.PageBytes)
}

// reserve takes room for an answer of up to n bytes, in place of what the call has reserved before. It
// must come before the request writes anything. RateLimited: the Mecha's share of the memory is used up.
// Overloaded: all of it is.
func (s *Server) reserve(c *call, n int64) error {
	owner := c.key.Mecha.Number
	s.unreserve(c)
	var late <-chan time.Time
	for {
		room := s.memory.takeLater(owner, n)
		if room == nil {
			c.answerBytes = n
			return nil
		}
		if late == nil {
			late = time.After(roomWait)
		}
		select {
		case <-room:
			continue
		case <-late:
		case <-c.Context().Done():
		}
		err := s.memory.take(owner, n)
		if err == nil {
			c.answerBytes = n
		}
		return err
	}
}

// unreserve releases what the call has reserved, while it waits for instance.
func (s *Server) unreserve(c *call) {
	s.memory.give(c.key.Mecha.Number, c.answerBytes)
	c.answerBytes = 0
}

// hold counts an answer of n bytes while it is written, in place of what was reserved for it, for the
// client may read it slowly. If that was too little, a request that has changed nothing can be refused.
func (s *Server) hold(c *call, n int) error {
	owner, reserved, size := c.key.Mecha.Number, c.answerBytes, int64(n)
	if size > reserved && (c.Method == http.MethodGet || c.Method == http.MethodHead) {
		return s.reserve(c, size)
	}
	s.memory.change(owner, reserved, size)
	c.answerBytes = size
	return nil
}
