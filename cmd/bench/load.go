package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"relay/http/client"
)

// A sample is what one round of one stage has shown.
type sample struct {
	took    time.Duration
	latency Histogram
	also    [2]Histogram // further latencies of the same operations
	ops     int          // finished in time; each may stand for several units
	units   int          // messages, records, arrivals
	failed  int
	problem error // the first failure
	cpu     spent
	memory  int64 // of the server, at the end
}

// spent is the CPU time that went by in a round.
type spent struct {
	known          bool
	server, client time.Duration
	others         float64 // share of the machine that others took
}

// did is what one operation of a closed loop has done.
type did struct {
	units int
	also  [2]time.Duration
}

// A step is one operation.
type step func() (did, error)

// maxFailures in a row end a worker: the relay is not what we take it for.
const maxFailures = 100

// run repeats each worker's step for a while, all at once, and measures it. A
// tenth of the time goes ahead uncounted. Refused requests are counted; another
// error ends the round, for then nothing could be trusted.
func (b *bench) run(ctx context.Context, on *lines, what string, workers []step) (*sample, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	begin := time.Now().Add(b.Duration / 10)
	end := begin.Add(b.Duration)
	on.deadline(end.Add(patience))
	loops := make([]*loop, len(workers))
	var all sync.WaitGroup
	for i, w := range workers {
		loops[i] = &loop{step: w, begin: begin, end: end}
		all.Go(func() { loops[i].run(ctx) })
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	out := &sample{took: b.Duration}
	b.watch(on.server, what, out, loops, done)
	<-done
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

// watch reads the CPU times at both ends of a round, and shows how it goes. It
// returns at the end of the round, or when all workers have ended.
func (b *bench) watch(s *server, what string, out *sample, loops []*loop, done <-chan struct{}) {
	begin, end := loops[0].begin, loops[0].end
	if !sleep(begin, done) {
		return
	}
	before := readCPU(s.pid)
	for now := begin; now.Before(end); now = time.Now() {
		next := now.Add(showEvery)
		if next.After(end) {
			next = end
		}
		if !sleep(next, done) {
			break
		}
		ops := int64(0)
		for _, l := range loops {
			ops += l.shown.Load()
		}
		b.Progress(what, float64(ops)/time.Since(begin).Seconds())
	}
	out.cpu = between(before, readCPU(s.pid), time.Since(begin))
	out.memory = residentBytes(s.pid)
}

// sleep waits until a time, and tells whether done came later.
func sleep(until time.Time, done <-chan struct{}) bool {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

func between(a, b cpuTime, took time.Duration) spent {
	s := spent{known: a.known && b.known, server: b.server - a.server, client: b.client - a.client}
	if s.known {
		others := max(b.machine-a.machine-s.server-s.client, 0)
		s.others = others.Seconds() / took.Seconds() / float64(runtime.NumCPU())
	}
	return s
}

// A loop is one worker of a round.
type loop struct {
	step       step
	begin, end time.Time
	latency    Histogram
	also       [2]Histogram
	units      int
	failed     int
	problem    error
	fault      error
	shown      atomic.Int64 // operations, for the progress line
}

func (l *loop) run(ctx context.Context) {
	inARow := 0
	for began := time.Now(); began.Before(l.end) && ctx.Err() == nil; {
		out, err := l.step()
		now := time.Now()
		var refused *client.Refusal
		switch {
		case errors.As(err, &refused):
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

func (l *loop) count(took time.Duration, out did) {
	l.latency.Record(took)
	for i, d := range out.also {
		if d >= 0 && out.also != [2]time.Duration{} {
			l.also[i].Record(d)
		}
	}
	l.units += out.units
	l.shown.Add(1)
}

// lines are the connections and sockets of one round. The end of the context
// closes them, so that nothing waits for an answer then.
type lines struct {
	server  *server
	ctx     context.Context
	end     context.CancelCauseFunc
	mu      sync.Mutex
	conns   []*conn
	sockets []*client.Socket
	late    *time.Timer // ends the context at the deadline
}

var errHung = fmt.Errorf("the relay has been silent for %v", patience)

// to begins a round on a server. The caller closes the lines.
func (b *bench) to(ctx context.Context, s *server) *lines {
	l := &lines{server: s}
	l.ctx, l.end = context.WithCancelCause(ctx)
	l.late = time.AfterFunc(math.MaxInt64, func() { l.end(errHung) })
	context.AfterFunc(l.ctx, l.hangUp)
	return l
}

func (l *lines) dial() (*conn, error) {
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
func (l *lines) dials(n int) ([]*conn, error) {
	all := make([]*conn, n)
	for i := range all {
		var err error
		if all[i], err = l.dial(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// deadline replaces the time after which everything that waits fails.
func (l *lines) deadline(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.net.SetDeadline(t)
	}
	l.late.Reset(time.Until(t))
}

func (l *lines) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.close()
	}
	for _, s := range l.sockets {
		s.Close()
	}
}

func (l *lines) close() {
	l.late.Stop()
	l.hangUp()
	l.end(nil)
}
