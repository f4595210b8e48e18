package ws

import (
	"time"

	"relay/db"
)

// window is the messages in flight while a connection has not caught up: sent
// on it and not acknowledged since (PROTOCOL §4). Conn.mu guards it.
type window struct {
	size     int
	inFlight map[db.Position]struct{}
	acked    bool      // this connection has seen an acknowledgement
	full     time.Time // since when there is no room
}

func (w *window) room() int { return w.size - len(w.inFlight) }

func (w *window) add(p db.Position) {
	if w.inFlight == nil {
		w.inFlight = map[db.Position]struct{}{}
	}
	w.inFlight[p] = struct{}{}
	if w.room() <= 0 {
		w.full = time.Now()
	}
}

// free tells whether the message had a place. byAck: its recipient answered.
func (w *window) free(p db.Position, byAck bool) bool {
	if _, in := w.inFlight[p]; !in {
		return false
	}
	delete(w.inFlight, p)
	w.acked = w.acked || byAck
	return true
}
