package engine

import "relay/db/relay"

// A Job is a part of a transaction of the writer: a write, whose effect all copies of the
// store share, or a local write, whose rows this process alone has.
type Job interface {
	// Apply decides and writes on the open transaction. A *relay.Error other than
	// Internal refuses the job, which then must have written nothing. Any other error
	// fails the transaction. Apply is called again if the transaction is made again.
	Apply(t *Tx) error
	// Finish is called once, from the writer's goroutine, after the commit. It must
	// not block.
	Finish(err error)
	// Size is roughly the bytes that the job adds to a transaction.
	Size() int
	// Shared is the write, or nil for a local write.
	Shared() relay.Write
}

// QueuedJob is a job in the queue or in a transaction, with its error.
type QueuedJob struct {
	Job     Job
	Err     error
	spoiled bool // the job cannot be applied, so the transaction is made without it
}

// A WriteJob is the job of a write. Decide decides writes of its kind.
type WriteJob[W relay.Write, O any] struct {
	write   W
	Decide  func(*Tx, W) (O, error)
	Outcome O
	err     error
	done    func(O, error) // called at the end; if nil, ended is closed instead
	ended   chan struct{}
}

func (j *WriteJob[W, O]) Apply(t *Tx) (err error) {
	t.Now = j.write.When() // a write is evaluated at its own time, not by the clock
	j.Outcome, err = j.Decide(t, j.write)
	return err
}

func (j *WriteJob[W, O]) Finish(err error) {
	if j.done != nil {
		j.done(j.Outcome, err)
		return
	}
	j.err = err
	close(j.ended)
}

func (j *WriteJob[W, O]) Size() int           { return j.write.Size() }
func (j *WriteJob[W, O]) Shared() relay.Write { return j.write }

func (j *WriteJob[W, O]) Become(w relay.Write) { j.write = w.(W) }

// Do queues a write and waits for its commit. It takes no context, because a queued write
// is applied even if its caller stops waiting. O is the type of its outcome.
func Do[O any, W relay.Write](w *Store, write W) (O, error) {
	j := WriteJobOf[O](w.Table, write, nil)
	j.ended = make(chan struct{})
	w.QueueFor(j)
	<-j.ended
	return j.Outcome, j.err
}

// Then queues a write and returns. The writer's goroutine calls done, for the writes of
// one key in the order of the calls; done must not block. If the queue is full, Then
// calls done itself.
func Then[O any, W relay.Write](w *Store, write W, done func(O, error)) {
	w.QueueFor(WriteJobOf(w.Table, write, done))
}

// QueueFor queues the job of a write, in the turn of the Mecha whose key made it.
func (w *Store) QueueFor(j Job) {
	of := relay.MechaNumber(0)
	if key, _ := w.Table.Caller(j.Shared()); key != 0 {
		of = w.MechaOf(key)
	}
	w.Enqueue(j, of)
}

// None is the outcome of writes without an answer.
type None struct{}

// A LocalWrite stores rows of this process alone, such as notes and answers to searches.
// It has no place in the shared order, and other copies of the store do not have its
// rows.
type LocalWrite interface {
	Apply(t *Tx) error // as in Job
	Size() int         // as in Job
}

// LocalJob is the job of a local write.
type LocalJob struct {
	LocalWrite
	Done func(error)
}

func (j *LocalJob) Finish(err error)    { j.Done(err) }
func (j *LocalJob) Shared() relay.Write { return nil }

// Submit queues a local write for a Mecha; 0 is the relay itself. done is called as by Then.
func (w *Store) Submit(c LocalWrite, of relay.MechaNumber, done func(error)) {
	w.Enqueue(&LocalJob{c, done}, of)
}
