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

// An Errand is what a command wants: one of these.
type Errand struct {
	Before relay.Position // messages before it are removed
	Unused int64          // bytes of unused pages are given back to the file system
}

// SoFar is how far an errand has come.
type SoFar struct{ Messages, Bytes, Kept, Given int64 }

// pruneRun is an errand for retention: a pass that removes messages, after which what they leave behind
// goes; or that unused pages are given back.
type pruneRun struct {
	pass
	unused int64 // bytes that are to be given back in any case; 0: as many as usual
	so     SoFar // guarded by the lock of requests
}

// requests has what commands have asked for, the oldest first: its turn is now.
type requests struct {
	sync.Mutex
	all   []*pruneRun
	begun *pruneRun // of the writer's goroutine
}

// next returns what a command asks for; nil if none does.
func (r *requests) next() (a *pruneRun) {
	r.Lock()
	defer r.Unlock()
	if len(r.all) > 0 {
		a = r.all[0]
	}
	return a
}

// IsAsked reports whether a command waits. Safe for concurrent use.
func (r *Retention) IsAsked() bool { return r.asks.next() != nil }

// nextAsked is next on the writer's goroutine.
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

// tell counts what a piece has done for a command.
func (r *Retention) tell(a *pruneRun, out relay.Pruned, given int64) (so SoFar) {
	r.asks.Lock()
	defer r.asks.Unlock()
	a.so.Messages, a.so.Bytes, a.so.Kept = a.so.Messages+int64(out.Messages), a.so.Bytes+out.Bytes,
		a.so.Kept+int64(out.Kept)
	a.so.Given += given
	return a.so
}

// answer ends what a command has asked for.
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
	askedEvery = 100 * time.Millisecond // how often a command is told how far it has come
	stuckFull  = 10 * time.Second       // after which it does not wait for room on the disk
)

// Work has retention do the errand of a command. It says now and then how far that has come, and
// returns it in the end, or when ctx ends, with an error. Safe for concurrent use.
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
	ended := make(chan struct{}) // what is under way for it has
	r.w.FinishLater(&engine.LocalJob{Done: func(error) { close(ended) }}, nil)
	select {
	case <-ended:
	case <-r.w.Ended:
	}
	return r.tell(a, relay.Pruned{}, 0), err
}
