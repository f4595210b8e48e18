package db

import (
	"context"

	"relay/db/file"
	"relay/db/relay"
)

// administer is do for a write that an operator makes. If Options.By says who that is,
// the audit log gets a row in the same transaction.
func administer[O any, W relay.Write](w *writer, write W) (o O, err error) {
	if w.opts.By == (relay.Actor{}) {
		if o, err = do[O](w, write); err == nil {
			w.awaitNodes(context.Background(), write)
		}
		return o, err
	}
	outcome, err := w.act(w.opts.By, write)
	o, _ = outcome.(O)
	return o, err
}

func (w *writer) act(by relay.Actor, write relay.Write) (any, error) {
	outcome, err := do[any](w, &relay.Act{At: write.When(), By: by, Write: write})
	if err == nil {
		w.awaitNodes(context.Background(), write)
	}
	return outcome, err
}

// act applies the write of an act and notes it. Its outcome is that of the write, nil if
// the write has none.
func (t *tx) act(a *relay.Act) (outcome any, err error) {
	n := relay.NotedAct{At: a.When(), By: a.By, What: a.What, Detail: a.Detail}
	if a.Write != nil {
		r, err := t.w.table.of(a.Write)
		if err != nil {
			return nil, err
		}
		noted := false
		if outcome, noted, err = r.act(t, a.Write, &n); err != nil || !noted {
			return outcome, err
		}
	}
	return outcome, file.AddAct(t.c, n)
}
