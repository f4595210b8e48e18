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
	err     error
	spoiled bool // the job cannot be applied, so the transaction is made without it
}

// A task is the job of a write. decide is that of its kind.
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
// write is applied even if its caller stops waiting. O is the outcome of its kind.
func do[O any, W relay.Write](w *writer, write W) (O, error) {
	j := taskOf[O](w.table, write, nil)
	j.ended = make(chan struct{})
	w.queueFor(j)
	<-j.ended
	return j.outcome, j.err
}

// then is do without waiting. done is called from the writer's goroutine, for the writes
// of one key in the order of the calls, and must not block. If the queue takes no more,
// then calls done itself.
func then[O any, W relay.Write](w *writer, write W, done func(O, error)) {
	w.queueFor(taskOf(w.table, write, done))
}

// queueFor queues the job of a write, in the turn of the Mecha whose key made it.
func (w *writer) queueFor(j job) {
	of := relay.MechaNumber(0)
	if key, _ := w.table.caller(j.shared()); key != 0 {
		of = w.mechaOf(key)
	}
	w.enqueue(j, of)
}

// none is the outcome of writes that have no answer.
type none struct{}

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
func (w *writer) submit(c chore, of relay.MechaNumber, done func(error)) {
	w.enqueue(&choreJob{c, done}, of)
}
