package ws

import (
	"context"

	"relay/db/relay"
)

// This file brings a sender the receipts of its messages (PROTOCOL §4, Frames). They are
// queued as the hub tells of them. If they come faster than the client reads, the
// connection drops them and reads them from the store.

// queuedReceipt is a receipt that waits to be written.
type queuedReceipt struct {
	frame []byte
	at    relay.Position // of the receipt
	word  progressWord
}

// progressWord is the message and the state that a receipt of progress is about. A later
// receipt with the same progressWord takes the place of an earlier one. Receipts of
// other kinds have the zero value, and each of them is sent.
type progressWord struct {
	message relay.Position
	state   relay.State
}

const receiptOverhead = 64 // bytes that a queued receipt takes besides its frame

func newQueuedReceipt(c *relay.Change, frame []byte) queuedReceipt {
	q := queuedReceipt{frame: frame, at: c.Receipt}
	if relay.ReportsProgress(c.Status) {
		q.word = progressWord{c.Position, c.State}
	}
	return q
}

// sentChanged queues a receipt, if the client asked for receipts.
func (c *Conn) sentChanged(r *receipt) {
	if !c.session.receipts {
		return
	}
	frame := r.frame()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.receiptsAfter != 0 || c.ending.closeSent {
		return // push will find it in the store, or will send nothing more
	}
	o := c.sendQueue()
	o.receipts = append(o.receipts, newQueuedReceipt(r.change, frame))
	if o.receiptBytes += len(frame) + receiptOverhead; o.receiptBytes > maxReceipts {
		c.out.receiptsAfter = o.receipts[0].at - 1
		o.dropReceipts()
	}
	c.wakePush()
}

// dropReceipts drops the queued receipts. Conn.mu is held.
func (o *sendQueue) dropReceipts() {
	clear(o.receipts)
	o.receipts, o.receiptBytes = o.receipts[:0], 0
}

// appendReceipts appends the frames of receipts, in commit order. Of several about the
// progress of one message, the client gets the latest.
func appendReceipts(b []byte, list []queuedReceipt) []byte {
	var latest map[progressWord]int
	for i, q := range list {
		if q.word != (progressWord{}) && len(list) > 1 {
			if latest == nil {
				latest = map[progressWord]int{}
			}
			latest[q.word] = i
		}
	}
	for i, q := range list {
		if at, found := latest[q.word]; !found || at == i {
			b = append(b, q.frame...)
		}
	}
	return b
}

const pageReceipts = 256 // receipts that are looked at in the store at once

// sendReceipts sends one page of receipts from the store. The hub queues new ones from
// before the page is read, so that none is missed in between.
func (c *Conn) sendReceipts(b *batch) error {
	c.mu.Lock()
	after := max(c.out.receiptsAfter, c.stream.receipts)
	c.out.receiptsAfter = 0
	c.mu.Unlock()
	page, err := c.hub.config.Store.Receipts(context.Background(),
		relay.ReceiptQuery{Sender: c.mechaID(), After: after, Limit: pageReceipts})
	if err != nil {
		return err
	}
	if !page.End {
		c.mu.Lock()
		c.out.receiptsAfter = page.Upto
		if o := c.out.queue; o != nil {
			o.dropReceipts()
		}
		c.mu.Unlock()
	}
	c.stream.receipts = page.Upto
	list := make([]queuedReceipt, len(page.Changes))
	for i := range page.Changes {
		list[i] = newQueuedReceipt(&page.Changes[i], receiptFrame(&page.Changes[i]))
	}
	b.frames = appendReceipts(b.frames, list)
	return c.write(b)
}

// newReceipts leaves out the receipts that push has already found in the store.
func (c *Conn) newReceipts(list []queuedReceipt) []queuedReceipt {
	for len(list) > 0 && list[0].at <= c.stream.receipts {
		list = list[1:]
	}
	return list
}
