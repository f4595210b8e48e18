package retention

import (
	"slices"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// Lessons removes data that nobody can use any more.
type Lessons interface {
	// Prune removes the learned words of Mechas in a range of numbers, if their last exchange
	// is older than every message. at is the time of the write.
	Prune(t *engine.Tx, after, upto int64, oldest relay.Position, at time.Time) error
	// MechaGone removes the rest of a Mecha to which no row refers.
	MechaGone(t *engine.Tx, id relay.MechaNumber) error
}

// Rests reports whether nothing is to be removed until the next run. Only the writer's goroutine may call it.
func (r *Retention) Rests() bool {
	return r.running(r.w.Opts.Now()) < r.nextRun && r.unused == nil && r.pushes == 0 && !r.IsAsked() &&
		!slices.ContainsFunc(r.passes, func(p *pass) bool { return !p.target.IsZero() })
}

func (r *Retention) Kinds(all *engine.Table) {
	engine.Add(all, engine.Kind[*relay.PruneMessages, relay.Pruned]{Decide: r.pruneMessages})
	engine.Add(all, engine.Kind[*relay.PruneUnused, relay.PrunedUnused]{Decide: r.pruneUnused})
}

func (r *Retention) Do(time.Time) {
	if r.w.Idle {
		r.alone()
	} else {
		r.join()
	}
}
