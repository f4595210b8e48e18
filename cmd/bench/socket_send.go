package bench

import (
	"context"
	"fmt"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// socket measures how many messages a second are accepted over sockets, compared with the same
// number of connections that send each message in a request. A connection has 1 or 64 messages in
// flight.
func (b *bench) socket(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	ways := []int{0, 1, 64} // messages under way on a socket; 0: requests
	for _, n := range []int{1, 8} {
		if n >= len(s.mechas) {
			continue
		}
		rounds, err := alternate(b, len(ways), func(i int, round string) (*sample, error) {
			return b.socketRound(ctx, s, fmt.Sprintf("%s, %d connections, %s", wayName(ways[i]), n, round), n, ways[i])
		})
		if err != nil {
			return err
		}
		rows := make([]Row, len(ways))
		for i, window := range ways {
			rows[i] = loadRow("socket", wayName(window), n, "messages", rounds[i])
			if window > 1 {
				rows[i].ofMessages(rounds[i])
			}
		}
		b.add(rows...)
		for i := 1; i < len(ways); i++ {
			b.add(ratioRow("socket", n, rounds[i], rounds[0], rows[i], rows[0]))
		}
	}
	return nil
}

// ofMessages makes the figures those of a message, where an operation has several.
func (r *Row) ofMessages(rounds []*sample) {
	l := latencyRow(r.Stage, r.Case, r.At, 0, rounds)
	r.P50, r.P90, r.P99, r.P999 = l.P50, l.P90, l.P99, l.P999
	each := func(total func(*sample) float64) float64 {
		return median(rounds, func(s *sample) float64 { return total(s) / float64(max(s.units, 1)) })
	}
	r.ServerCPU = each(func(s *sample) float64 { return micros(s.cpu.Server) })
	r.ClientCPU = each(func(s *sample) float64 { return micros(s.cpu.Client) })
	r.Written = each(func(s *sample) float64 { return float64(s.cpu.Written) })
}

func wayName(window int) string {
	if window == 0 {
		return "POST"
	}
	return fmt.Sprintf("socket, %d under way", window)
}

// socketRound is one round, in which n Mechas send to the others, each over a connection
// or a socket of its own.
func (b *bench) socketRound(ctx context.Context, s *server, what string, n, window int) (*sample, error) {
	if window == 0 {
		return b.runOn(ctx, s, what, n, func(i int, c *conn) operation {
			bodies := b.bodies(s.mechas[n:], i)
			return func() (done, error) {
				_, err := c.do(s.mechas[i], "POST", sendPath, bodies(), 201)
				return done{units: 1}, err
			}
		})
	}
	l := b.links(ctx, s)
	defer l.close()
	workers := make([]operation, n)
	for i := range workers {
		in, err := l.listen(s.mechas[i], "sync_limit=0")
		if err != nil {
			return nil, err
		}
		signer, err := client.NewSigner(s.mechas[i].key, "")
		if err != nil {
			return nil, err
		}
		workers[i] = pipeline(in, signer, window, b.bodies(s.mechas[n:], i))
	}
	return b.run(ctx, l, what, workers)
}

// bodies returns messages to the Mechas in turn.
func (b *bench) bodies(to []*mecha, next int) func() []byte {
	var body []byte
	payload := b.payload()
	return func() []byte {
		next = (next + 7) % len(to)
		body = appendSend(body[:0], to[next], payload)
		return body
	}
}

// pipeline keeps a number of messages under way on a socket. An operation sends as many
// as there is room for, and takes the answers that are there, at least one.
func pipeline(s *client.Socket, signer *client.Signer, window int, body func() []byte) operation {
	var frames [][]byte
	var sent []time.Time // when the messages under way were sent
	return func() (done, error) {
		frames = frames[:0]
		for now := time.Now(); len(sent) < window; sent = append(sent, now) {
			frames = append(frames, signer.AppendFrame(nil, "r", body()))
		}
		if err := s.SendText(frames...); err != nil {
			return done{}, err
		}
		out, took := 0, time.Duration(0)
		for out == 0 || s.Buffered() > 0 && len(sent) > 0 {
			frame, err := s.Next()
			if err != nil {
				return done{}, err
			}
			if kind := textField(frame, "type"); string(kind) != "sent" {
				return done{}, &client.Refusal{Code: relay.Code(textField(frame, "code")),
					Detail: string(textField(frame, "message"))}
			}
			took = time.Since(sent[0])
			sent = append(sent[:0], sent[1:]...)
			out++
		}
		return done{units: out, also: [2]time.Duration{took}}, nil
	}
}
