package search

import (
	"context"
	"errors"
	"time"

	"relay/db/relay"
)

const (
	pageSize    = 1000 // entries a batch: a batch costs one fsync, however large
	retryAfter  = time.Second
	reportEvery = 5 * time.Second
	worthALine  = pageSize // from how many entries on a catch-up is worth a line in the log
)

// Follow keeps the index at what source has, until ctx ends or the index is
// closed: it reads all that is behind the watermark, then waits for Wake. A
// change is in the index a batch's time (some 10 ms) after Wake. Faults of the
// source are logged and tried again; an index that fails is made anew. It
// returns ctx's error, or nil after Close. Only one Follow may run at a time.
func (x *Index) Follow(ctx context.Context, source Source) error {
	if !x.following.CompareAndSwap(false, true) {
		return errors.New("search: the index follows a source already")
	}
	defer x.following.Store(false)
	if !x.enter() {
		return nil
	}
	defer x.follows.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.stopped, cancel)()

	checked := false
	for ctx.Err() == nil {
		err := x.catchUp(ctx, source, &checked)
		var pause <-chan time.Time
		if err != nil && ctx.Err() == nil {
			x.log.Error("search index does not follow", "cause", err)
			pause = time.After(retryAfter)
		}
		x.ready.CompareAndSwap(false, err == nil)
		select {
		case <-x.bell:
		case <-pause:
		case <-ctx.Done():
		}
	}
	if x.stopped.Err() != nil {
		return nil
	}
	return ctx.Err()
}

// enter counts a Follow that Close must wait for, unless Close has begun.
func (x *Index) enter() bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.store == nil || x.stopped.Err() != nil {
		return false
	}
	x.follows.Add(1)
	return true
}

// catchUp applies page after page until source has no more. Before the first,
// it makes sure that the index is of this source.
func (x *Index) catchUp(ctx context.Context, source Source, checked *bool) error {
	began, reported, applied, remade, busy := time.Now(), time.Now(), 0, false, false
	for {
		if x.damaged.Load() {
			if err := x.replace(&DamageError{errors.New("a search met it")}); err != nil {
				return err
			}
		}
		at, last, err := x.position()
		if err == nil && !*checked {
			if err = x.checkSource(ctx, source, at, last); err == nil {
				*checked = true
			}
		}
		var page []relay.Entry
		if err == nil {
			page, err = source.EntriesAfter(ctx, at.revision, pageSize)
		}
		if err == nil && len(page) > 0 {
			err = x.apply(page)
		}
		var damage *DamageError
		if errors.As(err, &damage) && !remade {
			remade = true // once a round: what is damaged again at once is not the index
			if err = x.replace(damage); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		applied += len(page)
		if !busy && applied >= worthALine {
			busy = true
			x.busy(true)
			defer x.busy(false)
		}
		if time.Since(reported) > reportEvery {
			reported = time.Now()
			x.log.Info("search index catches up", "entries", applied, "revision", page[len(page)-1].Revision)
		}
	}
	if applied >= worthALine || !x.ready.Load() {
		x.log.Info("search index is up to date", "entries", applied, "seconds", time.Since(began).Seconds())
	}
	return nil
}

// position tells how far the index is, and what it has applied last.
func (x *Index) position() (p position, r recent, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	defer guard(&err)
	if x.store == nil {
		return p, r, errClosed
	}
	v, err := x.store.view()
	if err != nil {
		return p, r, err
	}
	defer v.Close()
	r, err = v.recent()
	return v.position, r, err
}

func (x *Index) apply(page []relay.Entry) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.store == nil {
		return errClosed
	}
	return x.store.apply(page)
}

// viewSafely is view for callers without a guard of their own.
func (s *store) viewSafely() (v *view, err error) {
	defer guard(&err)
	return s.view()
}
