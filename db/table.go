package db

import (
	"relay/db/relay"
)

// table is the table of writes: what the store does with each kind of write, by its number
// (relay.KindOf).
type table [relay.Kinds]row

// row is a row of the table: a *kind.
type row interface {
	// job makes the job of a write. done gets the outcome; nil if the kind is silent.
	job(write relay.Write, done func(outcome any, err error)) job
	// caller returns the key whose turn in the queue a write takes, and the nonce that it uses
	// up; 0 and 0 for the relay's own.
	caller(write relay.Write) (relay.KeyNumber, relay.NonceHash)
	// act applies a write that an operator makes, and completes the note for the audit log.
	// noted is false if there is nothing to note.
	act(t *tx, write relay.Write, n *relay.NotedAct) (outcome any, noted bool, err error)
	// decidesKeys reports whether a write of the kind decides which keys work.
	decidesKeys() bool
}

// kind is what the store does with the writes of one type.
type kind[W relay.Write, O any] struct {
	// decide applies the write and returns its outcome, which depends on the store's state and
	// the write alone.
	decide func(*tx, W) (O, error)
	silent bool // the outcome is the store's own business: Apply returns nil
	// by returns the key and the nonce of a client's request; nil: no client makes such writes.
	by func(W) (relay.KeyNumber, relay.NonceHash)
	// note completes the note of the audit log, and reports whether there is something to note;
	// nil: no operator makes such writes.
	note func(W, O, *relay.NotedAct) bool
	keys bool // it decides which keys work
}

// add adds the row of a kind.
func add[W relay.Write, O any](all *table, k kind[W, O]) {
	var zero W
	all[relay.KindOf(zero)] = &k
}

// of returns the row of a write's kind. Error: Internal, for a kind that the store does not know.
func (all *table) of(write relay.Write) (row, error) {
	if r := all[relay.KindOf(write)]; r != nil {
		return r, nil
	}
	return nil, relay.Errorf(relay.Internal, "the store does not know writes of the type %T", write)
}

// jobOf makes the job of a write of any kind. done is called as then calls it, with nil for
// kinds that are silent. Error: Internal, for a kind that the store does not know.
func (all *table) jobOf(write relay.Write, done func(any, error)) (job, error) {
	r, err := all.of(write)
	if err != nil {
		return nil, err
	}
	return r.job(write, done), nil
}

// caller returns the key and the nonce of a write; 0 and 0 for nil.
func (all *table) caller(write relay.Write) (relay.KeyNumber, relay.NonceHash) {
	if write == nil {
		return 0, 0
	}
	if r, err := all.of(write); err == nil {
		return r.caller(write)
	}
	return 0, 0
}

// decidesKeys reports whether a write, or the one that an operator makes by it, decides which
// keys work.
func (all *table) decidesKeys(write relay.Write) bool {
	if a, ok := write.(*relay.Act); ok && a.Write != nil {
		write = a.Write
	}
	r, err := all.of(write)
	return err == nil && r.decidesKeys()
}

// taskOf makes the job of a write whose kind has outcomes of type O.
func taskOf[O any, W relay.Write](all *table, write W, done func(O, error)) *task[W, O] {
	return &task[W, O]{write: write, decide: all[relay.KindOf(write)].(*kind[W, O]).decide, done: done}
}

func (k *kind[W, O]) job(write relay.Write, done func(any, error)) job {
	return &task[W, O]{write: write.(W), decide: k.decide, done: func(o O, err error) {
		if k.silent {
			done(nil, err)
			return
		}
		done(o, err)
	}}
}

func (k *kind[W, O]) caller(write relay.Write) (relay.KeyNumber, relay.NonceHash) {
	if k.by == nil {
		return 0, 0
	}
	return k.by(write.(W))
}

func (k *kind[W, O]) act(t *tx, write relay.Write, n *relay.NotedAct) (outcome any, noted bool, err error) {
	if k.note == nil {
		return nil, false, relay.Errorf(relay.Internal, "an act cannot hold a write of the type %T", write)
	}
	o, err := k.decide(t, write.(W))
	if !k.silent {
		outcome = o
	}
	return outcome, err == nil && k.note(write.(W), o, n), err
}

func (k *kind[W, O]) decidesKeys() bool { return k.keys }

// nonceOf returns the nonce that a job uses up; 0 if it has none.
func (all *table) nonceOf(j job) relay.NonceHash {
	if c, ok := j.(*choreJob); ok {
		if s, ok := c.chore.(spender); ok {
			return s.spends()
		}
		return 0
	}
	_, n := all.caller(j.shared())
	return n
}

// spender is a chore that uses a nonce up.
type spender interface{ spends() relay.NonceHash }
