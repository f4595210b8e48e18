package search

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"relay/db/relay"
)

// recent is what the index has applied last: how it tells the store that it
// followed from one that shares only a part of its past, as when a backup was
// restored and went another way.
type recent struct {
	// list has each Mecha once, with the revision that the index has of it, in
	// the order of revisions. The last one is the watermark.
	list []position
	// all says that nothing has been left out: the index has no others.
	all bool
}

// maxRecent bounds the list. If all on it have changed again unseen, the index
// is made anew, which then costs little more than what it must read anyway.
const maxRecent = 256

// with gives what is recent after a page of entries. latest says which entry
// of a Mecha counts.
func (r recent) with(page []relay.Entry, latest map[relay.MechaNumber]int) recent {
	next := recent{all: r.all}
	for _, p := range r.list {
		if _, again := latest[p.id]; !again {
			next.list = append(next.list, p)
		}
	}
	for i := range page {
		if latest[page[i].Number] == i {
			next.list = append(next.list, position{page[i].Revision, page[i].Number})
		}
	}
	if more := len(next.list) - maxRecent; more > 0 {
		next.list, next.all = next.list[more:], false
	}
	return next
}

func (r recent) encode() []byte {
	b := []byte{0}
	if r.all {
		b[0] = 1
	}
	for _, p := range r.list {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.revision)), uint64(p.id))
	}
	return b
}

// recent reads what was applied last. An index that does not say, or that a
// program which keeps no such list went on with, knows nothing.
func (v *view) recent() (r recent, err error) {
	if v.position.revision == 0 {
		return recent{all: true}, nil
	}
	b, err := v.GetInternal(keyRecent)
	if err != nil {
		return r, &DamageError{err}
	}
	if len(b) == 0 {
		return r, nil
	}
	r.all = b[0] == 1
	for d := (decoder{b: b[1:]}); len(d.b) > 0; {
		r.list = append(r.list, position{int64(d.long()), relay.MechaNumber(d.long())})
		if d.failed {
			return r, &DamageError{errRecord}
		}
	}
	if n := len(r.list); n == 0 || r.list[n-1] != v.position {
		return recent{}, nil
	}
	return r, nil
}

// checkSource makes sure that the index is of the source's own past. Revisions
// are never given twice, so an entry that the source has with the very revision
// that the index has shows that they agree up to there. Beyond it, what the
// index has must stand in the source as well, or have changed since the
// watermark: that, the index will read.
func (x *Index) checkSource(ctx context.Context, source Source, at position, r recent) error {
	if at.revision == 0 {
		return nil
	}
	page, err := source.EntriesAfter(ctx, at.revision-1, 1)
	switch {
	case err != nil:
		return err
	case len(page) == 0:
		return &DamageError{errors.New("the index is ahead of the store")}
	case page[0].Revision == at.revision && page[0].Number != at.id:
		return &DamageError{errors.New("the index is of another store")}
	case page[0].Revision == at.revision:
		return nil
	case len(r.list) == 0:
		return &DamageError{errors.New("it cannot be told whether the index is of this store")}
	}
	return x.compareRecent(ctx, source, at, r)
}

// compareRecent goes through all that is recent, for the watermark's own entry
// has changed since.
func (x *Index) compareRecent(ctx context.Context, source Source, at position, r recent) error {
	unseen := make(map[relay.MechaNumber]int64, len(r.list))
	for _, p := range r.list {
		unseen[p.id] = p.revision
	}
	agrees := r.all
	for after := r.list[0].revision - 1; len(unseen) > 0; {
		page, err := source.EntriesAfter(ctx, after, pageSize)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return &DamageError{fmt.Errorf("the store has gone back, and then another way: %d entries are older there", len(unseen))}
		}
		for i := range page {
			after = page[i].Revision
			switch {
			case after > at.revision && !agrees:
				return &DamageError{errors.New("it cannot be told whether the index is of this store: all that it applied last has changed")}
			case after > at.revision: // will be read
			case unseen[page[i].Number] != after:
				return &DamageError{errors.New("the store has gone another way than the index")}
			default:
				agrees = true
			}
			delete(unseen, page[i].Number)
		}
	}
	return nil
}
