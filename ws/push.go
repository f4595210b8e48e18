package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"relay/db"
)

const (
	pageMessages = 64        // read from the store at once
	pageBytes    = 256 << 10 // … of payload; one message may be more
	flushAt      = 64 << 10  // bytes of frames in one write
)

// A batch is frames that are written together, and the messages among them.
type batch struct {
	frames   []byte
	messages []db.Position
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
		t, more := c.take()
		if !more {
			return
		}
		if err := c.carryOut(t, b); err != nil {
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

// todo is what push found to do.
type todo struct {
	closing  []byte
	control  [2][]byte
	answers  [][]byte
	receipts [][]byte
	queue    []*db.Message
	readOn   bool
}

// take empties the outbox. When there is nothing, push is over.
func (c *Conn) take() (todo, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := todo{closing: c.closing, control: c.pings, answers: c.answers, receipts: c.receipts, queue: c.queue,
		readOn: c.lagging && !c.stalled && c.closing == nil}
	c.receiptBytes = 0
	c.pings, c.answers, c.receipts, c.queue, c.bytes = [2][]byte{}, nil, nil, nil, 0
	closed := false
	select {
	case <-c.closeSent:
		closed = true
	default:
	}
	idle := t.closing == nil && t.control[0] == nil && t.control[1] == nil &&
		len(t.answers)+len(t.receipts)+len(t.queue) == 0 && !t.readOn
	if idle || closed || c.isDead() {
		c.running = false
		return t, false
	}
	return t, true
}

func (c *Conn) carryOut(t todo, b *batch) error {
	b.frames, b.messages = b.frames[:0], b.messages[:0]
	for _, f := range t.control {
		b.frames = append(b.frames, f...)
	}
	for _, f := range t.answers {
		b.frames = append(b.frames, f...)
	}
	for _, f := range t.receipts {
		b.frames = append(b.frames, f...)
	}
	if t.closing != nil {
		b.frames = append(b.frames, t.closing...)
		err := c.write(b)
		close(c.closeSent)
		_ = c.net.SetReadDeadline(time.Now().Add(drainTimeout)) // the reader drains until then
		return err
	}
	for _, m := range t.queue {
		if m.Position > c.cursor { // else push has found it in the store already
			if err := c.appendMessage(b, m); err != nil {
				return err
			}
		}
	}
	err := c.write(b)
	for range t.answers {
		<-c.slots
	}
	if err == nil && t.readOn {
		err = c.readOn(b)
	}
	return err
}

// appendMessage appends a message's frame, writes what has come together if
// that is much, and moves the cursor.
func (c *Conn) appendMessage(b *batch, m *db.Message) error {
	b.frames, b.messages = appendMessage(b.frames, m), append(b.messages, m.Position)
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
	c.lagging, c.queue, c.bytes = false, nil, 0
	q := db.StreamQuery{Mecha: c.key.Mecha.ID, After: c.cursor, Limit: pageMessages, MaxBytes: pageBytes}
	if c.syncing {
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
		if err := c.appendMessage(b, m); err != nil {
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
func (c *Conn) account(page db.StreamPage) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(page.Messages); n > 0 {
		c.lastID = page.Messages[n-1].ID
	}
	if !page.End {
		c.fallBehind()
	}
	if !c.syncing {
		return false
	}
	if page.End {
		c.syncing, c.window = false, window{} // live, for good
		return true
	}
	for _, m := range page.Messages {
		c.window.add(m.Position)
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
