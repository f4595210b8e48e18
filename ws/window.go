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
	freed     map[relay.Position]struct{} // messages freed while it does, which may be in the page
	fullSince time.Time                   // since when push waits for a free place, if the connection is stalled
}

func (w *window) room() int { return w.size - len(w.inFlight) }

// pageStarted records that push starts to read a page. It must be called before the
// store is asked, so that free sees every change that the page may not show.
func (w *window) pageStarted() { w.reading, w.freed = true, nil }

// pageTaken says that push is done with the page: its messages have been added,
// or there was no room for them.
func (w *window) pageTaken() { w.reading, w.freed = false, nil }

// add returns a message of the page a place. A message that was acknowledged before,
// which a cursor brings again, or that has been freed meanwhile takes none.
func (w *window) add(m *relay.Message) {
	if _, freed := w.freed[m.Position]; freed || m.State == relay.Acknowledged {
		return
	}
	if w.inFlight == nil {
		w.inFlight = map[relay.Position]struct{}{}
	}
	w.inFlight[m.Position] = struct{}{}
}

// free takes out a message that its recipient has answered for, or that has expired.
// It reports whether the message had a place.
func (w *window) free(p relay.Position) bool {
	if _, in := w.inFlight[p]; !in {
		if w.reading {
			if w.freed == nil {
				w.freed = map[relay.Position]struct{}{}
			}
			w.freed[p] = struct{}{}
		}
		return false
	}
	delete(w.inFlight, p)
	return true
}

// open releases the places of all messages in flight.
func (w *window) open() { w.inFlight = nil }
