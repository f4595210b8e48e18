package db

import "relay/db/relay"

// A job is a part of a transaction of the writer: a write, whose effect all copies of
// the store share, or a chore, whose rows are local to this process.
type job interface {
	// apply decides and writes on the open transaction. A *relay.Error other than
	// Internal refuses the job, which then must have written nothing. Any other error
	// fails the transaction. apply is called again if the transaction is made again.
	apply(t *tx) error
	// finish is called once, from the writer's goroutine, after the commit. It must
	// not block.
	finish(err error)
	// size is roughly the bytes that the job adds to a transaction.
	size() int
	// shared is the write; nil for a chore.
	shared() relay.Write
}

// op is a job in the queue or in a transaction, with its error.
type op struct {
	job     job
	of      relay.MechaNumber // whose job it is; 0: the relay's own
	bytes   int               // the job's size
	err     error
	spoiled bool // the job cannot be applied, so the transaction is made without it
}

// A task is the job of a write. decide applies the write and gives its outcome, which
// depends on the store's state and the write alone.
type task[W relay.Write, O any] struct {
	write   W
	decide  func(*tx, W) (O, error)
	outcome O
	err     error
	done    func(O, error) // called at the end; nil: ended is closed instead
	ended   chan struct{}
}

func (j *task[W, O]) apply(t *tx) (err error) {
	t.now = j.write.When() // a write is judged by its own time, not by the clock
	j.outcome, err = j.decide(t, j.write)
	return err
}

func (j *task[W, O]) finish(err error) {
	if j.done != nil {
		j.done(j.outcome, err)
		return
	}
	j.err = err
	close(j.ended)
}

func (j *task[W, O]) size() int           { return j.write.Size() }
func (j *task[W, O]) shared() relay.Write { return j.write }

func (j *task[W, O]) become(w relay.Write) { j.write = w.(W) }

// do queues a write and waits for its commit. It takes no context, because a queued
// write is applied even if its caller stops waiting.
func do[W relay.Write, O any](d *DB, write W, decide func(*tx, W) (O, error)) (O, error) {
	j := &task[W, O]{write: write, decide: decide, ended: make(chan struct{})}
	d.w.enqueue(j, d.ownerOf(write))
	<-j.ended
	return j.outcome, j.err
}

// then is do without waiting. done is called from the writer's goroutine, for the writes
// of one key in the order of the calls, and must not block. If the queue takes no more,
// then calls done itself.
func then[W relay.Write, O any](d *DB, write W, decide func(*tx, W) (O, error), done func(O, error)) {
	d.w.enqueue(&task[W, O]{write: write, decide: decide, done: done}, d.ownerOf(write))
}

// ownerOf gives the Mecha whose turns in the queue a write takes; 0 for the relay's own
// writes.
func (d *DB) ownerOf(write relay.Write) relay.MechaNumber {
	switch w := write.(type) {
	case *relay.SendMessage:
		return d.keys.mechaOf(w.Key)
	case *relay.Acknowledge:
		return d.keys.mechaOf(w.Key)
	case *relay.MarkDelivered:
		return d.keys.mechaOf(w.Key)
	case *relay.PutProfile:
		return d.keys.mechaOf(w.Key)
	case *relay.NoteFull:
		return d.keys.mechaOf(w.Key)
	case *relay.ClaimMessages:
		return d.keys.mechaOf(w.Key)
	case *relay.UseNonce:
		return d.keys.mechaOf(w.Key)
	}
	return 0
}

// none is the outcome of writes that have no answer.
type none struct{}

// Apply queues a write of any kind, unchanged, and returns its outcome once it is
// durable: relay.Sent, AckOutcome, DeliveredOutcome, *Key for IssueKey, Pruned,
// PrunedUnused, that of its own write for Act, nil for the other kinds. It is for complete
// writes, such as those that relay.ReadWrite reads.
// Send and the methods beside it first complete the writes of clients. The same writes
// in the same order make the same store. Errors: those of the method for that write.
// Safe for concurrent use.
func (d *DB) Apply(write relay.Write) (outcome any, err error) {
	ended := make(chan struct{})
	j, err := jobOf(write, func(o any, failed error) {
		outcome, err = o, failed
		close(ended)
	})
	if err != nil {
		return nil, err
	}
	d.w.enqueue(j, d.ownerOf(write))
	<-ended
	return outcome, err
}

// jobOf makes the job of a write of any kind. done is called as then calls it, with nil for
// writes that have no outcome. Error: Internal, for a kind that the store does not know.
func jobOf(write relay.Write, done func(any, error)) (job, error) {
	silent := func(_ any, err error) { done(nil, err) }
	switch write := write.(type) {
	case *relay.SendMessage:
		return newJob(write, (*tx).send, done), nil
	case *relay.Acknowledge:
		return newJob(write, (*tx).acknowledge, done), nil
	case *relay.MarkDelivered:
		return newJob(write, (*tx).markDelivered, done), nil
	case *relay.ExpireDue:
		return newJob(write, (*tx).expireDue, silent), nil
	case *relay.IssueKey:
		return newJob(write, (*tx).issueKey, done), nil
	case *relay.RevokeKey:
		return newJob(write, (*tx).revokeKey, silent), nil
	case *relay.PutProfile:
		return newJob(write, (*tx).putProfile, silent), nil
	case *relay.RemoveMecha:
		return newJob(write, (*tx).removeMecha, silent), nil
	case *relay.PruneMessages:
		return newJob(write, (*tx).pruneMessages, done), nil
	case *relay.PruneUnused:
		return newJob(write, (*tx).pruneUnused, done), nil
	case *relay.Act:
		return newJob(write, (*tx).act, done), nil
	case *relay.NoteOverdue:
		return newJob(write, (*tx).noteOverdue, silent), nil
	case *relay.NoteFull:
		return newJob(write, (*tx).noteFull, silent), nil
	case *relay.ClaimMessages:
		return newJob(write, (*tx).claimMessages, done), nil
	case *relay.EndAttempts:
		return newJob(write, (*tx).endAttempts, silent), nil
	case *relay.ExpireMessage:
		return newJob(write, (*tx).expireMessage, silent), nil
	case *relay.CountExchanges:
		return newJob(write, (*tx).countExchanges, silent), nil
	case *relay.ForgetLearned:
		return newJob(write, (*tx).forget, silent), nil
	case *relay.UseNonce:
		return newJob(write, (*tx).useNonce, silent), nil
	case *relay.Activate:
		return newJob(write, (*tx).activate, silent), nil
	}
	return nil, relay.Errorf(relay.Internal, "the store does not know writes of the type %T", write)
}

func newJob[W relay.Write, O any](write W, decide func(*tx, W) (O, error), done func(any, error)) job {
	return &task[W, O]{write: write, decide: decide, done: func(o O, err error) { done(o, err) }}
}

// A chore is a change that is local to this process: notes, answers to searches. It
// has no place in the shared order, and other copies of the store do not have it.
type chore interface {
	apply(t *tx) error // as that of job
	size() int         // as that of job
}

// choreJob is the job of a chore.
type choreJob struct {
	chore
	done func(error)
}

func (j *choreJob) finish(err error)    { j.done(err) }
func (j *choreJob) shared() relay.Write { return nil }

// submit queues a chore for a Mecha; 0 is the relay itself. done is called as then calls it.
func (d *DB) submit(c chore, of relay.MechaNumber, done func(error)) {
	d.w.enqueue(&choreJob{c, done}, of)
}
