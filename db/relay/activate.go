package relay

import (
	"math"
	"time"
)

// Activate is the write that puts newer rules of a log in force: how its entries become rows, and
// which kinds and versions of writes it may have (RulesOf). It is written once every node knows
// these rules. Only a store that follows a log makes it.
type Activate struct {
	At    time.Time
	Rules int64 // their version; at least 1
}

func (a *Activate) When() time.Time { return a.At }

func (a *Activate) setTime(at time.Time) { a.At = at }

func (a *Activate) Size() int { return 64 }

func (a *Activate) kind() byte { return kindActivate }

func (a *Activate) fields(f *form) {
	f.time(&a.At)
	f.int64(&a.Rules)
}

// RulesOf returns the oldest rules of a log under which it may have a write, whose serial form
// (AppendWrite) is form. A kind or a version that is added here must get the rules that
// introduced it: else a node writes it before the others can read it.
func RulesOf(w Write, form []byte) int64 {
	if act, ok := w.(*Act); ok && act.Write != nil {
		return max(RulesOf(act.Write, AppendWrite(nil, act.Write)), rulesOf(form))
	}
	return rulesOf(form)
}

func rulesOf(form []byte) int64 {
	switch kind, version := form[0], form[1]; {
	case kind == kindActivate:
		return 0 // under all
	case kind <= kindUseNonce && version <= 1:
		return 1
	}
	return math.MaxInt64 // it is missing here: better never than too early
}
