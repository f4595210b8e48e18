package ws

import (
	"time"

	"relay/db/relay"
)

// window is the messages in flight while the stream has not caught up: sent on
// this connection and not acknowledged since (PROTOCOL §4). Conn.mu guards it.
type window struct {
	size      int                         // how many messages may be in flight
	inFlight  map[relay.Position]struct{} // the messages in flight
	reading   bool                        // push reads a page from the store
	freed     map[relay.Position]bool     // messages freed while it does, which may be in the page; true: by an acknowledgement
	acked     bool                        // at least one message in flight has been acknowledged
	fullSince time.Time                   // since when push waits for a free place, if the connection is stalled
	lastSent  relay.MessageID             // the message after which a client that is closed resumes
}

func (w *window) room() int { return w.size - len(w.inFlight) }

// pageBegins says that push starts to read a page. It must be called before the
// store is asked, so that free sees every change that the page may not show.
func (w *window) pageBegins() { w.reading, w.freed = true, nil }

// pageTaken says that push is done with the page: its messages have been added,
// or there was no room for them.
func (w *window) pageTaken() { w.reading, w.freed = false, nil }

// add gives a message of the page a place, unless it has been freed already.
func (w *window) add(p relay.Position) {
	if byAck, freed := w.freed[p]; freed {
		w.acked = w.acked || byAck
		return
	}
	if w.inFlight == nil {
		w.inFlight = map[relay.Position]struct{}{}
	}
	w.inFlight[p] = struct{}{}
}

// free takes a message out and tells whether it had a place. byAck says that its
// recipient has acknowledged it, else it has expired.
func (w *window) free(p relay.Position, byAck bool) bool {
	if _, in := w.inFlight[p]; !in {
		if w.reading {
			if w.freed == nil {
				w.freed = map[relay.Position]bool{}
			}
			w.freed[p] = w.freed[p] || byAck
		}
		return false
	}
	delete(w.inFlight, p)
	w.acked = w.acked || byAck
	return true
}
