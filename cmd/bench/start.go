package bench

import (
	"context"
	"net/http"
	"time"

	"relay/cmd/bench/proc"
)

// start measures how soon a relay is ready again: after it was stopped, and after
// it was killed, when it must read its log. Before each start messages are sent.
func (b *bench) start(ctx context.Context) error {
	if b.URL != "" {
		return nil // a relay that ran already is not stopped
	}
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	v := newVocabulary()
	if err := b.registerProfiles(ctx, s, v); err != nil {
		return err
	}
	ways := []struct {
		name string
		end  func()
	}{{"stopped", func() { s.stop() }}, {"killed", func() { s.kill() }}}
	all, err := alternate(b, len(ways), func(i int, round string) (*started, error) {
		if _, err := b.bareRound(ctx, s, "start, "+ways[i].name+", "+round, min(64, len(s.mechas))); err != nil {
			return nil, err
		}
		ways[i].end()
		return b.restart(ctx, s, v)
	})
	if err != nil {
		return err
	}
	for i, way := range ways {
		b.add(startRow(way.name+", until ready", all[i], func(s *started) time.Duration { return s.ready }),
			startRow(way.name+", until the first 201", all[i], func(s *started) time.Duration { return s.sent }),
			startRow(way.name+", until a search is answered", all[i], func(s *started) time.Duration { return s.found }))
	}
	return nil
}

// started is how long after exec a relay was ready, answered 201 to a message, and
// answered a search.
type started struct {
	ready, sent, found time.Duration
	memory             int64
}

func startRow(name string, rounds []*started, f func(*started) time.Duration) Row {
	of := func(s *started) float64 { return micros(f(s)) }
	r := Row{Stage: "start", Case: name, Rounds: len(rounds), P50: median(rounds, of), Spread: spread(rounds, of),
		Memory: int64(median(rounds, func(s *started) float64 { return float64(s.memory) }))}
	r.doubtSpread()
	return r
}

// restart starts a server that has ended, sends a message and searches.
func (b *bench) restart(ctx context.Context, s *server, v *vocabulary) (*started, error) {
	began := time.Now()
	if err := b.launch(ctx, s); err != nil {
		return nil, err
	}
	out := &started{ready: time.Since(began)}
	l := b.links(ctx, s)
	defer l.close()
	c, err := l.dial()
	if err != nil {
		return nil, err
	}
	l.deadline(time.Now().Add(patience))
	if _, err := b.sender(c, s.mechas, 0, 1)(); err != nil {
		return nil, err
	}
	out.sent = time.Since(began)
	for { // searches are refused until the index is open
		_, err := c.do(s.mechas[0], "POST", searchPath, v.queries(0)[0], http.StatusOK)
		if err == nil {
			break
		}
		if time.Since(began) > patience || !sleep(time.Now().Add(time.Millisecond), ctx.Done()) {
			return nil, err
		}
	}
	out.found, out.memory = time.Since(began), proc.Resident(s.pid)
	return out, nil
}
