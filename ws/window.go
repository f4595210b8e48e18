package ws

import (
	"time"

	"relay/db/relay"
)

// window is the messages in flight while a connection has not caught up: sent
// on it and not acknowledged since (PROTOCOL §4). Conn.mu guards it.
type window struct {
	size     int
	inFlight map[relay.Position]struct{}
	reading  bool                    // a page is being read
	answered map[relay.Position]bool // meanwhile, and whether by an acknowledgement: they may be in it
	acked    bool                    // this connection has seen an acknowledgement
	full     time.Time               // since when the stream waits for room
	last     relay.MessageID         // sent last
}

func (w *window) room() int { return w.size - len(w.inFlight) }

// read says that a page is going to be read, or has been taken in.
func (w *window) read(begins bool) { w.reading, w.answered = begins, nil }

// add gives a message of the page a place, unless it has been answered for already.
func (w *window) add(p relay.Position) {
	if byAck, answered := w.answered[p]; answered {
		w.acked = w.acked || byAck
		return
	}
	if w.inFlight == nil {
		w.inFlight = map[relay.Position]struct{}{}
	}
	w.inFlight[p] = struct{}{}
}

// free tells whether the message had a place. byAck: its recipient answered.
func (w *window) free(p relay.Position, byAck bool) bool {
	if _, in := w.inFlight[p]; !in {
		if w.reading {
			if w.answered == nil {
				w.answered = map[relay.Position]bool{}
			}
			w.answered[p] = w.answered[p] || byAck
		}
		return false
	}
	delete(w.inFlight, p)
	w.acked = w.acked || byAck
	return true
}
