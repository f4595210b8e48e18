package learning

import (
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

const (
	countFew    = 100                   // exchanges that are counted soon
	countSoon   = time.Second           // how long few exchanges wait for others
	countLater  = 10 * time.Second      // how long many wait, since many at once cost less
	countMany   = 32768                 // exchanges that need not wait for others
	countAtOnce = 1024                  // exchanges in one transaction, because other jobs wait for it
	countPause  = 50 * time.Millisecond // between two transactions
)

// counts counts exchanges, in rounds. A round goes through the Mechas by their numbers, with some of
// them in each transaction. Exchanges that end meanwhile are for the next round.
type counts struct {
	w        *engine.Store
	halfLife time.Duration
	first    time.Time // when the first exchange came that waits for a round, or zero
	waiting  int       // roughly how many wait
	next     time.Time // when the present round continues, or zero
	onWay    bool      // with a log: a write of the round is pending
	round    countRound
}

// start finds exchanges that an earlier process has left. If the store does not learn, they are
// removed.
func (c *counts) start() error {
	n, err := c.w.C.Number(someExchange)
	if n > 0 {
		c.next = time.Unix(1, 0)
		c.first = c.next // if a round is running, exchanges may be left when it ends
	}
	return err
}

// expect notes an exchange.
func (c *counts) expect(at time.Time) {
	if c.w.Log != nil {
		at = c.w.Opts.Now() // the log's time may differ much from it
	}
	if c.waiting++; c.first.IsZero() {
		c.first = at
	}
}

func (c *counts) Due(now time.Time) bool {
	switch {
	case c.onWay || !c.w.Keeps():
		return false
	case !c.next.IsZero():
		return !now.Before(c.next)
	case c.first.IsZero():
		return false
	case c.waiting <= countFew:
		return !now.Before(c.first.Add(countSoon))
	}
	return c.waiting >= countMany || !now.Before(c.first.Add(countLater))
}

func (c *counts) Do(now time.Time) {
	if c.next.IsZero() {
		c.first, c.waiting = time.Time{}, 0
	}
	write := &relay.CountExchanges{At: now, HalfLife: c.halfLife, Limit: countAtOnce}
	j := engine.WriteJobOf(c.w.Table, write, func(more bool, err error) {
		c.onWay = false
		switch {
		case err != nil:
			c.w.Opts.Logger.Error("completed messages were not counted for discovery", "error", err)
			c.next = now.Add(countSoon)
		case more:
			c.next = now.Add(countPause)
		default:
			c.next = time.Time{}
		}
	})
	if c.onWay = c.w.Log != nil; c.onWay {
		c.w.Proposes(j)
		return
	}
	c.w.Commit([]engine.QueuedJob{{Job: j}})
}
