package bench

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
)

// send measures how many messages a second are accepted: on disk when the 201
// comes, and, on a second server that keeps nothing, all but that.
func (b *bench) send(ctx context.Context) error {
	durable, err := b.durable(ctx)
	if err != nil {
		return err
	}
	var hollow *server
	if b.URL == "" {
		if hollow, err = b.startServer(ctx, filepath.Join(b.dir, "none.db"), nil, "--store=none"); err != nil {
			return err
		}
		defer hollow.stop()
	}
	for _, n := range b.Connections {
		var kept, lost []*sample
		for round := range b.Repeats {
			what := fmt.Sprintf("send, %d connections, round %d/%d", n, round+1, b.Repeats)
			s, err := b.sends(ctx, durable, what+", durable", n)
			if err != nil {
				return err
			}
			kept = append(kept, s)
			if hollow == nil {
				continue
			}
			if s, err = b.sends(ctx, hollow, what+", without the store", n); err != nil {
				return err
			}
			lost = append(lost, s)
		}
		d := figure("send", "durable", n, "messages", kept)
		b.add(d)
		if hollow != nil {
			h := figure("send", "http_only", n, "messages", lost)
			b.add(h, ratioOf("send", n, kept, lost, d, h))
		}
	}
	return nil
}

// sends is one round: every connection sends on behalf of Mechas of its own.
func (b *bench) sends(ctx context.Context, s *server, what string, n int) (*sample, error) {
	l := b.to(ctx, s)
	defer l.close()
	conns, err := l.dials(n)
	if err != nil {
		return nil, err
	}
	workers := make([]step, n)
	for i, c := range conns {
		workers[i] = b.sender(c, s.mechas, i, n)
	}
	return b.run(ctx, l, what, workers)
}

// sender sends from every n-th Mecha to one after the other.
func (b *bench) sender(c *conn, mechas []*mecha, i, n int) step {
	var body []byte
	payload := b.payload()
	from, to := i, i
	return func() (did, error) {
		if from += n; from >= len(mechas) {
			from = i % len(mechas)
		}
		to = (to + 7) % len(mechas)
		body = appendSend(body[:0], mechas[to], payload)
		_, err := c.do(mechas[from], "POST", sendPath, body, http.StatusCreated)
		return did{units: 1}, err
	}
}

func appendSend(b []byte, to *mecha, payload []byte) []byte {
	b = append(append(append(b, `{"to":"`...), to.address...), `","payload":`...)
	return append(append(b, payload...), '}')
}

// payload is a JSON object of as many bytes as were asked for.
func (b *bench) payload() []byte {
	const frame = `{"text":""}`
	return []byte(`{"text":"` + strings.Repeat("x", max(b.Payload-len(frame), 0)) + `"}`)
}

// fill puts messages into a mailbox, from many connections.
func (b *bench) fill(ctx context.Context, s *server, to *mecha, n int) error {
	const connections = 64
	b.Progress(fmt.Sprintf("filling a mailbox with %d messages", n), 0)
	l := b.to(ctx, s)
	defer l.close()
	body := appendSend(nil, to, b.payload())
	return inParallel(ctx, connections, func(i int) error {
		c, err := l.dial()
		if err != nil {
			return err
		}
		for k := i; k < n && err == nil; k += connections {
			_, err = c.do(s.mechas[k%len(s.mechas)], "POST", sendPath, body, http.StatusCreated)
		}
		return err
	})
}
