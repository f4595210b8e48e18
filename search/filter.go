package search

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"relay/db/relay"

	segment "github.com/blevesearch/scorch_segment_api/v2"
)

// restrict fills hidden and wanted. Visibility comes first, since an answer must
// not depend on hidden profiles, not even in its counts and corrections.
func (s *searcher) restrict() error {
	limited := s.clock
	// findHidden must not end early: it would leave some visible
	s.clock = clock{ctx: context.Background(), deadline: limited.deadline.Add(time.Hour)}
	err := s.findHidden()
	s.clock = limited
	if err != nil {
		return err
	}
	s.wanted.fill()
	if s.hidden != nil {
		for i, h := range s.hidden {
			s.wanted[i] &^= h
		}
	}
	if err := s.exclude(); err != nil {
		return err
	}
	return s.applyFilter()
}

// findHidden fills hidden with the profiles that are not public, except the
// crew-only ones of the caller's crew and the unlisted one whose address is the query.
func (s *searcher) findHidden() error {
	hide := func(n uint64) {
		if s.hidden == nil {
			s.hidden = newBitset(s.v.size)
		}
		s.hidden.add(n)
	}
	if err := s.each(inFilter, filterHidden, hide); err != nil || s.hidden == nil {
		return err
	}
	if err := s.each(inFilter, filterInside+crewOf(s.req.Caller), s.hidden.remove); err != nil {
		return err
	}
	return s.revealByAddress()
}

// revealByAddress makes a profile that is not crew-only visible if its address,
// exactly as written, is the query; and the caller's own profile likewise.
func (s *searcher) revealByAddress() error {
	address := relay.Address(s.req.Query)
	if _, err := relay.ParseAddress(s.req.Query); err != nil {
		return nil
	}
	var inside []uint64
	if err := s.each(inFilter, filterInside+crewOf(address), func(n uint64) { inside = append(inside, n) }); err != nil {
		return err
	}
	var failed error
	err := s.each(inNames, addressMark+string(address), func(n uint64) {
		r, err := s.v.record(n)
		if err != nil {
			failed = err
			return
		}
		// inNames has the address in lower case too, which reveals nothing.
		if r.address == address && (!slices.Contains(inside, n) || address == s.req.Caller) {
			s.hidden.remove(n)
		}
	})
	return cmp.Or(err, failed)
}

// exclude removes the caller, unless its address is the query, and the addresses
// of Filter.Exclude.
func (s *searcher) exclude() error {
	list := s.req.Filter.Exclude
	if s.req.Caller != "" && !strings.EqualFold(string(s.req.Caller), s.req.Query) {
		list = append([]string{string(s.req.Caller)}, list...)
	}
	for _, address := range list {
		if err := s.each(inNames, addressMark+address, s.wanted.remove); err != nil {
			return err
		}
	}
	return nil
}

func (s *searcher) applyFilter() error {
	f := &s.req.Filter
	for _, part := range []struct {
		prefix string
		values []string
	}{
		{filterCrew, f.Crew}, {filterTag, f.Tags}, {filterSkill, f.Skills},
		{filterLanguage, f.Languages}, {filterType, f.MessageTypes},
	} {
		if len(part.values) == 0 {
			continue
		}
		any := newBitset(s.v.size)
		for _, v := range part.values {
			if part.prefix != filterCrew {
				v = filterValue(v)
			}
			if err := s.each(inFilter, part.prefix+v, any.add); err != nil {
				return err
			}
		}
		for i := range s.wanted {
			s.wanted[i] &= any[i]
		}
	}
	return s.filterByMeta()
}

// filterByMeta applies the filters by presence and time, which have no postings.
func (s *searcher) filterByMeta() error {
	f := &s.req.Filter
	if f.Online == nil && f.UpdatedSince.IsZero() {
		return nil
	}
	kept, since := newBitset(s.v.size), nanoseconds(f.UpdatedSince)
	err := s.eachMeta(s.wantedDocs(), func(n uint64, m meta) {
		online := s.req.Online != nil && s.req.Online(m.id)
		if (f.Online == nil || *f.Online == online) && m.updated >= since {
			kept.add(n)
		}
	})
	copy(s.wanted, kept)
	return err
}

// wantedDocs lists the wanted documents in ascending order, without those that
// have been deleted or replaced, whose numbers are still in wanted.
func (s *searcher) wantedDocs() []uint64 {
	var list []uint64
	for i, seg := range s.v.segments {
		for live := seg.DocNumbersLive().Iterator(); live.HasNext(); {
			if n := s.v.offsets[i] + uint64(live.Next()); s.wanted.has(n) {
				list = append(list, n)
			}
		}
	}
	return list
}

// eachMeta reads the metadata of the documents. Their numbers must ascend, so
// that each block of the index is decompressed once.
func (s *searcher) eachMeta(docs []uint64, f func(doc uint64, m meta)) error {
	return s.eachValue(inMeta, docs, func(n uint64, value []byte) {
		if m, ok := parseMeta(value); ok {
			f(n, m)
		}
	})
}

// eachValue calls f with every value that a field has in each of the
// documents, whose numbers must ascend.
func (s *searcher) eachValue(name string, docs []uint64, f func(doc uint64, value []byte)) error {
	names := []string{name}
	at := -1 // the segment
	var columns segment.DocValueVisitable
	var state segment.DocVisitState
	var n, end uint64
	visit := func(_ string, value []byte) { f(n, value) }
	for i := range docs {
		if s.clock.overAt(i) {
			return nil
		}
		for n = docs[i]; at < 0 || n >= end; {
			at++
			end = s.v.offsets[at] + uint64(s.v.segments[at].FullSize())
			columns, _ = s.v.segments[at].Segment().(segment.DocValueVisitable)
			state = nil
		}
		if columns == nil {
			return errColumns
		}
		var err error
		if state, err = columns.VisitDocValues(n-s.v.offsets[at], names, visit, state); err != nil {
			return err
		}
	}
	return nil
}

var errColumns = errors.New("search: a segment has no columns")
