package ws

import (
	"context"
	"errors"
	"sync"
	"time"

	"relay/db/relay"
)

const (
	pageMessages = 64        // messages that are read from the store at once
	pageBytes    = 256 << 10 // bytes of payload that are read at once, unless one message has more
	flushAt      = 64 << 10  // bytes of frames that are written at once
)

// A batch is frames that are written together, and the messages among them.
type batch struct {
	frames   []byte
	messages []relay.Position
}

var batches = sync.Pool{New: func() any { return &batch{frames: make([]byte, 0, 8<<10)} }}

const keepBuffer = 512 << 10 // a batch with a larger buffer is not reused, so that it does not keep the memory

// push is the goroutine that sends. It ends when there is nothing more to send,
// and wakePush starts it again. A connection never has more than one.
//
// A message to many sockets starts as many of these at once, each on a new stack of 2 KB. Code that needs much
// of it is in functions that have returned when the frames are written, because a stack that grows costs more
// than all the rest before the system call.
func (c *Conn) push() {
	b := batches.Get().(*batch)
	for {
		o, read, more := c.take()
		if !more {
			break
		}
		err := c.send(o, read, b)
		o.release()
		if err != nil && err != errClosing {
			c.failed(err)
		}
	}
	if cap(b.frames) <= keepBuffer {
		batches.Put(b)
	}
}

// failed ends the connection after an error of send.
func (c *Conn) failed(err error) {
	if errors.Is(err, errConnection) {
		c.kill()
		return
	}
	c.hub.config.Logger.Error("cannot read the messages for a connection", "mecha", c.key.Mecha.Address, "error", err)
	c.close(statusTryAgainLater, "the relay failed")
}

// errClosing ends a send early: our close frame waits, and goes before further messages.
var errClosing = errors.New("closing")

// errConnection marks a write that failed: the peer has gone, or reads nothing.
var errConnection = errors.New("connection lost")

// toRead is what push must read from the store.
type toRead struct{ receipts, returns, messages bool }

// take takes the queue, and returns what to read from the store after it. If there is
// nothing to do, more is false and push must end.
func (c *Conn) take() (o *sendQueue, read toRead, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o = c.out.queue
	if !c.ending.closing {
		read = toRead{receipts: c.out.receiptsAfter != 0, returns: c.out.returns, messages: c.out.lagging && !c.out.stalled}
	}
	if o == nil && read == (toRead{}) || c.ending.closeSent || c.ending.dead {
		c.out.running = false
		return nil, toRead{}, false
	}
	c.out.queue = nil
	if read.returns {
		c.out.returns = false
	}
	c.takeNews()
	return o, read, true
}

func (c *Conn) send(o *sendQueue, read toRead, b *batch) error {
	b.frames, b.messages = b.frames[:0], b.messages[:0]
	defer func() { c.stream.newsSince = 0 }()
	if o != nil {
		if err := c.sendQueued(o, b); err != nil || o.closing != nil {
			return err
		}
	}
	if read.receipts {
		if err := c.sendReceipts(b); err != nil {
			return err
		}
	}
	if read.returns {
		if err := c.sendReturned(b); err != nil {
			return err
		}
	}
	if read.messages {
		return c.sendPage(b)
	}
	return nil
}

const pageReturned = 8 // messages that came back, which are read from the store at once

// sendReturned sends one page of the messages that came back after a deferral. They are before the
// stream's cursor, and take no slot in the sync window.
func (c *Conn) sendReturned(b *batch) error {
	page, err := c.hub.config.Store.Returned(context.Background(),
		relay.ReturnQuery{Mecha: c.mechaID(), After: c.stream.returned, Before: c.stream.before, Limit: pageReturned})
	if err != nil {
		return err
	}
	c.stream.returned = page.Upto
	if page.End {
		c.stream.before = relay.MaxPosition
	} else {
		c.mu.Lock()
		c.out.returns = true
		c.mu.Unlock()
	}
	for _, m := range page.Messages {
		b.frames = appendMessage(b.frames, m)
		b.messages = append(b.messages, m.Position)
		c.stream.sent++
	}
	return c.write(b)
}

func (c *Conn) sendQueued(o *sendQueue, b *batch) error {
	err := c.appendQueued(o, b)
	if err == nil {
		err = c.write(b)
	}
	if o.closing != nil {
		c.closeWritten()
	}
	c.answersDone(len(o.answers))
	return err
}

// appendQueued appends the frames of a queue to the batch.
//
//go:noinline
func (c *Conn) appendQueued(o *sendQueue, b *batch) error {
	b.frames = appendReceipts(o.appendFrames(b.frames), c.newReceipts(o.receipts))
	if b.frames = append(b.frames, o.closing...); o.closing != nil {
		return nil
	}
	for _, m := range o.messages {
		if m.Position > c.stream.cursor { // else push has found it in the store already
			if err := c.add(b, m.Message, m.shared); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds a message to the batch, moves the cursor past it, and writes the
// batch if it is large. Errors: those of write, and errClosing.
func (c *Conn) add(b *batch, m *relay.Message, shared *sharedFrame) error {
	if shared != nil {
		b.frames = append(b.frames, shared.of(m)...)
	} else {
		b.frames = appendMessage(b.frames, m)
	}
	b.messages = append(b.messages, m.Position)
	c.stream.cursor = m.Position
	c.stream.sent++
	if len(b.frames) < flushAt {
		return nil
	}
	if err := c.write(b); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending.closing {
		return errClosing
	}
	return nil
}

// sendPage sends one page from the store. The hub queues new messages from
// before the page is read, so that none is missed in between.
func (c *Conn) sendPage(b *batch) error {
	c.mu.Lock()
	c.dropMessages()
	c.out.lagging = false
	c.takeNews()
	q := relay.StreamQuery{Mecha: c.mechaID(), After: c.stream.cursor, Limit: pageMessages, MaxBytes: pageBytes}
	if w := c.out.window; w != nil {
		q.PendingOnly = c.session.since == ""
		q.Limit = min(q.Limit, w.room())
		if q.Limit <= 0 {
			q.Limit, q.NoPayload = 1, true // only to learn whether there is more
		}
		w.pageStarted()
	}
	c.mu.Unlock()
	page, err := c.hub.config.Store.Stream(context.Background(), q)
	if err != nil {
		return err
	}
	if q.NoPayload && len(page.Messages) > 0 {
		c.stall()
		return nil
	}
	caughtUp := c.takePage(page)
	for _, m := range page.Messages {
		if err := c.add(b, m, nil); err != nil {
			return err
		}
	}
	c.stream.cursor = page.Upto
	if caughtUp && c.session.sync {
		b.frames = append(b.frames, syncFrame("end", c.stream.sent)...)
	}
	return c.write(b)
}

// stall has push wait for a free place in the window, unless there is one by now.
func (c *Conn) stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fallBehind()
	c.out.window.pageTaken()
	if c.out.stalled = c.out.window.room() <= 0; c.out.stalled {
		c.out.window.fullSince = time.Now()
	}
}

// goOn ends a stall. c.mu is held.
func (c *Conn) resume() {
	c.out.stalled = false
	c.wakePush()
}

// takePage returns the messages of a page their places in the window. It runs
// before the page is written, for acknowledgements may come before the write
// returns. It reports whether the stream has caught up now, which it does once.
func (c *Conn) takePage(page relay.StreamPage) (caughtUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !page.End {
		c.fallBehind()
	}
	w := c.out.window
	if w == nil {
		return false
	}
	if page.End {
		c.out.window = nil // the stream is live from now on
		return true
	}
	for _, m := range page.Messages {
		w.add(m)
	}
	w.pageTaken()
	return false
}

// write sends a batch and empties it. It writes in pieces with a deadline each,
// so that a peer that reads slowly keeps its connection, while one that reads
// nothing loses it. Messages that the network has taken are noted as pushed.
func (c *Conn) write(b *batch) error {
	began := c.hub.config.Now()
	for rest := b.frames; len(rest) > 0; {
		n := min(len(rest), flushAt)
		if err := c.net.SetWriteDeadline(time.Now().Add(c.hub.config.WriteTimeout)); err != nil {
			return errConnection
		}
		if _, err := c.net.Write(rest[:n]); err != nil {
			return errConnection
		}
		rest = rest[n:]
	}
	if len(b.messages) > 0 {
		c.hub.config.Store.Pushed(c.key.Number, began, b.messages)
		c.countPushed(len(b.messages))
	}
	b.frames, b.messages = b.frames[:0], b.messages[:0]
	return nil
}
