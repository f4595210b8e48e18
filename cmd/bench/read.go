package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"relay/cmd/bench/proc"
)

const pageSize = 100

// history measures how fast a full mailbox is read, page after page.
func (b *bench) history(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	reader := s.mechas[len(s.mechas)-1]
	if err := b.fillMailbox(ctx, s, reader); err != nil {
		return err
	}
	for _, n := range []int{1, 8} {
		rounds, err := b.rounds(func() (*sample, error) {
			return b.runOn(ctx, s, fmt.Sprintf("history, %d connections", n), n, func(_ int, c *conn) operation {
				return pager(c, reader)
			})
		})
		if err != nil {
			return err
		}
		b.add(loadRow("history", fmt.Sprintf("pages of %d", pageSize), n, "records", rounds))
	}
	return nil
}

// fillMailbox sends a Mecha the messages that are then read.
func (b *bench) fillMailbox(ctx context.Context, s *server, to *mecha) error {
	b.Progress(fmt.Sprintf("filling a mailbox with %d messages", b.Messages), 0)
	return b.fill(ctx, s, s.mechas, to, b.Messages, b.payload())
}

// pager reads all pages of a mailbox, again and again.
func pager(c *conn, m *mecha) operation {
	base := fmt.Sprintf("/api/v1/mecha/%s/messages?limit=%d", m.address, pageSize)
	path := base
	return func() (done, error) {
		page, err := c.do(m, "GET", path, nil, http.StatusOK)
		if err != nil {
			return done{}, err
		}
		path = base
		end := page[max(len(page)-200, 0):] // the cursor comes after the messages
		if next := textField(end, "next_cursor"); next != nil && bytes.Contains(end, []byte(`"has_more":true`)) {
			path += "&since_message_id=" + string(next)
		}
		return done{units: records(page)}, nil
	}
}

// records counts the messages of a page.
func records(page []byte) int { return bytes.Count(page, []byte(`"message_id":`)) }

// sync measures how fast a client reads a full mailbox over its WebSocket: first
// when all messages are pending, until every acknowledgement is on disk; then
// again from a cursor, when all are acknowledged already.
func (b *bench) sync(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	if b.Repeats >= len(s.mechas) {
		return fmt.Errorf("it takes more --mechas than --repeats")
	}
	var pending, again []*sample
	for round := range b.Repeats {
		m := s.mechas[len(s.mechas)-2-round%(len(s.mechas)-1)]
		done, err := b.catchUp(ctx, s, m, "sync_limit=1000&events=acks", -1) // messages of other stages
		if err != nil {
			return err
		}
		if err := b.fillMailbox(ctx, s, m); err != nil {
			return err
		}
		if done, err = b.catchUp(ctx, s, m, "sync_limit=1000&events=acks", b.Messages); err != nil {
			return err
		}
		pending = append(pending, done.sample)
		if done, err = b.catchUp(ctx, s, m, "sync_limit=1000&events=acks&since_message_id="+done.first,
			b.Messages-1); err != nil {
			return err
		}
		again = append(again, done.sample)
	}
	b.add(loadRow("sync", "pending, each acked", 1, "messages", pending),
		loadRow("sync", "after a cursor, acked before", 1, "messages", again))
	return nil
}

type caughtUp struct {
	*sample
	first string // the id of the first message
}

// catchUp reads n messages, acknowledges each, and waits until all
// acknowledgements are on disk. If n is negative, it reads all messages.
func (b *bench) catchUp(ctx context.Context, s *server, m *mecha, query string, n int) (out caughtUp, err error) {
	l := b.links(ctx, s)
	defer l.close()
	b.Progress("sync", 0)
	before, began := proc.Read(s.pid), time.Now()
	if n < 0 {
		query += ",sync"
	}
	in, err := l.listen(m, query)
	if err != nil {
		return out, err
	}
	var later [][]byte // acks to send, in one write, when all frames that have come are read
	for messages, acks, synced := 0, 0, n >= 0; !synced || acks < messages || messages < n; {
		if (messages+acks)%1000 == 0 {
			l.deadline(time.Now().Add(patience))
		}
		if in.Buffered() == 0 && len(later) > 0 {
			if err := in.SendText(later...); err != nil {
				return out, err
			}
			later = later[:0]
		}
		frame, err := in.Next()
		if err != nil {
			return out, err
		}
		switch {
		case bytes.HasPrefix(frame, []byte(`{"type":"message"`)):
			if messages++; messages == 1 {
				out.first = string(textField(frame, "message_id"))
			}
			ack, err := acknowledgement(frame)
			if err != nil {
				return out, err
			}
			later = append(later, ack)
		case bytes.HasPrefix(frame, []byte(`{"type":"ack_ok"`)):
			acks++
		case bytes.Contains(frame, []byte(`"phase":"end"`)):
			synced = true
		case bytes.HasPrefix(frame, []byte(`{"type":"error"`)):
			return out, fmt.Errorf("the relay has sent an error frame: %s", frame)
		}
	}
	took := time.Since(began)
	out.sample = &sample{took: took, units: n, ops: n, cpu: before.Until(proc.Read(s.pid), took),
		memory: proc.Resident(s.pid)}
	return out, nil
}
