//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"relay/db/replication"
)

// How Follow looks for entries that it has not heard.
const (
	soon      = 20 * time.Millisecond  // after the log is known to have one
	lag       = 250 * time.Millisecond // at most, while this node's copy of the log lags behind
	seldom    = time.Second            // while there is no sign of one
	heard     = 256                    // messages that may wait to be delivered
	maxHeard  = 64 << 20               // their bytes, and those in the connection
	maxPage   = 512                    // entries that are read at once
	pageBytes = 4 << 20
)

// Follow implements replication.Log. The leader of the stream publishes each entry once to all
// nodes. Entries that do not come in order are read from a copy of the stream: this node's, if
// it has one.
func (n *Node) Follow(ctx context.Context, after uint64, deliver func([]replication.Entry) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := n.ready(ctx); err != nil {
		return err
	}
	live := make(chan *nats.Msg, heard)
	sub, err := n.nats.conn.Subscribe(outSubject, func(m *nats.Msg) {
		select {
		case live <- m:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return err
	}
	defer sub.Unsubscribe()
	if err := sub.SetPendingLimits(-1, maxHeard); err != nil {
		return err
	}
	if err := n.within(ctx, after); err != nil {
		return err
	}
	f := &following{n: n, next: after + 1, deliver: deliver, live: live}
	return f.run(ctx)
}

// within reports whether the log has the entry after which a copy follows, and all later ones. A
// log that ends earlier would stop the copy for good, so within waits until it has been so for a
// while.
func (n *Node) within(ctx context.Context, after uint64) error {
	for since := time.Now(); ; {
		info, err := n.streamInfo(ctx)
		if err != nil {
			return err
		}
		switch {
		case after+1 < info.State.FirstSeq:
			return fmt.Errorf("%w (it begins with entry %d)", replication.ErrLogTruncated, info.State.FirstSeq)
		case after <= info.State.LastSeq:
			n.know(info.State.LastSeq)
			return nil
		case time.Since(since) > n.doubt:
			return fmt.Errorf("%w (it ends with entry %d)", replication.ErrLogBehind, info.State.LastSeq)
		}
		if !pause(ctx, askAgain) {
			return ctx.Err()
		}
	}
}

// following is one call of Follow.
type following struct {
	n       *Node
	next    uint64 // the number of the next entry to deliver
	deliver func([]replication.Entry) error
	live    chan *nats.Msg
	entries []replication.Entry // taken, and not delivered
	missed  int                 // how many reads in a row found no entry
}

func (f *following) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for due := time.Now(); ; {
		var err error
		told := false
		select {
		case m := <-f.live:
			err = f.take(ctx, m)
		case <-f.n.grown:
			told = true
		case <-timer.C:
			err = f.read(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if next := time.Now().Add(f.wait()); !told || next.Before(due) { // frequent news must not delay it
			due = next
			timer.Reset(time.Until(due))
		}
	}
}

// wait returns after how long without news the log is read.
func (f *following) wait() time.Duration {
	if f.next > f.n.known.Load() {
		f.missed = 0
		return seldom
	}
	return min(soon<<min(f.missed, 10), lag)
}

// take delivers the entry of a message, and of the messages that wait after it. Before an
// entry that is out of order, it reads the entries in between.
func (f *following) take(ctx context.Context, m *nats.Msg) error {
	for bytes := 0; ; {
		e, err := entryOf(m)
		switch {
		case err != nil:
			return err
		case e.Number > f.next+uint64(len(f.entries)):
			f.n.know(e.Number)
			if err := f.flush(); err != nil {
				return err
			}
			return f.read(ctx) // the entry as well
		case e.Number == f.next+uint64(len(f.entries)):
			f.entries = append(f.entries, e)
			bytes += len(e.Data)
		}
		if len(f.entries) >= maxPage || bytes >= pageBytes {
			return f.flush()
		}
		select {
		case m = <-f.live:
		default:
			return f.flush()
		}
	}
}

// flush delivers the taken entries.
func (f *following) flush() error {
	if len(f.entries) == 0 {
		return nil
	}
	entries := f.entries
	f.entries = nil // they belong to the receiver
	if err := f.deliver(entries); err != nil {
		return err
	}
	f.next += uint64(len(entries))
	f.missed = 0
	f.n.know(f.next - 1)
	return nil
}

// read delivers the entries from next on that a copy of the stream has, up to a page.
func (f *following) read(ctx context.Context) error {
	f.missed++
	page, err := f.n.readPage(ctx, f.next)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return nil // another try follows; meanwhile the leader may publish the entry
	}
	for i, e := range page {
		if e.Number == f.next+uint64(i) {
			f.entries = append(f.entries, e)
			continue
		}
		if err := f.flush(); err != nil {
			return err
		}
		if err := f.n.within(ctx, f.next-1); err != nil {
			return err
		}
		return fmt.Errorf("a copy of the log gave entry %d in the place of entry %d", e.Number, f.next)
	}
	return f.flush()
}

// readPage asks for the entries from a number on. It returns none if the copy that answers
// does not have the first.
func (n *Node) readPage(ctx context.Context, from uint64) (page []replication.Entry, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestWait)
	defer cancel()
	question, err := json.Marshal(server.JSApiMsgGetRequest{Seq: from, Batch: maxPage, MaxBytes: pageBytes})
	if err != nil {
		return nil, err
	}
	inbox := n.nats.conn.NewInbox()
	sub, err := n.nats.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	if err := n.nats.conn.PublishRequest(fmt.Sprintf(server.JSDirectMsgGetT, streamName), inbox, question); err != nil {
		return nil, err
	}
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return page, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404": // the end of the page; nothing from that number on
			return page, nil
		default:
			return page, fmt.Errorf("the log answered with status %s %s", status, m.Header.Get("Description"))
		}
		e, err := entryOf(m)
		if err != nil {
			return page, err
		}
		page = append(page, e)
	}
}

// entryOf makes an entry of a message of the stream.
func entryOf(m *nats.Msg) (e replication.Entry, err error) {
	number, err := strconv.ParseUint(m.Header.Get(server.JSSequence), 10, 64)
	at, err2 := time.Parse(time.RFC3339Nano, m.Header.Get(server.JSTimeStamp))
	if err = errors.Join(err, err2); err != nil {
		return e, fmt.Errorf("the log gave an entry without its number or its time: %w", err)
	}
	return replication.Entry{Number: number, At: at, Data: m.Data}, nil
}
