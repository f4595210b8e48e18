package replication

import (
	"fmt"
	"time"

	"relay/db/internal/engine"
	"relay/db/relay"
)

// newestRules is the newest version of the rules that this program knows. The rules say how the
// entries of a log become rows, and which kinds and versions of writes a log may have
// (relay.RulesOf). They get the next number when the same entry would make other rows than
// before, or when a write gets a kind or a version that older programs cannot read.
//
// A log has rules in force, which all copies apply at the same entry. A program of newer rules
// must know the older ones too: its node works by the rules in force, together with nodes of the
// program before, so that machines can be updated one after the other. When each node knows newer
// rules, a write puts these in force (relay.Activate). A program that does not know them stops
// there.
const newestRules = 1

// ruleUpgrade is the room that puts newer rules in force, once all nodes know them.
type ruleUpgrade struct {
	engine.Quiet
	w        *engine.Store
	replica  *Replica
	common   func() int64 // Following.CommonRules, or nil
	proposed bool
	rest     time.Time // not before this, by the machine's clock
}

// ready returns the newest rules that all nodes know, if they are newer than the rules in force
// and this node is to propose them; else 0.
func (a *ruleUpgrade) ready() int64 {
	w, r := a.w, a.replica
	if a.proposed || a.common == nil || r.Knows <= r.File.Version || !w.Keeps() || time.Now().Before(a.rest) {
		return 0
	}
	if common := min(a.common(), r.Knows); common > r.File.Version {
		return common
	}
	return 0
}

func (a *ruleUpgrade) Due(time.Time) bool { return a.ready() > 0 }

func (a *ruleUpgrade) Do(now time.Time) {
	rules := a.ready()
	if rules == 0 {
		return
	}
	a.proposed = true
	a.w.Proposes(engine.WriteJobOf(a.w.Table, &relay.Activate{At: now, Rules: rules}, func(_ engine.None, err error) {
		a.proposed, a.rest = false, time.Now().Add(engine.TasksEvery)
		if err != nil {
			a.w.Opts.Logger.Error("newer rules of the log were not put in force", "rules", rules, "error", err)
		}
	}))
}

// activate puts rules in force, from the next write on. Older ones never come back.
func (l *Replication) activate(_ *engine.Tx, a *relay.Activate) (engine.None, error) {
	now := &l.Replica.now
	now.Version = max(now.Version, a.Rules)
	return engine.None{}, nil
}

// knowsRules refuses a write that puts unknown rules in force.
func (r *Replica) knowsRules(write relay.Write) error {
	if a, ok := write.(*relay.Activate); ok && a.Rules > r.Knows {
		return fmt.Errorf("it puts the rules %d of the log in force, which all nodes knew then, and this program knows "+
			"the rules up to %d: start this node with a newer relay", a.Rules, r.Knows)
	}
	return nil
}

// errNotYet refuses a write that not all nodes can read.
func errNotYet() error {
	e := relay.Errorf(relay.Overloaded,
		"the nodes of the cluster are being updated, and some cannot read this request yet; nothing was written")
	e.RetryAfter = 10 * time.Second
	return e
}
