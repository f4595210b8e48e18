package search

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"relay/db/relay"
)

// recent lists the entries that the index has applied last. They distinguish the store
// that the index followed from one that shares only a part of its past, such as a
// restored backup that has changed since.
type recent struct {
	// list has each Mecha once, with its revision in the index, in the order of
	// revisions. The last element is the watermark.
	list []position
	// complete says that the list has all entries of the index.
	complete bool
}

// maxRecent is the maximum length of the list. If all Mechas on the list have changed
// while the index did not follow, the index is rebuilt, which then costs little more than
// reading the changes.
const maxRecent = 256

// after returns the list after a page of entries. latest is the index in page of
// each Mecha's last entry.
func (r recent) after(page []relay.Entry, latest map[relay.MechaNumber]int) recent {
	next := recent{complete: r.complete}
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
		next.list, next.complete = next.list[more:], false
	}
	return next
}

func (r recent) encode() []byte {
	b := []byte{0}
	if r.complete {
		b[0] = 1
	}
	for _, p := range r.list {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.revision)), uint64(p.id))
	}
	return b
}

// recent reads the list, which is empty if an earlier version, without such a
// list, wrote the index last.
func (v *view) recent() (r recent, err error) {
	if v.position.revision == 0 {
		return recent{complete: true}, nil
	}
	b, err := v.GetInternal(keyRecent)
	if err != nil {
		return r, &DamageError{err}
	}
	if len(b) == 0 {
		return r, nil
	}
	r.complete = b[0] == 1
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

// checkSource checks that the index was built from an earlier state of this
// source, and returns a *DamageError if it was not. A revision is never assigned
// twice, so if the source and the index have the same revision of an entry, they
// agree up to there. Every later entry of the index must be in the source with the
// same revision, or have changed since the watermark; the index will read the latter.
func checkSource(ctx context.Context, source Source, at position, r recent) error {
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
		return &DamageError{errors.New("the index belongs to another store")}
	case page[0].Revision == at.revision:
		return nil
	case len(r.list) == 0:
		return &DamageError{errors.New("cannot tell whether the index belongs to this store")}
	}
	return compareRecent(ctx, source, at, r)
}

// compareRecent is checkSource when the watermark's own entry has changed since:
// it compares the other recent entries.
func compareRecent(ctx context.Context, source Source, at position, r recent) error {
	unseen := make(map[relay.MechaNumber]int64, len(r.list))
	for _, p := range r.list {
		unseen[p.id] = p.revision
	}
	agrees := r.complete
	for after := r.list[0].revision - 1; len(unseen) > 0; {
		page, err := source.EntriesAfter(ctx, after, pageSize)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return &DamageError{fmt.Errorf("the store went back to an earlier state and then changed: "+
				"%d entries are older there", len(unseen))}
		}
		for i := range page {
			after = page[i].Revision
			switch {
			case after > at.revision && !agrees:
				return &DamageError{errors.New("cannot tell whether the index belongs to this store: " +
					"all entries that it applied last have changed")}
			case after > at.revision: // changed since; the index will read it
			case unseen[page[i].Number] != after:
				return &DamageError{errors.New("the store and the index have different histories")}
			default:
				agrees = true
			}
			delete(unseen, page[i].Number)
		}
	}
	return nil
}
