package retention

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// timed makes the job of a write, and measures how long it takes to be applied.
func timed[O any, W relay.Write](r *Retention, write W, done func(O, error)) engine.Job {
	j := engine.WriteJobOf(r.w.Table, write, done)
	decide := j.Decide
	j.Decide = func(t *engine.Tx, w W) (O, error) {
		began := time.Now()
		defer func() { r.took = time.Since(began) }()
		return decide(t, w)
	}
	return j
}

// timedLocalWrite is timed for a local write.
type timedLocalWrite struct {
	engine.LocalWrite
	r *Retention
}

func (c *timedLocalWrite) Apply(t *engine.Tx) error {
	began := time.Now()
	defer func() { c.r.took = time.Since(began) }()
	return c.LocalWrite.Apply(t)
}
