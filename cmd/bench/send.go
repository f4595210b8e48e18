package bench

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// send measures how many messages a second are accepted, over n connections. Its cases:
//
//	durable    the messages of agents (talk.go), on disk when the 201 comes
//	lean       the same, at the least server that checks a request as a relay does
//	bare       durable again, with messages of nothing but a recipient and a payload
//
// Their rounds alternate.
func (b *bench) send(ctx context.Context) error {
	durable, err := b.durable(ctx)
	if err != nil {
		return err
	}
	cases := []sendCase{{"durable", durable, b.talkRound}}
	if b.URL == "" {
		lean, err := b.startLean(ctx, durable)
		if err != nil {
			return err
		}
		defer lean.stop()
		cases = append(cases, sendCase{"lean", lean, b.talkRound})
	}
	cases = append(cases, sendCase{"bare", durable, b.bareRound})
	for _, n := range b.Connections {
		rounds, err := alternate(b, len(cases), func(i int, round string) (*sample, error) {
			c := cases[i]
			return c.round(ctx, c.server, fmt.Sprintf("send, %s, %d connections, %s", c.name, n, round), n)
		})
		if err != nil {
			return err
		}
		rows := make([]Row, len(cases))
		for i, c := range cases {
			rows[i] = loadRow("send", c.name, n, "messages", rounds[i])
		}
		b.add(rows...)
		if len(cases) > 2 {
			b.add(ratioRow("send", n, rounds[0], rounds[1], rows[0], rows[1]))
		}
	}
	return nil
}

// A sendCase is a way to send to a server.
type sendCase struct {
	name   string
	server *server
	round  func(ctx context.Context, s *server, what string, n int) (*sample, error)
}

// bareRound is one round, in which n connections send bare messages. Each sends for
// Mechas of its own.
func (b *bench) bareRound(ctx context.Context, s *server, what string, n int) (*sample, error) {
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

// fill sends messages to a Mecha, as many Mechas in turn, over many connections.
func (b *bench) fill(ctx context.Context, s *server, from []*mecha, to *mecha, n int, payload []byte) error {
	const connections = 64
	l := b.links(ctx, s)
	defer l.close()
	body := appendSend(nil, to, payload)
	return inParallel(ctx, connections, func(i int) error {
		c, err := l.dial()
		for k := i; k < n && err == nil; k += connections {
			for { // the senders may have used up the rates of their keys
				_, err = c.do(from[k%len(from)], "POST", sendPath, body, http.StatusCreated)
				if !isRateLimited(err) || !sleep(time.Now().Add(100*time.Millisecond), ctx.Done()) {
					break
				}
			}
		}
		return err
	})
}
