package bench

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"relay/cmd/bench/proc"
	"relay/http/client"
)

// A sample is the result of one round of one stage.
type sample struct {
	took    time.Duration
	latency Histogram
	also    [2]Histogram // further latencies of the same operations
	ops     int          // operations that finished in time; each may have several units
	units   int          // messages, records, arrivals
	failed  int
	problem error // the first failure
	cpu     proc.Spent
	memory  int64 // of the server, at the end
}

// done is what one operation of a closed loop has done.
type done struct {
	units int
	also  [2]time.Duration // further latencies, see sample
}

// An operation is what a worker repeats.
type operation func() (done, error)

// maxFailures in a row end a round: nothing is measured if all is refused.
const maxFailures = 100

// runOn measures a round of n workers, each with a connection of its own.
func (b *bench) runOn(
	ctx context.Context, s *server, what string, n int, worker func(i int, c *conn) operation,
) (*sample, error) {
	l := b.links(ctx, s)
	defer l.close()
	conns, err := l.dials(n)
	if err != nil {
		return nil, err
	}
	workers := make([]operation, n)
	for i, c := range conns {
		workers[i] = worker(i, c)
	}
	return b.run(ctx, l, what, workers)
}

// run measures a round. Every worker repeats its operation, all at the same time,
// until Config.Duration is over. Before that they run for a tenth of the time
// without being measured. A refused request is counted. Another error ends the
// round: its figures could not be trusted.
func (b *bench) run(ctx context.Context, on *links, what string, workers []operation) (*sample, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	begin := time.Now().Add(b.Duration / 10)
	end := begin.Add(b.Duration)
	on.deadline(end.Add(patience))
	loops := make([]*loop, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		loops[i] = &loop{operation: w, begin: begin, end: end}
		all.Go(func() { loops[i].run(ctx) })
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	out := &sample{took: b.Duration}
	b.watch(on.server, what, out, loops, ended)
	<-ended
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, l := range loops {
		if l.fault != nil {
			return nil, l.fault
		}
		out.gather(l)
	}
	out.ops = out.latency.Count()
	return out, nil
}

func (s *sample) gather(l *loop) {
	s.latency.Add(&l.latency)
	for i := range s.also {
		s.also[i].Add(&l.also[i])
	}
	s.units += l.units
	s.failed += l.failed
	if s.problem == nil {
		s.problem = l.problem
	}
}

const showEvery = 250 * time.Millisecond

// watch reads the CPU times at both ends of a round, and reports the progress. It
// returns at the end of the round, or when all workers have ended.
func (b *bench) watch(s *server, what string, out *sample, loops []*loop, ended <-chan struct{}) {
	begin, end := loops[0].begin, loops[0].end
	if !sleep(begin, ended) {
		return
	}
	before := proc.Read(s.pid)
	for now := begin; now.Before(end); now = time.Now() {
		next := now.Add(showEvery)
		if next.After(end) {
			next = end
		}
		if !sleep(next, ended) {
			break
		}
		ops := int64(0)
		for _, l := range loops {
			ops += l.shown.Load()
		}
		b.Progress(what, float64(ops)/time.Since(begin).Seconds())
	}
	out.cpu = before.Until(proc.Read(s.pid), time.Since(begin))
	out.memory = proc.Resident(s.pid)
}

// sleep waits, and returns false if ended was closed first.
func sleep(until time.Time, ended <-chan struct{}) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ended:
		return false
	}
}

// A loop is one worker of a round.
type loop struct {
	operation  operation
	begin, end time.Time
	latency    Histogram
	also       [2]Histogram
	units      int
	failed     int
	problem    error
	fault      error
	shown      atomic.Int64 // operations so far, for the progress
}

func (l *loop) run(ctx context.Context) {
	inARow := 0
	for began := time.Now(); began.Before(l.end) && ctx.Err() == nil; {
		out, err := l.operation()
		now := time.Now()
		switch {
		case isRefusal(err):
			l.failed++
			if l.problem == nil {
				l.problem = err
			}
			if inARow++; inARow == maxFailures {
				l.fault = err
			}
		case err != nil:
			l.fault = err
		case !now.Before(l.begin) && now.Before(l.end):
			inARow = 0
			l.count(now.Sub(began), out)
		}
		if l.fault != nil {
			return
		}
		began = now
	}
}

func (l *loop) count(took time.Duration, out done) {
	l.latency.Record(took)
	for i, d := range out.also {
		if d >= 0 && out.also != [2]time.Duration{} {
			l.also[i].Record(d)
		}
	}
	l.units += out.units
	l.shown.Add(1)
}

// links are the connections and sockets of one round. When the context ends, they are closed, so
// that no worker keeps waiting for an answer.
type links struct {
	server  *server
	ctx     context.Context
	end     context.CancelCauseFunc
	mu      sync.Mutex
	conns   []*conn
	sockets []*client.Socket
	late    *time.Timer // ends the context at the deadline
}

var errHung = fmt.Errorf("the relay has been silent for %v", patience)

// links makes the links of a round to a server. The caller closes them.
func (b *bench) links(ctx context.Context, s *server) *links {
	l := &links{server: s}
	l.ctx, l.end = context.WithCancelCause(ctx)
	l.late = time.AfterFunc(math.MaxInt64, func() { l.end(errHung) })
	context.AfterFunc(l.ctx, l.hangUp)
	return l
}

// connect calls f with a connection of its own to a server.
func (b *bench) connect(ctx context.Context, s *server, f func(*conn) error) error {
	l := b.links(ctx, s)
	defer l.close()
	c, err := l.dial()
	if err != nil {
		return err
	}
	return f(c)
}

func (l *links) dial() (*conn, error) {
	c, err := dial(l.ctx, l.server.url)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns = append(l.conns, c)
	return c, nil
}

// dials opens n connections.
func (l *links) dials(n int) ([]*conn, error) {
	all := make([]*conn, n)
	for i := range all {
		var err error
		if all[i], err = l.dial(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// deadline sets the time at which a worker that still waits for the relay fails.
func (l *links) deadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.net.SetDeadline(t)
	}
	l.late.Reset(time.Until(t))
}

func (l *links) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.close()
	}
	for _, s := range l.sockets {
		s.Close()
	}
}

func (l *links) close() {
	l.late.Stop()
	l.hangUp()
	l.end(nil)
}
