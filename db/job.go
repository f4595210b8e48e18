package db

import "relay/db/relay"

// A job is something to do in a transaction of the writer: a Write, whose
// outcome all copies of the store share, or a chore, which is this process's own.
type job interface {
	// apply decides and writes on the open transaction. A *Error refuses the job,
	// which then has written nothing; any other error spoils the transaction. It may
	// be called again if the transaction was spoiled.
	apply(t *tx) error
	// finish is called once, from the writer's goroutine, after the commit. It must
	// not block.
	finish(err error)
	// size is about how many bytes the job writes, to bound a transaction.
	size() int
	// shared is the write; nil for a chore.
	shared() relay.Write
}

// op is a job on its way through the writer, and what has become of it.
type op struct {
	job     job
	err     error
	spoiled bool // the job could not be applied: the transaction is made without it
}

// A task is the job of a write: decide applies it and gives its outcome, which
// depends on the store's state and the write alone.
type task[W relay.Write, O any] struct {
	write   W
	decide  func(*tx, W) (O, error)
	outcome O
	err     error
	done    func(O, error) // nil: somebody waits for ended
	ended   chan struct{}
}

func (j *task[W, O]) apply(t *tx) (err error) {
	t.now = j.write.When() // the write's time is the time, whatever the clock says
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

// do queues a write and waits for its commit. There is no context: a queued
// write is applied whether anyone waits or not.
func do[W relay.Write, O any](d *DB, write W, decide func(*tx, W) (O, error)) (O, error) {
	j := &task[W, O]{write: write, decide: decide, ended: make(chan struct{})}
	d.w.enqueue(j)
	<-j.ended
	return j.outcome, j.err
}

// then is do without waiting: done is called from the writer's goroutine, in the
// order of the calls, and must not block. It may be called at once.
func then[W relay.Write, O any](d *DB, write W, decide func(*tx, W) (O, error), done func(O, error)) {
	d.w.enqueue(&task[W, O]{write: write, decide: decide, done: done})
}

// none is the outcome of writes that have nothing to tell.
type none struct{}

// Apply queues a write of any kind, as it is, and returns its outcome once it is
// durable: Sent, AckOutcome, DeliveredOutcome, *Key for IssueKey, nil for the
// others. It is for writes that were complete before, such as those read by
// ReadWrite; clients' writes go through Send and its like, which complete them.
// The same writes in the same order make the same store. Errors: as of those
// methods. Safe for concurrent use.
func (d *DB) Apply(write relay.Write) (outcome any, err error) {
	switch write := write.(type) {
	case *relay.SendMessage:
		return do(d, write, (*tx).send)
	case *relay.Acknowledge:
		return do(d, write, (*tx).acknowledge)
	case *relay.MarkDelivered:
		return do(d, write, (*tx).markDelivered)
	case *relay.ExpireDue:
		_, err = do(d, write, (*tx).expireDue)
	case *relay.IssueKey:
		return do(d, write, (*tx).issueKey)
	case *relay.RevokeKey:
		_, err = do(d, write, (*tx).revokeKey)
	case *relay.PutProfile:
		_, err = do(d, write, (*tx).putProfile)
	case *relay.RemoveMecha:
		_, err = do(d, write, (*tx).removeMecha)
	default:
		err = relay.Errorf(relay.Internal, "the store knows no write of the type %T", write)
	}
	return nil, err
}

// A chore is a change that is this process's own: notes, caches, shortcuts. It
// has no place in the shared order, and other copies of the store lack it.
type chore interface {
	apply(t *tx) error // as of job
	size() int
}

type choreJob struct {
	chore
	done func(error)
}

func (j *choreJob) finish(err error)    { j.done(err) }
func (j *choreJob) shared() relay.Write { return nil }

// submit queues a chore; done as of then.
func (d *DB) submit(c chore, done func(error)) { d.w.enqueue(&choreJob{c, done}) }
