package bench

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
)

// send measures how many messages a second are accepted. On the first server they
// are on disk when the 201 comes. The second server keeps nothing, and otherwise
// does the same.
func (b *bench) send(ctx context.Context) error {
	durable, err := b.durable(ctx)
	if err != nil {
		return err
	}
	var storeless *server
	if b.URL == "" {
		if storeless, err = b.startForgetful(ctx, filepath.Join(b.dir, "none.db")); err != nil {
			return err
		}
		defer storeless.stop()
	}
	for _, n := range b.Connections {
		var withStore, without []*sample
		for round := range b.Repeats {
			what := fmt.Sprintf("send, %d connections, round %d/%d", n, round+1, b.Repeats)
			s, err := b.sendRound(ctx, durable, what+", durable", n)
			if err != nil {
				return err
			}
			withStore = append(withStore, s)
			if storeless == nil {
				continue
			}
			if s, err = b.sendRound(ctx, storeless, what+", without the store", n); err != nil {
				return err
			}
			without = append(without, s)
		}
		d := loadRow("send", "durable", n, "messages", withStore)
		b.add(d)
		if storeless != nil {
			h := loadRow("send", "http_only", n, "messages", without)
			b.add(h, ratioRow("send", n, withStore, without, d, h))
		}
	}
	return nil
}

// sendRound is one round, in which n connections send. Each sends for Mechas of
// its own.
func (b *bench) sendRound(ctx context.Context, s *server, what string, n int) (*sample, error) {
	return b.runOn(ctx, s, what, n, func(i int, c *conn) operation { return b.sender(c, s.mechas, i, n) })
}

// sender sends for every n-th Mecha, beginning with number i, to all Mechas in turn.
func (b *bench) sender(c *conn, mechas []*mecha, i, n int) operation {
	var body []byte
	payload := b.payload()
	from, to := i, i
	return func() (done, error) {
		if from += n; from >= len(mechas) {
			from = i % len(mechas)
		}
		to = (to + 7) % len(mechas)
		body = appendSend(body[:0], mechas[to], payload)
		_, err := c.do(mechas[from], "POST", sendPath, body, http.StatusCreated)
		return done{units: 1}, err
	}
}

func appendSend(b []byte, to *mecha, payload []byte) []byte {
	b = append(append(append(b, `{"to":"`...), to.address...), `","payload":`...)
	return append(append(b, payload...), '}')
}

// payload returns a JSON object of Config.Payload bytes.
func (b *bench) payload() []byte {
	const frame = `{"text":""}`
	return []byte(`{"text":"` + strings.Repeat("x", max(b.Payload-len(frame), 0)) + `"}`)
}

// fill sends n messages to a Mecha, over many connections.
func (b *bench) fill(ctx context.Context, s *server, to *mecha, n int) error {
	const connections = 64
	b.Progress(fmt.Sprintf("filling a mailbox with %d messages", n), 0)
	l := b.links(ctx, s)
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
