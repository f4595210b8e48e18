package retention

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// timed makes the job of a write, and measures how long it takes to be applied.
func timed[O any, W relay.Write](r *Retention, write W, done func(O, error)) engine.Job {
	j := engine.TaskOf(r.w.Table, write, done)
	decide := j.Decide
	j.Decide = func(t *engine.Tx, w W) (O, error) {
		began := time.Now()
		defer func() { r.took = time.Since(began) }()
		return decide(t, w)
	}
	return j
}

// timedChore is timed for a chore.
type timedChore struct {
	engine.Chore
	r *Retention
}

func (c *timedChore) Apply(t *engine.Tx) error {
	began := time.Now()
	defer func() { c.r.took = time.Since(began) }()
	return c.Chore.Apply(t)
}
