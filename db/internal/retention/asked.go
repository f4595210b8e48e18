package retention

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// An Errand is the request of a command. One field is set.
type Errand struct {
	Before relay.Position // messages before it are removed
	Unused int64          // bytes of unused pages to free
}

// SoFar is the progress of an errand.
type SoFar struct{ Messages, Bytes, Kept, Given int64 }

// pruneRun is an errand of a command: a pass that removes messages, and then what they leave behind; or
// the freeing of unused pages.
type pruneRun struct {
	pass
	unused int64 // bytes to free in any case; 0 means as many as usual
	so     SoFar // guarded by the lock of requests
}

// requests has the runs of commands, the oldest first, whose turn it is.
type requests struct {
	sync.Mutex
	all   []*pruneRun
	begun *pruneRun // of the writer's goroutine
}

// next returns the oldest run, or nil.
func (r *requests) next() (a *pruneRun) {
	r.Lock()
	defer r.Unlock()
	if len(r.all) > 0 {
		a = r.all[0]
	}
	return a
}

// IsAsked reports whether a command waits. Any goroutine may call it.
func (r *Retention) IsAsked() bool { return r.asks.next() != nil }

// nextAsked is next, on the writer's goroutine.
func (r *Retention) nextAsked() *pruneRun {
	a := r.asks.next()
	if a != nil && a != r.asks.begun {
		r.asks.begun, r.space.checked = a, time.Time{}
		if a.unused == 0 {
			r.w.Opts.Logger.Info("relay prune asks to remove messages", "before", relay.FormatTime(a.target))
		}
	}
	return a
}

// addResult adds the result of a piece to a run.
func (r *Retention) addResult(a *pruneRun, out relay.Pruned, given int64) (so SoFar) {
	r.asks.Lock()
	defer r.asks.Unlock()
	a.so.Messages, a.so.Bytes, a.so.Kept = a.so.Messages+int64(out.Messages), a.so.Bytes+out.Bytes,
		a.so.Kept+int64(out.Kept)
	a.so.Given += given
	return a.so
}

// answer ends a run.
func (r *Retention) answer(a *pruneRun) {
	so := r.takeBack(a)
	if a.unused == 0 {
		r.w.Opts.Logger.Info("messages were removed for relay prune", "messages", so.Messages, "payload_bytes", so.Bytes,
			"kept", so.Kept)
		r.toSay = relay.Pruned{}
	}
}

func (r *Retention) takeBack(a *pruneRun) SoFar {
	r.asks.Lock()
	defer r.asks.Unlock()
	r.asks.all = slices.DeleteFunc(r.asks.all, func(other *pruneRun) bool { return other == a })
	return a.so
}

const (
	askedEvery = 100 * time.Millisecond // how often a command gets the progress
	stuckFull  = 10 * time.Second       // after which a command no longer waits for room on the disk
)

// Work has retention do the errand of a command. It calls say with the progress now and then,
// and returns the result at the end, or when ctx ends, with an error. Any goroutine may call it.
func (r *Retention) Work(ctx context.Context, o Errand, say func(SoFar)) (so SoFar, err error) {
	a := &pruneRun{unused: o.Unused}
	if o.Before != 0 {
		a.target = o.Before.Time()
	}
	r.asks.Lock()
	r.asks.all = append(r.asks.all, a)
	r.asks.Unlock()
	tick, moved := time.NewTicker(askedEvery), time.Now()
	defer tick.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-tick.C:
			err = r.w.Failed()
		}
		before := so
		r.asks.Lock()
		so = a.so
		over := !slices.Contains(r.asks.all, a)
		r.asks.Unlock()
		if so != before {
			moved = time.Now()
		} else if !over && time.Since(moved) > stuckFull && r.w.Disk.Low.Load() {
			err = cmp.Or(err,
				errors.New("the disk is full, and nothing more can be removed: make room, and run relay prune again"))
		}
		if say(so); over {
			return so, nil
		}
	}
	r.takeBack(a)
	ended := make(chan struct{}) // when its present piece has ended
	r.w.FinishLater(&engine.LocalJob{Done: func(error) { close(ended) }}, nil)
	select {
	case <-ended:
	case <-r.w.Ended:
	}
	return r.addResult(a, relay.Pruned{}, 0), err
}
