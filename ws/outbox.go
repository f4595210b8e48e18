package ws

import (
	"sync"

	"relay/db/relay"
)

// outbox is what waits to be sent on a connection. An idle one has none.
// Conn.mu guards it until push has taken it.
type outbox struct {
	closing      []byte   // a close frame; nil: none
	answers      [][]byte // frames that were owed
	receiptBytes int
	receipts     [][]byte  // frames
	pings        [2][]byte // a ping to send, pongs to send
	queue        []offered // new messages, while not lagging
	bytes        int       // of payload in the queue
}

// offered is a message that the hub has handed over.
type offered struct {
	*relay.Message
	shared *sharedFrame // nil: it was offered to no other connection
}

var outboxes = sync.Pool{New: func() any { return &outbox{} }}

const keepFrames = maxOwed // longer lists are left to the collector

// outbox gives the connection's outbox, a new one if there was none. c.mu is
// held, and the caller puts something into it.
func (c *Conn) outbox() *outbox {
	if c.out == nil {
		c.out = outboxes.Get().(*outbox)
	}
	return c.out
}

// dropQueue forgets the messages that wait. c.mu is held.
func (c *Conn) dropQueue() {
	if c.out != nil {
		clear(c.out.queue)
		c.out.queue, c.out.bytes = c.out.queue[:0], 0
	}
}

// appendFrames appends all but the messages, in the order in which they go out.
func (t *outbox) appendFrames(b []byte) []byte {
	for _, f := range t.pings {
		b = append(b, f...)
	}
	for _, f := range t.answers {
		b = append(b, f...)
	}
	for _, f := range t.receipts {
		b = append(b, f...)
	}
	return append(b, t.closing...)
}

// release gives the outbox, whose owner has done with it, to others. It is fine with nil.
func (t *outbox) release() {
	if t == nil || cap(t.answers) > keepFrames || cap(t.receipts) > keepFrames {
		return
	}
	clear(t.answers)
	clear(t.receipts)
	clear(t.queue)
	*t = outbox{answers: t.answers[:0], receipts: t.receipts[:0], queue: t.queue[:0]}
	outboxes.Put(t)
}
