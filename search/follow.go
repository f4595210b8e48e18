package search

import (
	"context"
	"errors"
	"time"

	"relay/db/relay"
)

const (
	pageSize     = 1000 // entries in a batch: a batch costs one fsync, however large it is
	retryAfter   = time.Second
	reportEvery  = 5 * time.Second
	largeCatchUp = pageSize // a catch-up of at least so many entries is logged, adds processors and rests
)

// Follow keeps the index up to date with source until ctx ends or the index is
// closed: it applies all entries after the watermark, then waits for Wake. A
// change can be found about 10 ms, the time of a batch, after Wake. If source
// fails, Follow logs the error and tries again; if the index fails, Follow
// rebuilds it. Follow returns ctx's error, or nil after Close. Only one Follow
// may run at a time.
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
			x.log.Error("the search index cannot follow the directory; trying again", "cause", err)
			pause = time.After(retryAfter)
		}
		x.ready.CompareAndSwap(false, err == nil)
		select {
		case <-x.changed:
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

// catchUp applies pages until source has no more. checked is set when the index is
// known to have been built from this source.
func (x *Index) catchUp(ctx context.Context, source Source, checked *bool) error {
	began, reported, applied, replaced, raised := time.Now(), time.Now(), 0, false, false
	pace := pacer{written: x.written, now: time.Now}
	for {
		if x.damaged.Load() {
			if err := x.replace(&DamageError{errors.New("a search found damage")}); err != nil {
				return err
			}
		}
		pace.begin()
		page, err := x.applyPage(ctx, source, checked)
		var damage *DamageError
		if errors.As(err, &damage) && !replaced {
			replaced = true // once in a catch-up: if a new index fails too, the cause is elsewhere
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
		if x.written != nil && applied >= largeCatchUp {
			if !raised {
				raised = true
				defer addProcessors()()
			}
			sleep(ctx, pace.rest())
		}
		if time.Since(reported) > reportEvery {
			reported = time.Now()
			x.log.Info("the search index is catching up", "entries", applied, "revision", page[len(page)-1].Revision)
		}
	}
	if x.boost != nil {
		if err := x.boost.Follow(ctx); err != nil {
			return err
		}
	}
	if applied >= largeCatchUp || !x.ready.Load() {
		x.log.Info("the search index is up to date", "entries", applied, "seconds", time.Since(began).Seconds())
	}
	return nil
}

// applyPage applies the next page of entries and returns it.
func (x *Index) applyPage(ctx context.Context, source Source, checked *bool) ([]relay.Entry, error) {
	at, last, err := x.position()
	if err != nil {
		return nil, err
	}
	if !*checked {
		if err := checkSource(ctx, source, at, last); err != nil {
			return nil, err
		}
		*checked = true
	}
	page, err := source.EntriesAfter(ctx, at.revision, pageSize)
	if err != nil || len(page) == 0 {
		return nil, err
	}
	return page, x.apply(page)
}

// position returns the watermark and the entries applied last.
func (x *Index) position() (p position, r recent, err error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	defer recoverDamage(&err)
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
