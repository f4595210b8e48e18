package browse

import (
	"relay/db/internal/engine"
)

// ShortViews makes Stats read few messages in a view. back undoes it.
func ShortViews() (back func()) {
	usual := statsView
	statsView = 0
	return func() { statsView = usual }
}

// A Count is a count of Stats that a test makes step by step.
type Count struct{ statsCount }

func NewCount() *Count { return &Count{statsCount{busy: map[int64]*Busy{}}} }

func (c *Count) FindLast(x *engine.Rx) error      { return c.findLast(x) }
func (c *Count) CountMessages(x *engine.Rx) error { return c.countMessages(x) }
func (c *Count) FindBusiest(x *engine.Rx) error   { return c.findBusiest(x) }
func (c *Count) Done() bool                       { return c.read >= c.last }

const (
	MechaHealth = mechaHealth
	SentItself  = sentItself
)
