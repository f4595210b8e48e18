package http

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"relay/db/relay"
)

// addReply holds the 201 of a message until its reply is there, if the request prefers to
// wait (PROTOCOL §3, Send). object is the 201 without its end; it gets the field `reply`.
// The message is durable, so nothing that goes wrong from here on refuses the request: the
// reply is null then. header has Preference-Applied if the relay waited, or found the reply;
// without it, the client may ask again at once, with the same Idempotency-Key.
func (s *Server) addReply(object []byte, c *call, id relay.MessageID) (with []byte, header []string) {
	wait, preferred := preferredWait(c.Header)
	if !preferred {
		return object, nil
	}
	c.release(s) // a retry with the same Idempotency-Key need not wait for this one
	reply, applied := s.awaitReply(c, id, wait)
	if reply != nil && s.reserve(c, recordRoom+int64(len(reply.Payload))) != nil {
		reply, applied = nil, false
	}
	object = appendName(object, ',', "reply")
	if reply == nil {
		object = append(object, "null"...)
	} else {
		object = AppendRecord(object, reply)
	}
	if applied {
		header = []string{"Preference-Applied", "wait=" + strconv.Itoa(int(wait/time.Second))}
	}
	return object, header
}

// awaitReply looks for the reply to a message of the caller, and waits for it. The wait
// counts as a socket; it ends with the key, at shutdown, and when the client goes away. The
// hub brings a reply at its commit, so the store is read for those before alone. applied
// is false if the relay has not waited: because it failed to look, or because of too many
// sockets. A wait of zero only looks.
func (s *Server) awaitReply(c *call, id relay.MessageID, wait time.Duration) (reply *relay.Message, applied bool) {
	question, err := s.config.DB.Message(c.Context(), c.key.Mecha.Number, id)
	if err != nil {
		return nil, false
	}
	search := relay.ReplyQuery{Question: question}
	if wait == 0 {
		found, err := s.findReply(c.Context(), c, search)
		return found.Reply, err == nil && !found.More
	}
	replies, ended, stop, err := s.config.Live.WatchReply(c.key, question)
	if err != nil {
		found, _ := s.findReply(c.Context(), c, search)
		return found.Reply, found.Reply != nil
	}
	defer stop()
	// The wait may be longer than a request may take to arrive.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	for {
		found, err := s.findReply(ctx, c, search)
		if found.Reply != nil {
			return found.Reply, true
		}
		search.After = max(search.After, found.Upto)
		var again <-chan time.Time // nil: the store has no reply
		if err != nil || found.More {
			again = time.After(max(pollPause, s.keys.wait(c.key.Number, s.config.Now())))
		}
		select {
		case reply := <-replies:
			return reply, true
		case <-ended:
			return nil, true
		case <-ctx.Done():
			return nil, true
		case <-again:
		}
	}
}

// findReply searches the store, and charges the key for the rows.
func (s *Server) findReply(ctx context.Context, c *call, q relay.ReplyQuery) (relay.ReplyFound, error) {
	found, err := s.config.DB.Reply(ctx, q)
	s.chargeRows(c.key, found.Looked, rowsPerRequest)
	return found, err
}
