package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"
)

const pageSize = 100

// history measures pages of a full mailbox, one after the other by their cursors.
func (b *bench) history(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	reader := s.mechas[len(s.mechas)-1]
	if err := b.fill(ctx, s, reader, b.Messages); err != nil {
		return err
	}
	for _, n := range []int{1, 8} {
		rounds, err := b.rounds(func() (*sample, error) {
			l := b.to(ctx, s)
			defer l.close()
			conns, err := l.dials(n)
			if err != nil {
				return nil, err
			}
			workers := make([]step, n)
			for i, c := range conns {
				workers[i] = pager(c, reader)
			}
			return b.run(ctx, l, fmt.Sprintf("history, %d connections", n), workers)
		})
		if err != nil {
			return err
		}
		b.add(figure("history", fmt.Sprintf("pages of %d", pageSize), n, "records", rounds))
	}
	return nil
}

// pager walks through a mailbox, over and over.
func pager(c *conn, m *mecha) step {
	base := fmt.Sprintf("/api/v1/mecha/%s/messages?limit=%d", m.address, pageSize)
	path := base
	return func() (did, error) {
		page, err := c.do(m, "GET", path, nil, http.StatusOK)
		if err != nil {
			return did{}, err
		}
		path = base
		end := page[max(len(page)-200, 0):] // the cursor stands behind the messages
		if next := textField(end, "next_cursor"); next != nil && bytes.Contains(end, []byte(`"has_more":true`)) {
			path += "&since_message_id=" + string(next)
		}
		return did{units: records(page)}, nil
	}
}

// records is how many messages a page has.
func records(page []byte) int { return bytes.Count(page, []byte(`"message_id":`)) }

// sync measures how fast a client catches up with a full mailbox over its
// WebSocket: first with what is pending, until every acknowledgement is on disk;
// then once more after the first message, when all have been acknowledged before.
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
		done, err := b.catchUp(ctx, s, m, "sync_limit=1000&events=acks", -1) // other stages may have sent it some
		if err != nil {
			return err
		}
		if err := b.fill(ctx, s, m, b.Messages); err != nil {
			return err
		}
		if done, err = b.catchUp(ctx, s, m, "sync_limit=1000&events=acks", b.Messages); err != nil {
			return err
		}
		pending = append(pending, done.sample)
		if done, err = b.catchUp(ctx, s, m, "sync_limit=1000&events=acks&since_message_id="+done.first, b.Messages-1); err != nil {
			return err
		}
		again = append(again, done.sample)
	}
	b.add(figure("sync", "pending, each acked", 1, "messages", pending), figure("sync", "after a cursor, acked before", 1, "messages", again))
	return nil
}

type caughtUp struct {
	*sample
	first string
}

// catchUp reads n messages, acknowledges each, and waits until all of that is
// on disk. n < 0: as many as there are.
func (b *bench) catchUp(ctx context.Context, s *server, m *mecha, query string, n int) (out caughtUp, err error) {
	l := b.to(ctx, s)
	defer l.close()
	b.Progress("sync", 0)
	before, began := readCPU(s.pid), time.Now()
	if n < 0 {
		query += ",sync"
	}
	in, err := l.listen(m, query)
	if err != nil {
		return out, err
	}
	var later [][]byte // acks, to be sent in one write once all that has arrived has been read
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
	out.sample = &sample{took: took, units: n, ops: n, cpu: between(before, readCPU(s.pid), took), memory: residentBytes(s.pid)}
	return out, nil
}
