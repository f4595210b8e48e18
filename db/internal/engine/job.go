package engine

import "relay/db/relay"

// A Job is a part of a transaction of the writer: a write, whose effect all copies of
// the store share, or a chore, whose rows are local to this process.
type Job interface {
	// Apply decides and writes on the open transaction. A *relay.Error other than
	// Internal refuses the job, which then must have written nothing. Any other error
	// fails the transaction. apply is called again if the transaction is made again.
	Apply(t *Tx) error
	// Finish is called once, from the writer's goroutine, after the commit. It must
	// not block.
	Finish(err error)
	// Size is roughly the bytes that the job adds to a transaction.
	Size() int
	// Shared is the write; nil for a chore.
	Shared() relay.Write
}

// Op is a job in the queue or in a transaction, with its error.
type Op struct {
	Job     Job
	Err     error
	spoiled bool // the job cannot be applied, so the transaction is made without it
}

// A Task is the job of a write. decide is that of its kind.
type Task[W relay.Write, O any] struct {
	write   W
	Decide  func(*Tx, W) (O, error)
	Outcome O
	err     error
	done    func(O, error) // called at the end; nil: ended is closed instead
	ended   chan struct{}
}

func (j *Task[W, O]) Apply(t *Tx) (err error) {
	t.Now = j.write.When() // a write is judged by its own time, not by the clock
	j.Outcome, err = j.Decide(t, j.write)
	return err
}

func (j *Task[W, O]) Finish(err error) {
	if j.done != nil {
		j.done(j.Outcome, err)
		return
	}
	j.err = err
	close(j.ended)
}

func (j *Task[W, O]) Size() int           { return j.write.Size() }
func (j *Task[W, O]) Shared() relay.Write { return j.write }

func (j *Task[W, O]) Become(w relay.Write) { j.write = w.(W) }

// Do queues a write and waits for its commit. It takes no context, because a queued
// write is applied even if its caller stops waiting. O is the outcome of its kind.
func Do[O any, W relay.Write](w *Store, write W) (O, error) {
	j := TaskOf[O](w.Table, write, nil)
	j.ended = make(chan struct{})
	w.QueueFor(j)
	<-j.ended
	return j.Outcome, j.err
}

// Then is do without waiting. done is called from the writer's goroutine, for the writes
// of one key in the order of the calls, and must not block. If the queue takes no more,
// then calls done itself.
func Then[O any, W relay.Write](w *Store, write W, done func(O, error)) {
	w.QueueFor(TaskOf(w.Table, write, done))
}

// QueueFor queues the job of a write, in the turn of the Mecha whose key made it.
func (w *Store) QueueFor(j Job) {
	of := relay.MechaNumber(0)
	if key, _ := w.Table.Caller(j.Shared()); key != 0 {
		of = w.MechaOf(key)
	}
	w.Enqueue(j, of)
}

// None is the outcome of writes that have no answer.
type None struct{}

// A Chore is a change that is local to this process: notes, answers to searches. It
// has no place in the shared order, and other copies of the store do not have it.
type Chore interface {
	Apply(t *Tx) error // as that of job
	Size() int         // as that of job
}

// ChoreJob is the job of a chore.
type ChoreJob struct {
	Chore
	Done func(error)
}

func (j *ChoreJob) Finish(err error)    { j.Done(err) }
func (j *ChoreJob) Shared() relay.Write { return nil }

// Submit queues a chore for a Mecha; 0 is the relay itself. done is called as then calls it.
func (w *Store) Submit(c Chore, of relay.MechaNumber, done func(error)) {
	w.Enqueue(&ChoreJob{c, done}, of)
}
