package ws

import (
	"sync/atomic"
	"time"

	"relay/db/measure"
	"relay/db/relay"
)

// Measures counts what a hub has done since it was made. Only the hub writes; anybody
// may read, at any time.
type Measures struct {
	Pushed  atomic.Int64    // messages that were written to sockets
	Refused *measure.Counts // error frames, by their code
	// Lag is, for each write to a socket that has caught up, the time since the commit of
	// the oldest message in it, or of one that was left out because the socket was slow.
	Lag *measure.Histogram
	// FrameWait is how long sockets were not read because the frames of their key came
	// faster than Config.FrameRate.
	FrameWait *measure.Histogram
}

func newMeasures() *Measures {
	return &Measures{Refused: measure.NewCounts(relay.CodeNames()...), Lag: measure.NewDurations(),
		FrameWait: measure.NewDurations()}
}

// Measures returns the counts of this hub. Safe for concurrent use.
func (h *Hub) Measures() *Measures { return h.measures }

// Listeners returns how many sockets and long-polls are open, and of how many Mechas. Safe for
// concurrent use.
func (h *Hub) Listeners() (sockets, longPolls, mechas int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.count - h.watches, h.watches, len(h.listeners)
}

// Open returns how many sockets and long-polls of a Mecha are open. Safe for concurrent use.
func (h *Hub) Open(id relay.MechaNumber) (sockets, longPolls int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, l := range h.listeners[id] {
		if _, ok := l.(*Conn); ok {
			sockets++
		} else {
			longPolls++
		}
	}
	return sockets, longPolls
}

// Full tells of the sockets of a Mecha whose sync window is full: since when the oldest of them has been open,
// and how many messages they were sent that are not acknowledged. The time is zero if no socket is full. Safe
// for concurrent use.
func (h *Hub) Full(id relay.MechaNumber) (open time.Time, sent int) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, l := range h.listeners[id] {
		c, ok := l.(*Conn)
		if !ok {
			continue
		}
		c.mu.Lock()
		full := c.out.stalled && c.out.window != nil
		if full {
			sent += len(c.out.window.inFlight)
		}
		c.mu.Unlock()
		if began := h.began.Add(time.Duration(c.began)); full && (open.IsZero() || began.Before(open)) {
			open = began
		}
	}
	return open, sent
}

// takeNews has push answer for the new messages that wait. c.mu is held.
func (c *Conn) takeNews() {
	if c.stream.newsSince == 0 {
		c.stream.newsSince = c.out.newsSince
	}
	c.out.newsSince = 0
}

// countPushed counts n messages that push has just written.
func (c *Conn) countPushed(n int) {
	c.hub.measures.Pushed.Add(int64(n))
	if since := c.stream.newsSince; since != 0 {
		c.stream.newsSince = 0
		c.hub.measures.Lag.Observe(time.Duration(c.hub.elapsed() - since))
	}
}
