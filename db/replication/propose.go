package replication

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/internal/readers"
	"relay/db/relay"
)

// A Proposer appends this node's writes to the log. It submits one envelope at a time,
// repeatedly if need be, until the log has it: so the writes of a node keep their order. Writes
// that come meanwhile wait for the next envelope. The jobs of an envelope end when the follower
// has seen it among the entries and applied it. Until then the envelope is in flight. If too
// many are, the proposer seals no further one, and the writes wait in its queue, whose places
// are bounded and shared out.
type Proposer struct {
	w        *engine.Store
	log      Log
	logID    file.LogID
	Origin   Origin
	Timeouts Timeouts
	refusal  func() error  // why this node could not apply a write, or nil
	rules    func() int64  // the rules in force; nil means any
	wake     chan struct{} // has a token while writes wait, an envelope was seen, or shut is set
	closing  context.Context
	cancel   context.CancelFunc // ends the requests in progress
	ended    chan struct{}      // closed when run has returned
	drained  chan struct{}      // closed when nothing waits, after close has begun
	counter  uint64             // of the last envelope; only run uses it

	mu            sync.Mutex
	queue         engine.Queue // of proposals
	shut          bool
	inflight      map[uint64]*inflight
	inflightBytes int // bytes of the envelopes in inflight
}

// No envelope follows while so many envelopes, or so many bytes, are in flight. This is enough
// to keep a writer busy that takes them in a few transactions.
const (
	MaxInflight      = 16
	maxInflightBytes = 2 * maxEnvelope
)

// Timeouts are the proposer's timeouts.
type Timeouts struct {
	Queued   time.Duration // for a write to be proposed; then nothing was written
	Inflight time.Duration // for an envelope to be seen; then its outcome is unknown
	Retry    time.Duration // the first pause before an envelope is submitted again; each further one is twice as long
	MaxRetry time.Duration // the longest such pause
	Poll     time.Duration // how often a proposer checks for timeouts
	Closing  time.Duration // for all outcomes, when the store closes
}

var usualTimeouts = Timeouts{Queued: 10 * time.Second, Inflight: 30 * time.Second, Retry: 50 * time.Millisecond,
	MaxRetry: time.Second, Poll: 250 * time.Millisecond, Closing: 5 * time.Second}

// MaxForm is the maximum size of the form of a write that goes through a log.
const MaxForm = maxEnvelope - 2*goodEnvelope

func errTooLong() error {
	return relay.Errorf(relay.PayloadTooLarge, "the request is longer than the %d bytes that an entry of the log can have",
		MaxForm)
}

// proposal is a job in the queue of a proposer.
type proposal struct {
	engine.Job
	until time.Time // when it times out
}

// inflight is an envelope that was submitted to the log and not yet seen by the follower.
type inflight struct {
	counter uint64
	bytes   int // of the envelope
	jobs    []engine.Job
	until   time.Time
	met     chan struct{} // closed when the follower has seen it
}

func newProposer(w *engine.Store, log Log, id file.LogID) *Proposer {
	p := &Proposer{w: w, log: log, logID: id, Timeouts: usualTimeouts, wake: make(chan struct{}, 1),
		ended: make(chan struct{}), drained: make(chan struct{}), queue: engine.NewQueue(maxEnvelopeWrites, goodEnvelope),
		inflight: map[uint64]*inflight{}}
	rand.Read(p.Origin[:]) // never fails (crypto/rand)
	p.closing, p.cancel = context.WithCancel(context.Background())
	return p
}

// enqueue queues the job of a write for the log. If the queue is full, or this node has
// no room for the write, enqueue calls Finish itself. Any goroutine may call it.
func (p *Proposer) enqueue(j engine.Job, of relay.MechaNumber) {
	if err := p.add(j, of); err != nil {
		j.Finish(err)
		return
	}
	p.signal()
}

func (p *Proposer) add(j engine.Job, of relay.MechaNumber) error {
	// a decision of one machine, which the others must not repeat
	if m, ok := j.Shared().(*relay.SendMessage); ok && m.DiskFull {
		return engine.ErrDiskFull()
	}
	if err := p.refusal(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shut {
		return readers.ErrShuttingDown()
	}
	return p.queue.Add(of, j.Size(), engine.QueuedJob{Job: &proposal{j, time.Now().Add(p.Timeouts.Queued)}})
}

func (p *Proposer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// run is the proposer's goroutine.
func (p *Proposer) run() {
	defer close(p.ended)
	tick := time.NewTicker(p.Timeouts.Poll)
	defer tick.Stop()
	for {
		batch, shut := p.take()
		err := p.refusal()
		if p.closing.Err() != nil {
			err = readers.ErrShuttingDown()
		}
		switch {
		case len(batch) > 0 && err != nil:
			p.refuse(batch, err)
			p.reuse(batch)
		case len(batch) > 0:
			f, envelope := p.seal(batch)
			p.reuse(batch)
			if f != nil {
				p.send(f, envelope, tick.C)
			}
		case shut:
			return
		default:
			select {
			case <-p.wake:
			case <-tick.C:
				p.poll(time.Now())
			}
		}
	}
}

// take takes the writes of the next envelope. It takes none while too many are in flight or
// this node is cut off, unless all are to be refused. shut says that no more will come.
func (p *Proposer) take() (batch []engine.QueuedJob, shut bool) {
	cut := p.w.CheckFresh() != nil
	p.mu.Lock()
	defer p.mu.Unlock()
	if (len(p.inflight) >= MaxInflight || p.inflightBytes >= maxInflightBytes || cut) && p.closing.Err() == nil {
		return nil, false
	}
	return p.queue.Take(), p.shut
}

func (p *Proposer) reuse(batch []engine.QueuedJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue.Reuse(batch)
}

// seal makes an envelope of a batch. f is nil if no write is left that the log can take.
func (p *Proposer) seal(batch []engine.QueuedJob) (f *inflight, envelope []byte) {
	f = &inflight{counter: p.counter + 1, until: time.Now().Add(p.Timeouts.Inflight), met: make(chan struct{})}
	var body, form []byte
	for _, o := range batch {
		j := o.Job.(*proposal).Job
		if form = relay.AppendWrite(form[:0], j.Shared()); len(form) > MaxForm {
			p.w.FinishLater(j, errTooLong())
			continue
		}
		if p.rules != nil && relay.RulesOf(j.Shared(), form) > p.rules() {
			p.w.FinishLater(j, errNotYet())
			continue
		}
		f.jobs = append(f.jobs, j)
		body = AppendToEnvelope(body, form)
	}
	if len(f.jobs) == 0 {
		return nil, nil
	}
	p.counter++
	head := AppendEnvelope(make([]byte, 0, envelopeHead+len(body)), p.logID, p.Origin, f.counter, len(f.jobs))
	envelope = append(head, body...)
	f.bytes = len(envelope)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inflight[f.counter] = f
	p.inflightBytes += f.bytes
	return f, envelope
}

// send submits an envelope to the log, repeatedly, until the log has accepted it or the
// follower has seen it. If that takes too long, or the store closes, send gives up.
func (p *Proposer) send(f *inflight, envelope []byte, tick <-chan time.Time) {
	ctx, cancel := context.WithDeadline(p.closing, f.until)
	defer cancel()
	for pause := p.Timeouts.Retry; ; pause = min(2*pause, p.Timeouts.MaxRetry) {
		if err := p.append(ctx, f, envelope, tick); err == nil {
			return
		} else if ctx.Err() == nil && pause == p.Timeouts.Retry { // once for each envelope
			p.w.Opts.Logger.Warn("the log does not take writes just now", "error", err)
		}
		again := time.After(pause)
		for waits := true; waits; {
			select {
			case <-again:
				waits = false
			case <-f.met:
				return
			case <-tick:
				p.poll(time.Now())
			case <-ctx.Done():
				p.giveUp(f)
				return
			}
		}
	}
}

// append submits an envelope to the log once, and waits for the log or the follower.
// Meanwhile it checks for timeouts.
func (p *Proposer) append(ctx context.Context, f *inflight, envelope []byte, tick <-chan time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.log.Append(ctx, p.Origin.ID(f.counter), envelope) }()
	for {
		select {
		case err := <-done:
			return err
		case <-f.met:
			cancel()
			<-done
			return nil
		case <-tick:
			p.poll(time.Now())
		}
	}
}

// poll ends everything that has timed out: writes that were not proposed, and envelopes that
// were not seen. After the store has failed it ends all, because no envelope will be seen.
func (p *Proposer) poll(now time.Time) {
	refusal, failed := p.refusal(), p.w.Failed() != nil
	p.mu.Lock()
	late := p.queue.Remove(func(o engine.QueuedJob) bool { return refusal != nil || now.After(o.Job.(*proposal).until) })
	var lost []*inflight
	for _, f := range p.inflight {
		if failed || now.After(f.until) {
			lost = append(lost, f)
		}
	}
	p.mu.Unlock()
	for _, f := range lost {
		p.giveUp(f)
	}
	if refusal == nil {
		e := relay.Errorf(relay.Overloaded, "the log takes no writes just now; nothing was written")
		e.RetryAfter = time.Second
		refusal = e
	}
	p.refuse(late, refusal)
}

func (p *Proposer) refuse(batch []engine.QueuedJob, err error) {
	for _, o := range batch {
		p.w.FinishLater(o.Job.(*proposal).Job, err)
	}
}

// giveUp ends the jobs of an envelope, unless the follower has seen it. Their outcome is
// unknown: the log may have the envelope, or still get it.
func (p *Proposer) giveUp(f *inflight) {
	for _, j := range p.land(f.counter) {
		p.w.FinishLater(j, engine.ErrUnknown("the log did not say in time whether it has taken the request", nil))
	}
}

// claim hands the jobs that wait for an envelope, or nil, over to the caller. The follower
// calls it.
func (p *Proposer) claim(e Envelope) []engine.Job {
	if e.Origin != p.Origin {
		return nil
	}
	return p.land(e.Counter)
}

// land removes an envelope from inflight, and returns its jobs. It does so once for each envelope.
func (p *Proposer) land(counter uint64) []engine.Job {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.inflight[counter]
	if f == nil {
		return nil
	}
	delete(p.inflight, counter)
	p.inflightBytes -= f.bytes
	close(f.met)
	p.signal() // there may be room for the next envelope
	p.sayDrained()
	return f.jobs
}

// sayDrained closes drained if nothing waits. The caller must hold the lock.
func (p *Proposer) sayDrained() {
	if !p.shut || len(p.queue.Items()) > 0 || len(p.inflight) > 0 {
		return
	}
	select {
	case <-p.drained:
	default:
		close(p.drained)
	}
}

// close refuses further writes. It proposes the waiting writes, and waits for all outcomes,
// until moment ends: then writes that were not proposed are refused, and the outcome of the
// others is unknown. The writer ends their jobs. It is called once.
func (p *Proposer) close(moment context.Context) {
	p.mu.Lock()
	p.shut = true
	p.mu.Unlock()
	p.signal()
	select {
	case <-p.ended:
		p.mu.Lock()
		p.sayDrained()
		p.mu.Unlock()
		select {
		case <-p.drained:
		case <-moment.Done():
		}
	case <-moment.Done():
	}
	p.cancel()
	p.signal()
	<-p.ended
	p.mu.Lock()
	var lost []*inflight
	for _, f := range p.inflight {
		lost = append(lost, f)
	}
	p.mu.Unlock()
	for _, f := range lost {
		p.giveUp(f)
	}
}

// waiting returns how many writes wait to be proposed, and the time of the oldest. Any
// goroutine may call it.
func (p *Proposer) waiting() (n int, oldest time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n = len(p.queue.Items()); n > 0 {
		oldest = p.queue.Items()[0].Job.Shared().When()
	}
	return n, oldest
}
