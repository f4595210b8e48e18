package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"relay/db/relay"
)

const (
	pageMessages = 64        // read from the store at once
	pageBytes    = 256 << 10 // … of payload; one message may be more
	flushAt      = 64 << 10  // bytes of frames in one write
)

// A batch is frames that are written together, and the messages among them.
type batch struct {
	frames   []byte
	messages []relay.Position
}

var batches = sync.Pool{New: func() any { return &batch{frames: make([]byte, 0, 8<<10)} }}

const keepBuffer = 512 << 10 // a larger one is left to the collector

// push sends what there is to send, then ends; wake starts it again. There is
// never more than one of a connection.
func (c *Conn) push() {
	b := batches.Get().(*batch)
	defer func() {
		if cap(b.frames) <= keepBuffer {
			batches.Put(b)
		}
	}()
	for {
		t, readOn, more := c.take()
		if !more {
			return
		}
		err := c.carryOut(t, readOn, b)
		t.release()
		if err != nil {
			if !errors.Is(err, errConnection) {
				c.hub.Logger.Error("cannot read on for a connection", "mecha", c.key.Mecha.Address, "error", err)
				c.close(statusTryAgainLater, "the relay failed")
				continue
			}
			c.kill()
		}
	}
}

// errConnection marks the failure of a write: the peer has gone, or reads nothing.
var errConnection = errors.New("connection lost")

// take empties the outbox, and tells whether to read on from the store. When
// there is nothing to do, push is over: more is false.
func (c *Conn) take() (t *outbox, readOn, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, readOn = c.out, c.lagging && !c.stalled && !c.closing
	if t == nil && !readOn || c.closeSent || c.dead {
		c.running = false
		return nil, false, false
	}
	c.out = nil
	return t, readOn, true
}

func (c *Conn) carryOut(t *outbox, readOn bool, b *batch) error {
	b.frames, b.messages = b.frames[:0], b.messages[:0]
	if t != nil {
		if err := c.empty(t, b); err != nil || t.closing != nil {
			return err
		}
	}
	if readOn {
		return c.readOn(b)
	}
	return nil
}

// empty writes what the outbox holds.
func (c *Conn) empty(t *outbox, b *batch) error {
	b.frames = t.appendFrames(b.frames)
	if t.closing != nil {
		err := c.write(b)
		c.sentClose()
		return err
	}
	for _, m := range t.queue {
		if m.Position > c.cursor { // else push has found it in the store already
			if err := c.appendMessage(b, m.Message, m.shared); err != nil {
				return err
			}
		}
	}
	err := c.write(b)
	c.settle(len(t.answers))
	return err
}

// appendMessage appends a message's frame, writes what has come together if
// that is much, and moves the cursor.
func (c *Conn) appendMessage(b *batch, m *relay.Message, shared *sharedFrame) error {
	if shared != nil {
		b.frames = append(b.frames, shared.of(m)...)
	} else {
		b.frames = appendMessage(b.frames, m)
	}
	b.messages = append(b.messages, m.Position)
	c.cursor = m.Position
	c.sent++
	if len(b.frames) >= flushAt {
		return c.write(b)
	}
	return nil
}

// readOn sends one page from the store. The hub's new messages queue up from
// before the page is read, so that nothing falls between.
func (c *Conn) readOn(b *batch) error {
	c.mu.Lock()
	c.dropQueue()
	c.lagging = false
	q := relay.StreamQuery{Mecha: c.key.Mecha.ID, After: c.cursor, Limit: pageMessages, MaxBytes: pageBytes}
	if c.window != nil {
		q.PendingOnly = c.session.since == ""
		q.Limit = min(q.Limit, c.window.room())
		if q.Limit <= 0 {
			q.Limit, q.NoPayload = 1, true // only see whether there is more
		}
		c.window.read(true)
	}
	c.mu.Unlock()
	page, err := c.hub.Inbox.Stream(context.Background(), q)
	if err != nil {
		return err
	}
	if q.NoPayload && len(page.Messages) > 0 {
		c.stall()
		return nil
	}
	caughtUp := c.account(page)
	for _, m := range page.Messages {
		if err := c.appendMessage(b, m, nil); err != nil {
			return err
		}
	}
	c.cursor = page.Upto
	if caughtUp && c.session.sync {
		b.frames = append(b.frames, syncFrame("end", c.sent)...)
	}
	return c.write(b)
}

// stall waits for room in the window, unless some has come up meanwhile.
func (c *Conn) stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fallBehind()
	c.window.read(false)
	if c.stalled = c.window.room() <= 0; c.stalled {
		c.window.full = time.Now()
	}
}

// account notes a page before it is written, for its acknowledgements may be
// faster than the write returns. It tells whether the stream has just caught up
// for the first time.
func (c *Conn) account(page relay.StreamPage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !page.End {
		c.fallBehind()
	}
	if c.window == nil {
		return false
	}
	if page.End {
		c.window = nil // live, for good
		return true
	}
	for _, m := range page.Messages {
		c.window.add(m.Position)
		c.window.last = m.ID
	}
	c.window.read(false)
	return false
}

// write sends a batch and empties it. It goes out in pieces with a deadline
// each: a reader that is slow but reads keeps its connection, one that does not
// is cut off. What the network has taken is noted as pushed.
func (c *Conn) write(b *batch) error {
	began := c.hub.Now()
	for rest := b.frames; len(rest) > 0; {
		n := min(len(rest), flushAt)
		if err := c.net.SetWriteDeadline(time.Now().Add(c.hub.WriteTimeout)); err != nil {
			return errConnection
		}
		if _, err := c.net.Write(rest[:n]); err != nil {
			return errConnection
		}
		rest = rest[n:]
	}
	if len(b.messages) > 0 {
		c.hub.Inbox.Pushed(c.key, began, b.messages)
	}
	b.frames, b.messages = b.frames[:0], b.messages[:0]
	return nil
}
