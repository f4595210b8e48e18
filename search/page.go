package search

import (
	"cmp"
	"slices"
	"strings"
)

// page returns the candidates on the requested page, and all documents that match: found,
// without documents that share too little with the query's name.
func (s *searcher) page(found []uint64) ([]*candidate, []uint64, error) {
	switch {
	case s.req.Query == "":
		return s.pageByKey(found)
	case s.req.Sort == ByRecent, s.req.Sort == ByName:
		// The matches must not depend on the sort order, so the documents
		// found by their names alone are examined here too.
		byName := slices.DeleteFunc(slices.Clone(found), func(n uint64) bool { return s.coarse[n] > 0 })
		list, err := s.examineAll(byName)
		if err != nil {
			return nil, nil, err
		}
		_, found = s.dropNoMatches(list, found)
		return s.pageByKey(found)
	}
	best, err := s.chooseCandidates(found)
	if err != nil {
		return nil, nil, err
	}
	list, err := s.examineAll(best)
	if err != nil {
		return nil, nil, err
	}
	list, found = s.dropNoMatches(list, found)
	s.score(list)
	slices.SortFunc(list, byScore)
	if len(found) > len(list) {
		list = s.dropFarKnown(list)
	}
	from, to := s.req.Offset, s.req.Offset+s.req.Limit
	if to > len(list) && len(found) > len(list) {
		if list, err = s.appendRest(list, found); err != nil {
			return nil, nil, err
		}
	}
	return s.examineRest(list[min(from, len(list)):min(to, len(list))]), found, nil
}

// examineRest examines the documents of a page that were not candidates, for
// the parts of a hit other than the score.
func (s *searcher) examineRest(page []*candidate) []*candidate {
	for i, c := range page {
		if c.scores != nil {
			continue
		}
		if list, err := s.examineAll([]uint64{c.doc}); err == nil && len(list) == 1 {
			list[0].raw, list[0].score, list[0].boost = c.raw, c.score, c.boost
			page[i] = list[0]
		}
	}
	return page
}

func byScore(a, b *candidate) int {
	if a.score != b.score {
		return cmp.Compare(b.score, a.score)
	}
	return strings.Compare(string(a.address), string(b.address))
}

// dropNoMatches removes the candidates that have no term of the query and no
// name similar enough to it.
func (s *searcher) dropNoMatches(list []*candidate, found []uint64) ([]*candidate, []uint64) {
	none := map[uint64]bool{}
	list = slices.DeleteFunc(list, func(c *candidate) bool {
		if c.coarse == 0 && c.bonus == 0 && !c.nearName && c.exact == notExact && !s.isWellKnown(c.doc) {
			none[c.doc] = true
		}
		return none[c.doc]
	})
	if len(none) > 0 {
		found = slices.DeleteFunc(found, func(n uint64) bool { return none[n] })
	}
	return list, found
}

// chooseCandidates returns the documents to score finely: those with the best
// coarse scores, maxCandidates in all, every one found by name, and the well-known
// ones. Of documents with equal scores the first addresses are taken.
func (s *searcher) chooseCandidates(found []uint64) ([]uint64, error) {
	if len(found) <= maxCandidates {
		return found, nil
	}
	lowest := lowestOf(found, maxCandidates, s.coarseScore)
	var best, ties []uint64
	for _, n := range found {
		switch score := s.coarseScore(n); {
		case score > lowest || s.isNameCandidate(n):
			best = append(best, n)
		case score == lowest:
			ties = append(ties, n)
		}
	}
	ties, err := s.firstAddresses(ties, max(maxCandidates-len(best), 0))
	if err != nil {
		return nil, err
	}
	best = append(best, ties...)
	slices.Sort(best)
	for _, n := range s.wellKnown {
		if i, chosen := slices.BinarySearch(best, n); !chosen {
			best = slices.Insert(best, i, n)
			s.boostedOnly = append(s.boostedOnly, n)
		}
	}
	return best, nil
}

// highest returns the documents with the highest scores, at most limit. Of documents with
// equal scores, it takes the first addresses.
func (s *searcher) highest(docs []uint64, limit int, score func(uint64) float64) ([]uint64, error) {
	if len(docs) <= limit {
		return docs, nil
	}
	lowest := lowestOf(docs, limit, score)
	var best, ties []uint64
	for _, n := range docs {
		switch c := cmp.Compare(score(n), lowest); {
		case c > 0:
			best = append(best, n)
		case c == 0:
			ties = append(ties, n)
		}
	}
	ties, err := s.firstAddresses(ties, limit-len(best))
	return append(best, ties...), err
}

// firstAddresses returns the documents with the first addresses, at most limit. docs must
// ascend.
func (s *searcher) firstAddresses(docs []uint64, limit int) ([]uint64, error) {
	if len(docs) <= limit {
		return docs, nil
	}
	addresses := map[uint64]string{}
	if err := s.eachMeta(docs, func(n uint64, m meta) { addresses[n] = string(m.address) }); err != nil {
		return nil, err
	}
	slices.SortFunc(docs, func(a, b uint64) int { return strings.Compare(addresses[a], addresses[b]) })
	return docs[:limit], nil
}

// dropFarKnown removes from the candidates, which are sorted, those that are candidates
// only by a Boost and come after all others. appendRest puts them in their place among
// the documents that were not candidates, whose order they must not affect.
func (s *searcher) dropFarKnown(list []*candidate) []*candidate {
	for len(list) > 0 && slices.Contains(s.boostedOnly, list[len(list)-1].doc) {
		list = list[:len(list)-1]
	}
	return list
}

// lowestOf returns the lowest of the best limit scores, of more documents than that. Our
// own heap takes a third of the time of container/heap, or of inserting into a sorted
// slice; sorting all scores of 10,000 documents would take 1 ms, as long as the rest of
// the search.
func lowestOf(docs []uint64, limit int, score func(uint64) float64) float64 {
	best := slices.Repeat([]float64{-1}, limit) // a heap: the lowest comes first
	for _, n := range docs {
		if score := score(n); score > best[0] {
			best[0] = score
			siftDown(best)
		}
	}
	return best[0]
}

// siftDown moves the first element of a heap down to its place.
func siftDown(heap []float64) {
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if child >= len(heap) || heap[i] <= heap[child] {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// appendRest appends the documents that were not candidates, in the order of
// their coarse scores. None gets a higher score than a candidate.
func (s *searcher) appendRest(list []*candidate, found []uint64) ([]*candidate, error) {
	examined := make(map[uint64]bool, len(list))
	ceiling := 1.0
	for _, c := range list {
		examined[c.doc] = true
		ceiling = min(ceiling, c.score)
	}
	docs := slices.DeleteFunc(slices.Clone(found), func(n uint64) bool { return examined[n] })
	rest := make([]*candidate, 0, len(docs))
	err := s.eachMeta(docs, func(n uint64, m meta) {
		c := &candidate{doc: n, id: m.id, address: m.address, coarse: s.coarse[n], boost: s.boostOf(n)}
		c.raw = s.coarseScore(n) + c.boost
		c.score = min(round(textSpan*s.normalScore(c.raw)), ceiling)
		rest = append(rest, c)
	})
	slices.SortFunc(rest, byScore)
	return append(list, rest...), err
}

// pageByKey sorts by time or by address, which the metadata has.
func (s *searcher) pageByKey(found []uint64) ([]*candidate, []uint64, error) {
	type row struct {
		doc uint64
		meta
	}
	rows := make([]row, 0, len(found))
	if err := s.eachMeta(found, func(n uint64, m meta) { rows = append(rows, row{n, m}) }); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(rows, func(a, b row) int {
		if s.req.Sort == ByRecent && a.updated != b.updated {
			return cmp.Compare(b.updated, a.updated)
		}
		return strings.Compare(string(a.address), string(b.address))
	})
	from, to := min(s.req.Offset, len(rows)), min(s.req.Offset+s.req.Limit, len(rows))
	var docs []uint64
	for _, r := range rows[from:to] {
		docs = append(docs, r.doc)
	}
	list, err := s.examineAll(docs)
	if err != nil {
		return nil, nil, err
	}
	s.score(list)
	return list, found, nil
}
