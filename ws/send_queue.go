package ws

import (
	"sync"

	"relay/db/relay"
)

// sendQueue holds the frames and messages that wait to be written to a connection.
// An idle connection has none. Conn.mu guards it until push has taken it.
type sendQueue struct {
	pings        [2][]byte       // a ping, and the pongs that answer the client's pings
	answers      [][]byte        // frames that answer the client's messages
	receipts     []queuedReceipt // none while the connection is behind with receipts
	receiptBytes int             // what the receipts take together
	closing      []byte          // our close frame; nil: none
	messages     []queuedMessage // new messages; none while the connection is lagging
	messageBytes int             // the payloads of these messages together
}

// queuedMessage is a message that the hub has handed over.
type queuedMessage struct {
	*relay.Message
	shared *sharedFrame // nil: no other listener has the message
}

var sendQueues = sync.Pool{New: func() any { return &sendQueue{} }}

const keepFrames = 256 // a queue with longer lists is not reused, so that it does not keep their memory

// sendQueue returns the connection's queue, which it creates if necessary. The caller must hold c.mu and put
// something in.
func (c *Conn) sendQueue() *sendQueue {
	if c.out.queue == nil {
		c.out.queue = sendQueues.Get().(*sendQueue)
	}
	return c.out.queue
}

// appendFrames appends the pings, the pongs and the answers, in the order in which they
// are sent. Receipts, our close frame and messages come after them.
func (o *sendQueue) appendFrames(b []byte) []byte {
	for _, f := range o.pings {
		b = append(b, f...)
	}
	for _, f := range o.answers {
		b = append(b, f...)
	}
	return b
}

// release returns a queue, which may be nil, for use by any connection.
func (o *sendQueue) release() {
	if o == nil || cap(o.answers) > keepFrames || cap(o.receipts) > keepFrames {
		return
	}
	clear(o.answers)
	clear(o.receipts)
	clear(o.messages)
	*o = sendQueue{answers: o.answers[:0], receipts: o.receipts[:0], messages: o.messages[:0]}
	sendQueues.Put(o)
}

// messageReceived queues a message that has just been committed. The hub calls
// it in commit order.
func (c *Conn) messageReceived(m *relay.Message, shared *sharedFrame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.newsSince == 0 && c.out.window == nil {
		c.out.newsSince = c.hub.committed.Load()
	}
	if c.out.lagging || c.ending.closing {
		return // push will find it in the store, or will send no more messages
	}
	o := c.sendQueue()
	if len(o.messages) == maxQueued || o.messageBytes > 0 && o.messageBytes+m.PayloadBytes > maxQueueBytes {
		c.fallBehind()
	} else {
		o.messages = append(o.messages, queuedMessage{m, shared})
		o.messageBytes += m.PayloadBytes
	}
	c.wakePush()
}

// messageSent does nothing: the protocol has no frame for it.
func (c *Conn) messageSent() {}

// fallBehind drops the queued messages and has push read from the store. c.mu is held.
func (c *Conn) fallBehind() {
	c.dropMessages()
	c.out.lagging = true
}

// dropMessages drops the queued messages. c.mu is held.
func (c *Conn) dropMessages() {
	if o := c.out.queue; o != nil {
		clear(o.messages)
		o.messages, o.messageBytes = o.messages[:0], 0
	}
}

// receivedChanged frees the place in the window of a message that the recipient
// has answered for, or that has expired. A message that has come back is sent again.
func (c *Conn) receivedChanged(change *relay.Change) {
	if !change.Freed && !change.Returned {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if change.Returned {
		c.out.returns = true
		c.wakePush()
		return
	}
	if c.out.window != nil && c.out.window.free(change.Position) && c.out.stalled {
		c.resume()
	}
}

// answer queues an answer that is due (handler). After our close frame nothing more
// may be sent (RFC 6455 §5.5.1). Safe for concurrent use.
func (c *Conn) answer(frame []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.closeSent {
		c.out.answersDue--
		c.signal()
		return
	}
	o := c.sendQueue()
	o.answers = append(o.answers, frame)
	c.wakePush()
}

// announce queues a frame among the answers though none was due. c.mu is held.
func (c *Conn) announce(frame []byte) {
	c.out.answersDue++ // push will count it out as an answer
	o := c.sendQueue()
	o.answers = append(o.answers, frame)
}

// answersDone notes that n answers are no longer due: they have been written, or
// were not wanted. Safe for concurrent use.
func (c *Conn) answersDone(n int) {
	if n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.answersDue -= int32(n)
	c.signal()
}
