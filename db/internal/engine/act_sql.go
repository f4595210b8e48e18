package engine

import (
	"context"

	"relay/db/file"
	"relay/db/relay"
)

// Administer is Do for a write that an operator makes. If Options.By names the operator,
// the audit log gets a row in the same transaction.
func Administer[O any, W relay.Write](w *Store, write W) (o O, err error) {
	if w.Opts.By == (relay.Actor{}) {
		if o, err = Do[O](w, write); err == nil {
			w.AwaitNodes(context.Background(), write)
		}
		return o, err
	}
	outcome, err := w.Act(w.Opts.By, write)
	o, _ = outcome.(O)
	return o, err
}

func (w *Store) Act(by relay.Actor, write relay.Write) (any, error) {
	outcome, err := Do[any](w, &relay.Act{At: write.When(), By: by, Write: write})
	if err == nil {
		w.AwaitNodes(context.Background(), write)
	}
	return outcome, err
}

// Act applies the write of an administrator's act, records the act in the audit log, and returns the outcome of
// the write, or nil.
func (t *Tx) Act(a *relay.Act) (outcome any, err error) {
	n := relay.NotedAct{At: a.When(), By: a.By, What: a.What, Detail: a.Detail}
	if a.Write != nil {
		r, err := t.Store.Table.Of(a.Write)
		if err != nil {
			return nil, err
		}
		noted := false
		if outcome, noted, err = r.act(t, a.Write, &n); err != nil || !noted {
			return outcome, err
		}
	}
	return outcome, file.AddAct(t.C, n)
}
