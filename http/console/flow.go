package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

const (
	lookEvery = 250 * time.Millisecond // while a page is open
	idleEvery = 5 * time.Second        // while nobody looks
	// events that are read after one look; of more, the newest are shown, and the others counted
	readAtOnce = 100
	sampleOf   = 20               // events that are read of more
	countRows  = 20_000           // rows that are counted in one view
	backfill   = 200_000          // events of the last hour that are counted at the start
	keptEvents = 300              // for pages that come back
	mayReturn  = 15 * time.Second // after which nothing is read any more for a page that has left
	heardEvery = 5 * time.Second
	measured   = 10 * time.Second // between two measurements of the server
	stuckAfter = 8 * time.Second  // without a look at the file, which there is at least every idleEvery
)

// flow follows what is committed, once for all pages. Its own memory, and that of each page,
// is bounded: of more events than can be shown it reads a few, and counts the others.
type flow struct {
	c        *Console
	hour     series
	mu       sync.Mutex
	at       relay.Position // all events up to here are counted
	measured bool           // measure was called; only run uses it
	more     bool           // there are events that are not counted yet; only run uses it
	sampled  relay.Position // events up to here were shown, some of them; only run uses it
	counted  bool           // the last hour was counted at the start
	pushes   relay.Position // and all notes of pushes up to here; only run uses it
	kept     []browse.Event
	from     relay.Position // after this position, kept has all events but those that were passed over
	pages    map[*page]bool
	behind   time.Duration // how old the events are that are counted; 0: all are
	left     time.Time     // when the latest page has left, or was asked for
	ask      chan struct{} // a page wants a look at the file now
	begun    int           // looks at the file
	ended    int           // likewise
	look     chan struct{} // is closed when the look that runs, or the next one, ends
	failed   error         // why the file could not be read; nil: it can
	readAt   time.Time     // when all was read for the last time
}

// A page is one that listens. Its fields are guarded by flow.mu.
type page struct {
	wake   chan struct{}
	events []browse.Event
	total  int // events since the last take, with those that are not in events
}

func newFlow(c *Console) *flow {
	return &flow{c: c, pages: map[*page]bool{}, ask: make(chan struct{}, 1), look: make(chan struct{})}
}

// run follows the file until the console closes.
func (f *flow) run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	begun := false
	var looked, measuredAt time.Time
	for {
		now := f.c.config.Now()
		f.pollStarted()
		if !begun {
			err := f.begin(now)
			f.note(err, now)
			begun = err == nil
		} else if f.listened() || now.Sub(looked) >= idleEvery {
			// More is left only if more happens than one look counts: then the next one is soon.
			looked = now
			f.note(f.follow(now), now)
		}
		f.pollEnded()
		if now.Sub(measuredAt) >= measured {
			measuredAt = now
			f.measure(now)
		}
		select {
		case <-f.c.ctx.Done():
			return
		case <-tick.C:
		case <-f.ask:
		}
	}
}

func (f *flow) pollStarted() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun++
}

func (f *flow) pollEnded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = f.begun
	close(f.look)
	f.look = make(chan struct{})
}

// catchUp waits for lookWait, at most, until what is committed is counted: while nobody looked, the
// file was read seldom. It reports whether that is so.
func (f *flow) catchUp(ctx context.Context) bool {
	f.mu.Lock()
	before := f.begun
	f.mu.Unlock()
	select {
	case f.ask <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, lookWait)
	defer cancel()
	for {
		f.mu.Lock()
		ended, woken := f.ended, f.look
		f.mu.Unlock()
		if ended > before {
			return true
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return false
		}
	}
}

// begin counts the last hour, as far back as that takes a bounded time.
func (f *flow) begin(now time.Time) error {
	at, err := f.c.config.Store.Back(now.Add(-time.Hour), backfill)
	if err != nil {
		return err
	}
	from := at.Time()
	var all []survey.Span // added when all are read: after a failure, begin is called again
	for {
		a, err := f.c.config.Store.Activity(at, spanLength, countRows)
		if err != nil {
			return err
		}
		all = append(all, a.Spans...)
		if at = a.Upto; !a.More {
			break
		}
		select {
		case <-f.c.ctx.Done():
			return f.c.ctx.Err()
		case <-time.After(10 * time.Millisecond): // the server's log must get its pauses
		}
	}
	if _, f.pushes, err = f.c.config.Store.NewestPushes(0); err != nil {
		return err
	}
	f.hour.begin(from, all, now)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.from, f.counted = at, at, true
	for p := range f.pages {
		p.add(0, nil) // the pages that say that the hour is being counted
	}
	return nil
}

// follow counts what was committed since the last time, and reads what can be shown.
func (f *flow) follow(now time.Time) error {
	store := f.c.config.Store
	changed, err := store.Changed()
	if err != nil || !changed && !f.more {
		return err
	}
	a, err := store.Activity(f.at, spanLength, countRows) // only this goroutine writes f.at
	if err != nil {
		return err
	}
	f.more = a.More
	f.hour.add(a.Spans, now)
	total := a.Total().Events
	pushed, err := f.pushed(total)
	if err != nil || total+len(pushed) == 0 {
		return err
	}
	var events []browse.Event
	if f.listened() {
		if total <= readAtOnce {
			events, err = store.Events(f.at, total)
		} else if events, err = store.Newest(sampleOf); err == nil {
			events = slices.DeleteFunc(events, func(e browse.Event) bool { return e.Position <= max(f.at, f.sampled) })
		}
		if err != nil {
			return err
		}
	}
	if n := len(events); n > 0 { // the newest may be beyond what is counted: the count continues where it is
		f.sampled = max(f.sampled, events[n-1].Position)
	}
	f.tell(a.Upto, a.More, total, events, pushed)
	return nil
}

// pushed reads what was written to sockets since the last time, unless too much happens.
func (f *flow) pushed(total int) (list []browse.Event, err error) {
	if !f.listened() || total > readAtOnce {
		_, f.pushes, err = f.c.config.Store.NewestPushes(0)
		return nil, err
	}
	list, f.pushes, err = f.c.config.Store.Pushes(f.pushes, readAtOnce)
	return list, err
}

// tell hands events to the pages. Pushes are not part of the shared order, and a page that comes
// back is not told of them. more tells that later events are not counted yet.
func (f *flow) tell(upto relay.Position, more bool, total int, events, pushes []browse.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behind = 0
	if more {
		f.behind = max(f.c.config.Now().Sub(upto.Time()), 0)
	}
	if f.at = upto; len(events) < total {
		f.kept, f.from = nil, f.at
	} else {
		f.kept = append(f.kept, events...)
		if more := len(f.kept) - keptEvents; more > 0 {
			f.from = f.kept[more-1].Position
			f.kept = append(f.kept[:0], f.kept[more:]...)
		}
	}
	all := inOrder(events, pushes)
	for p := range f.pages {
		p.add(total+len(pushes), all)
	}
}

// inOrder merges events and pushes by the times that their rows show.
func inOrder(events, pushes []browse.Event) []browse.Event {
	all := append(slices.Clone(events), pushes...)
	slices.SortStableFunc(all, byTime)
	return all
}

// byTime compares the times that the rows of events show.
func byTime(a, b browse.Event) int {
	first, _ := dated(a.Message, a.Step)
	second, _ := dated(b.Message, b.Step)
	return first.At.Compare(second.At)
}

// add adds events that the page has not been told of. Of many, it keeps the newest.
func (p *page) add(total int, events []browse.Event) {
	p.total += total
	p.events = append(p.events, events...)
	if more := len(p.events) - readAtOnce; more > 0 {
		p.events = append(p.events[:0], p.events[more:]...)
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// measure notes what the server says of itself, and how much is pending, if that is known. It
// reads nothing of the file: nobody may be looking.
func (f *flow) measure(now time.Time) {
	pending := f.c.pendingKnown()
	var h []Histogram
	if f.c.config.Live != nil {
		h = f.c.config.Live.Health().Histograms
	}
	if !f.measured { // what the first minute is compared with
		f.hour.measured(now.Add(-spanLength), -1, h)
		f.measured = true
	}
	f.hour.measured(now, pending, h)
}

// asked notes that somebody asks for a page, which will soon listen.
func (f *flow) asked() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = time.Now()
}

// listened reports whether a page listens, or may soon do so.
func (f *flow) listened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pages) > 0 || time.Since(f.left) < mayReturn
}

// note keeps that the file was read, or why it could not be. It logs the first failure of
// several, and tells the pages when that begins and ends.
func (f *flow) note(err error, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil && f.failed == nil {
		f.c.config.Logger.Warn("the console cannot read the database", "error", err)
	}
	if (err == nil) != (f.failed == nil) {
		for p := range f.pages {
			p.add(0, nil)
		}
	}
	if f.failed = err; err == nil {
		f.readAt = now
	}
}

// listen adds a page that has seen all up to a position. leave must follow.
func (f *flow) listen(after relay.Position) (*page, error) {
	p := &page{wake: make(chan struct{}, 1)}
	f.mu.Lock()
	f.pages[p] = true
	at, missed := f.at, f.since(after)
	if missed != nil {
		p.add(len(missed), missed)
	}
	f.mu.Unlock()
	if missed != nil || after >= at {
		return p, nil
	}
	missed, total, err := f.read(after, at)
	f.mu.Lock()
	defer f.mu.Unlock()
	p.events = inOrder(missed, p.events)
	if p.add(total, nil); err != nil {
		delete(f.pages, p)
	}
	return p, err
}

// read reads the newest events between two positions, and counts all of them, up to countRows.
func (f *flow) read(after, upto relay.Position) (list []browse.Event, total int, err error) {
	if list, err = f.c.config.Store.Newest(readAtOnce); err != nil {
		return nil, 0, err
	}
	all := len(list) < readAtOnce || list[0].Position <= after
	list = slices.DeleteFunc(list, func(e browse.Event) bool { return e.Position <= after || e.Position > upto })
	if all {
		return list, len(list), nil
	}
	a, err := f.c.config.Store.Activity(after, spanLength, countRows)
	return list, max(a.Total().Events, len(list)), err
}

// since returns the kept events after a position; nil if not all of them are kept. f.mu is held.
func (f *flow) since(after relay.Position) []browse.Event {
	if after < f.from {
		return nil
	}
	n, _ := slices.BinarySearchFunc(f.kept, after, func(e browse.Event, p relay.Position) int {
		return int(min(max(e.Position-p, -1), 1))
	})
	for n < len(f.kept) && f.kept[n].Position <= after {
		n++
	}
	return append([]browse.Event{}, f.kept[n:]...)
}

func (f *flow) leave(p *page) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pages, p)
	f.left = time.Now()
}
