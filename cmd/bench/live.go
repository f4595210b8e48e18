package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"relay/cmd/bench/proc"
	"relay/http/client"
)

// push measures how long one message takes to its recipient's socket while the
// relay does nothing else. The relay commits, answers 201, and then pushes. So
// the time after the 201 is the time from the commit to the socket.
func (b *bench) push(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	rounds, err := b.rounds(func() (*sample, error) {
		l := b.links(ctx, s)
		defer l.close()
		from, to := s.mechas[0], s.mechas[1%len(s.mechas)]
		c, err := l.dial()
		if err != nil {
			return nil, err
		}
		in, err := l.listen(to, "sync_limit=0")
		if err != nil {
			return nil, err
		}
		arrivals := make(chan arrival, 1)
		var reader sync.WaitGroup
		defer reader.Wait()
		defer l.close() // which ends the reader
		reader.Go(func() { report(in, arrivals) })
		return b.run(ctx, l, "push", []operation{b.pusher(c, from, to, arrivals)})
	})
	if err != nil {
		return err
	}
	b.add(loadRow("push", "send to socket", 1, "messages", rounds),
		latencyRow("push", "send to 201", 1, 0, rounds), latencyRow("push", "201 to socket", 1, 1, rounds))
	return nil
}

// An arrival is a frame that has come, or the error after which none will come.
type arrival struct {
	at  time.Time
	err error
}

// report sends an arrival for every frame, and one for the error that ends it.
func report(s *client.Socket, to chan<- arrival) {
	for {
		_, err := s.Next()
		to <- arrival{time.Now(), err}
		if err != nil {
			return
		}
	}
}

func (b *bench) pusher(c *conn, from, to *mecha, arrivals <-chan arrival) operation {
	body := appendSend(nil, to, b.payload())
	return func() (done, error) {
		began := time.Now()
		if _, err := c.do(from, "POST", sendPath, body, http.StatusCreated); err != nil {
			return done{}, err
		}
		answered := time.Now()
		a := <-arrivals
		// At least 1: the frame may overtake the answer.
		return done{units: 1, also: [2]time.Duration{answered.Sub(began), max(a.at.Sub(answered), 1)}}, a.err
	}
}

// ack measures the whole life of a message: it is sent and pushed, its recipient
// acknowledges it over the socket, and the sender's socket gets the receipt. Each pair of
// Mechas has one message under way, and a conversation at a time.
func (b *bench) ack(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	for _, pairs := range b.Connections {
		if 2*pairs > len(s.mechas) {
			continue
		}
		rounds, err := b.rounds(func() (*sample, error) {
			l := b.links(ctx, s)
			defer l.close()
			workers := make([]operation, pairs)
			for i := range workers {
				var err error
				if workers[i], err = b.roundTrip(l, s.mechas, i, pairs); err != nil {
					return nil, err
				}
			}
			return b.run(ctx, l, fmt.Sprintf("send, push, ack, receipt, %d pairs", pairs), workers)
		})
		if err != nil {
			return err
		}
		b.add(loadRow("ack", "send to receipt", pairs, "messages", rounds),
			latencyRow("ack", "send to socket", pairs, 1, rounds))
	}
	return nil
}

// roundTrip is the worker of a pair.
func (b *bench) roundTrip(l *links, mechas []*mecha, pair, pairs int) (operation, error) {
	from, to := mechas[2*pair], mechas[2*pair+1]
	c, err := l.dial()
	if err != nil {
		return nil, err
	}
	sender, err := l.listen(from, "sync_limit=0&events=receipts")
	if err != nil {
		return nil, err
	}
	recipient, err := l.listen(to, "sync_limit=0")
	if err != nil {
		return nil, err
	}
	t := b.talk(mechas, pair, pairs)
	v := t.begin(from, to)
	return func() (done, error) {
		if v.sent == v.all {
			v = t.begin(from, to)
		}
		t.body = t.appendMessage(t.body[:0], v, to)
		began := time.Now()
		answer, err := c.do(from, "POST", sendPath, t.body, http.StatusCreated)
		if err != nil {
			return done{}, err
		}
		answered := time.Since(began)
		v.accepted(answer)
		frame, err := recipient.Next()
		arrived := time.Since(began)
		if err == nil {
			err = acknowledge(recipient, frame)
		}
		if err == nil {
			_, err = sender.Next()
		}
		return done{units: 1, also: [2]time.Duration{answered, arrived}}, err
	}, nil
}

// fanout measures one message to a Mecha with many sockets, until the last socket
// has it.
func (b *bench) fanout(ctx context.Context) error {
	s, err := b.durable(ctx)
	if err != nil {
		return err
	}
	sizes := slices.Compact(slices.Sorted(slices.Values([]int{1, min(100, b.Sockets), b.Sockets})))
	for _, n := range sizes {
		rounds, err := b.rounds(func() (*sample, error) { return b.fanoutRound(ctx, s, n) })
		if err != nil {
			return err
		}
		b.add(loadRow("fanout", "send to last socket", n, "arrivals", rounds))
	}
	return nil
}

func (b *bench) fanoutRound(ctx context.Context, s *server, n int) (*sample, error) {
	l := b.links(ctx, s)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer l.close()
	c, err := l.dial()
	if err != nil {
		return nil, err
	}
	to := s.mechas[1%len(s.mechas)]
	last := make(chan error, n+1) // with room for all, so that no reader waits
	var missing atomic.Int64
	for range n {
		in, err := l.listen(to, "sync_limit=0")
		if err != nil {
			return nil, err
		}
		readers.Go(func() {
			for {
				if _, err := in.Next(); err != nil {
					last <- err
					return
				}
				if missing.Add(-1) == 0 {
					last <- nil
				}
			}
		})
	}
	body := appendSend(nil, to, b.payload())
	return b.run(ctx, l, fmt.Sprintf("one message to %d sockets", n), []operation{func() (done, error) {
		missing.Store(int64(n))
		if _, err := c.do(s.mechas[0], "POST", sendPath, body, http.StatusCreated); err != nil {
			return done{}, err
		}
		return done{units: n}, <-last
	}})
}

// idle measures the memory of a socket on which nothing happens, in a relay that
// has done nothing else. The garbage of the handshakes would be more than that,
// so this relay collects its garbage much more often (GOGC).
func (b *bench) idle(ctx context.Context) error {
	if b.URL != "" || proc.Resident(os.Getpid()) == 0 {
		return nil // the memory of the server is not known
	}
	var each, all []float64
	for round := range b.Repeats {
		socket, server, err := b.idleRound(ctx, fmt.Sprintf("idle%d", round))
		if err != nil {
			return err
		}
		each, all = append(each, socket), append(all, server)
	}
	r := Row{Stage: "idle", Case: "memory a socket", At: b.Sockets, Rounds: len(each), Bytes: median(each, itself),
		Memory: int64(median(all, itself)), Spread: spread(each, itself)}
	if r.Spread > maxSpread {
		r.Doubts = append(r.Doubts, fmt.Sprintf("the rounds differ by %.0f %%; more --sockets show more", r.Spread*100))
	}
	b.add(r)
	return nil
}

// idleRound opens the sockets. It returns how many bytes each socket takes, and
// how many the whole server takes.
func (b *bench) idleRound(ctx context.Context, name string) (socket, server float64, err error) {
	s, err := b.startServer(ctx, filepath.Join(b.dir, name+".db"), []string{"GOGC=10"})
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	l := b.links(ctx, s)
	defer l.close()
	before := int64(0)
	// The first sockets load the keys of their Mechas, which takes memory once.
	// All others belong to the same Mechas.
	const first = 50
	for i := range first + b.Sockets {
		if i%100 == 0 {
			b.Progress(fmt.Sprintf("opening sockets, %d of %d", i, b.Sockets), 0)
		}
		if i == first {
			before = proc.Resident(s.pid)
		}
		if _, err := l.listen(s.mechas[i%min(first, len(s.mechas))], "sync_limit=0"); err != nil {
			return 0, 0, fmt.Errorf("socket %d: %w", i, err)
		}
	}
	after := proc.Resident(s.pid)
	if before == 0 || after == 0 {
		return 0, 0, errors.New("the memory of the server is not known")
	}
	return float64(after-before) / float64(b.Sockets), float64(after), nil
}
