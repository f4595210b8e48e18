package engine

import (
	"relay/db/relay"
)

// Table is the table of writes: what the store does with each kind of write, by its number
// (relay.KindOf).
type Table [relay.Kinds]row

// row is a row of the table: a *kind.
type row interface {
	// Job makes the job of a write. done gets the outcome, or nil if the kind is silent.
	Job(write relay.Write, done func(outcome any, err error)) Job
	// Caller returns the key in whose turn a write is queued, and the nonce that it uses up.
	// For the relay's own writes both are 0.
	Caller(write relay.Write) (relay.KeyNumber, relay.NonceHash)
	// act applies a write that an operator makes, and completes the note for the audit log.
	// noted is false if there is nothing to note.
	act(t *Tx, write relay.Write, n *relay.NotedAct) (outcome any, noted bool, err error)
	// decidesKeys reports whether a write of the kind decides which keys work.
	decidesKeys() bool
}

// Kind is what the store does with the writes of one type.
type Kind[W relay.Write, O any] struct {
	// Decide applies the write and returns its outcome, which depends on the store's state and
	// the write alone.
	Decide func(*Tx, W) (O, error)
	Silent bool // the store alone uses the outcome: Apply returns nil
	// By returns the key and the nonce of a client's request; nil if no client makes such writes.
	By func(W) (relay.KeyNumber, relay.NonceHash)
	// Note completes the note of the audit log, and reports whether there is something to note;
	// nil if no operator makes such writes.
	Note func(W, O, *relay.NotedAct) bool
	Keys bool // the writes decide which keys work
}

// Add adds the row of a kind.
func Add[W relay.Write, O any](all *Table, k Kind[W, O]) {
	var zero W
	all[relay.KindOf(zero)] = &k
}

// Of returns the row of a write's kind. Error: Internal, for a kind that the store does not know.
func (all *Table) Of(write relay.Write) (row, error) {
	if r := all[relay.KindOf(write)]; r != nil {
		return r, nil
	}
	return nil, relay.Errorf(relay.Internal, "the store does not know writes of the type %T", write)
}

// JobOf makes the job of a write of any kind. done is called as by Then, with nil for a
// silent kind. Error: Internal, for a kind that the store does not know.
func (all *Table) JobOf(write relay.Write, done func(any, error)) (Job, error) {
	r, err := all.Of(write)
	if err != nil {
		return nil, err
	}
	return r.Job(write, done), nil
}

// Caller returns the key and the nonce of a write, or 0 and 0 for nil.
func (all *Table) Caller(write relay.Write) (relay.KeyNumber, relay.NonceHash) {
	if write == nil {
		return 0, 0
	}
	if r, err := all.Of(write); err == nil {
		return r.Caller(write)
	}
	return 0, 0
}

// DecidesKeys reports whether a write, or the one that an operator makes by it, decides which
// keys work.
func (all *Table) DecidesKeys(write relay.Write) bool {
	if a, ok := write.(*relay.Act); ok && a.Write != nil {
		write = a.Write
	}
	r, err := all.Of(write)
	return err == nil && r.decidesKeys()
}

// WriteJobOf makes the job of a write whose kind has outcomes of type O.
func WriteJobOf[O any, W relay.Write](all *Table, write W, done func(O, error)) *WriteJob[W, O] {
	return &WriteJob[W, O]{write: write, Decide: all[relay.KindOf(write)].(*Kind[W, O]).Decide, done: done}
}

func (k *Kind[W, O]) Job(write relay.Write, done func(any, error)) Job {
	return &WriteJob[W, O]{write: write.(W), Decide: k.Decide, done: func(o O, err error) {
		if k.Silent {
			done(nil, err)
			return
		}
		done(o, err)
	}}
}

func (k *Kind[W, O]) Caller(write relay.Write) (relay.KeyNumber, relay.NonceHash) {
	if k.By == nil {
		return 0, 0
	}
	return k.By(write.(W))
}

func (k *Kind[W, O]) act(t *Tx, write relay.Write, n *relay.NotedAct) (outcome any, noted bool, err error) {
	if k.Note == nil {
		return nil, false, relay.Errorf(relay.Internal, "an act cannot hold a write of the type %T", write)
	}
	o, err := k.Decide(t, write.(W))
	if !k.Silent {
		outcome = o
	}
	return outcome, err == nil && k.Note(write.(W), o, n), err
}

func (k *Kind[W, O]) decidesKeys() bool { return k.Keys }

// NonceOf returns the nonce that a job uses up, or 0.
func (all *Table) NonceOf(j Job) relay.NonceHash {
	if c, ok := j.(*LocalJob); ok {
		if s, ok := c.LocalWrite.(Spender); ok {
			return s.Spends()
		}
		return 0
	}
	_, n := all.Caller(j.Shared())
	return n
}

// A Spender is a local write that uses up a nonce.
type Spender interface{ Spends() relay.NonceHash }
