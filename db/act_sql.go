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

// Act makes a write for an operator, who may be another one than that of Options.By, and notes it
// in the audit log, in the same transaction. It returns once that is durable. The outcome is that
// of Apply. Errors: those of the method for that write. Safe for concurrent use.
func (d *DB) Act(by relay.Actor, write relay.Write) (outcome any, err error) {
	m, sends := write.(*relay.SendMessage)
	if sends {
		d.judge(m)
	}
	if outcome, err = d.w.act(by, write); sends {
		err = d.suggest(err, m.To, m.Key)
	}
	return outcome, err
}

func (w *writer) act(by relay.Actor, write relay.Write) (any, error) {
	outcome, err := do[any](w, &relay.Act{At: write.When(), By: by, Write: write})
	if err == nil {
		w.awaitNodes(context.Background(), write)
	}
	return outcome, err
}

// Note adds a row to the audit log for an act that is not a write of its own, such as a
// compaction, and returns once that is durable. what is one of the words of package
// relay, detail is for people. It does nothing unless Options.By says who acts. Errors:
// those of every write. Safe for concurrent use, but not for the writer's goroutine.
func (d *DB) Note(what, detail string) error {
	if d.w.opts.By == (relay.Actor{}) {
		return nil
	}
	_, err := do[any](d.w, &relay.Act{At: d.w.opts.Now(), By: d.w.opts.By, What: what, Detail: detail})
	return err
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
