package search

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"relay/db/relay"
)

// Search answers a request (PROTOCOL §5). Its errors are *relay.Error for what the
// caller did (InvalidRequest and InvalidLimit name the field), ErrBusy, the
// context's own, or a fault of the index, which is then made anew. Any number
// of goroutines may search; some of them wait for a moment.
func (x *Index) Search(ctx context.Context, req Request) (*Result, error) {
	began := time.Now()
	if err := checkRequest(&req); err != nil {
		return nil, err
	}
	if err := x.takeTurn(ctx); err != nil {
		return nil, err
	}
	result, marks, err := x.search(ctx, &req)
	<-x.turns
	var damage *DamageError
	if errors.As(err, &damage) {
		x.log.Error("search met a damaged index", "cause", err)
		x.damaged.Store(true)
		x.Wake()
		return nil, &relay.Error{Code: relay.Overloaded, Detail: "the search index is being made anew", RetryAfter: time.Second, Cause: err}
	}
	if err != nil {
		return nil, err
	}
	if req.Highlight && req.Lookup != nil {
		if err := highlight(ctx, &req, result, marks); err != nil {
			return nil, err
		}
	}
	result.TookMS = time.Since(began).Milliseconds()
	return result, nil
}

// takeTurn waits for one of the places for running searches.
func (x *Index) takeTurn(ctx context.Context) error {
	select {
	case x.turns <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(x.wait)
	defer timer.Stop()
	select {
	case x.turns <- struct{}{}:
		return nil
	case <-timer.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// search answers from one view of the index. It gives the query's terms beside
// the result, for highlights.
func (x *Index) search(ctx context.Context, req *Request) (result *Result, marks map[string]float64, err error) {
	defer guard(&err)
	defer faultsPanic()()
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.store == nil {
		return nil, nil, errClosed
	}
	v, err := x.store.view()
	if err != nil {
		return nil, nil, err
	}
	defer v.Close()
	s := &searcher{v: v, ctx: ctx, req: req, clock: clock{ctx: ctx, deadline: time.Now().Add(x.budget), budget: x.budget}}
	result = &Result{AsOf: v.position.revision, RankingVersion: RankingVersion}
	if v.totals.documents == 0 {
		return result, nil, nil
	}
	if err := s.run(result); err != nil {
		if ctx.Err() == nil {
			err = &DamageError{err}
		}
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	result.Partial = s.clock.ran
	return result, s.marks(), nil
}

// run fills in the result.
func (s *searcher) run(result *Result) error {
	s.takeBuffers()
	err := s.answer(result)
	s.giveBuffers()
	return err
}

func (s *searcher) answer(result *Result) error {
	if err := s.restrict(); err != nil {
		return err
	}
	var found []uint64
	var err error
	if s.req.Query == "" {
		s.query = &query{}
		found = s.wantedDocs()
	} else if found, err = s.find(); err != nil {
		return err
	}
	result.CorrectedQuery = s.query.corrected
	page, found, err := s.page(found)
	if err != nil {
		return err
	}
	result.Total = len(found)
	for _, c := range page {
		h, err := s.hit(c)
		if err != nil {
			return err
		}
		result.Hits = append(result.Hits, h)
	}
	if len(s.req.Facets) > 0 {
		result.Facets, err = s.countFacets(found)
	}
	return err
}

// find lists the documents that have a word of the query or something of its
// name, by number.
func (s *searcher) find() ([]uint64, error) {
	var err error
	if s.query, err = s.readQuery(s.req.Query); err != nil {
		return nil, err
	}
	if err := s.scoreCoarsely(); err != nil {
		return nil, err
	}
	if err := s.findSkills(); err != nil {
		return nil, err
	}
	if err := s.findNames(); err != nil {
		return nil, err
	}
	s.nameLike = s.nameThreshold()
	s.buffers.list = s.alike.appendTo(s.buffers.list[:0])
	for _, n := range s.buffers.list {
		if s.named(n) {
			s.found.add(n)
		}
	}
	for n := range s.exact {
		s.found.add(n)
	}
	found := s.found.appendTo(s.buffers.list[:0])
	s.buffers.list = found
	for _, n := range found {
		s.top = max(s.top, s.coarse[n])
	}
	return found, nil
}

// named tells whether a document is a candidate for its name.
func (s *searcher) named(n uint64) bool {
	return s.byName && s.counts[n] >= s.nameLike || len(s.exact) > 0 && s.exact[n] > notExact
}

// nameThreshold is how many trigrams a name must have in common with the query
// to be looked at: as many as it takes for the least bonus, and more if that
// are too many names.
func (s *searcher) nameThreshold() uint8 {
	if !s.byName {
		return 255
	}
	var names [256]int // by how many trigrams they have in common
	s.buffers.list = s.alike.appendTo(s.buffers.list[:0])
	for _, n := range s.buffers.list {
		names[s.counts[n]]++
	}
	least := max(len([]rune(s.query.squeezed))/4, 1)
	total := 0
	for n := 255; n >= least; n-- {
		total += names[n]
		if total > maxCandidates {
			return uint8(min(n+1, 255))
		}
	}
	return uint8(least)
}

// page gives the hits of the page, and all that was found but for names that on
// closer look are none.
func (s *searcher) page(found []uint64) ([]*candidate, []uint64, error) {
	switch {
	case s.req.Query == "":
		return s.pageByKey(found)
	case s.req.Sort == ByRecent, s.req.Sort == ByName:
		// Who was found for a name alone may not be one: what is found must not depend on the order.
		byName := slices.DeleteFunc(slices.Clone(found), func(n uint64) bool { return s.coarse[n] > 0 })
		list, err := s.judgeAll(byName)
		if err != nil {
			return nil, nil, err
		}
		_, found = s.dropNoMatches(list, found)
		return s.pageByKey(found)
	}
	best, err := s.bestCoarsely(found)
	if err != nil {
		return nil, nil, err
	}
	list, err := s.judgeAll(best)
	if err != nil {
		return nil, nil, err
	}
	list, found = s.dropNoMatches(list, found)
	s.score(list)
	slices.SortFunc(list, byScore)
	from, to := s.req.Offset, s.req.Offset+s.req.Limit
	if to > len(list) && len(found) > len(list) {
		if list, err = s.appendRest(list, found); err != nil {
			return nil, nil, err
		}
	}
	return s.examined(list[min(from, len(list)):min(to, len(list))]), found, nil
}

// examined gives those of a page who were not judged what a hit shows beside
// the score.
func (s *searcher) examined(page []*candidate) []*candidate {
	for i, c := range page {
		if c.scores != nil {
			continue
		}
		if list, err := s.judgeAll([]uint64{c.doc}); err == nil && len(list) == 1 {
			list[0].raw, list[0].score = c.raw, c.score
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

// dropNoMatches takes out candidates that were looked at for their name alone
// and have too little of it.
func (s *searcher) dropNoMatches(list []*candidate, found []uint64) ([]*candidate, []uint64) {
	none := map[uint64]bool{}
	list = slices.DeleteFunc(list, func(c *candidate) bool {
		if c.coarse == 0 && c.bonus == 0 && !c.near && c.exact == notExact {
			none[c.doc] = true
		}
		return none[c.doc]
	})
	if len(none) > 0 {
		found = slices.DeleteFunc(found, func(n uint64) bool { return none[n] })
	}
	return list, found
}

// bestCoarsely chooses the candidates: the best by the combined text, with all
// that tie with the last of them in the order of addresses, and all found by name.
func (s *searcher) bestCoarsely(found []uint64) ([]uint64, error) {
	if len(found) <= maxCandidates {
		return found, nil
	}
	border := s.border(found)
	var best, ties []uint64
	for _, n := range found {
		switch c := s.rough(n); {
		case c > border || s.named(n):
			best = append(best, n)
		case c == border:
			ties = append(ties, n)
		}
	}
	free := max(maxCandidates-len(best), 0)
	if len(ties) > free {
		addresses := map[uint64]string{}
		if err := s.eachMeta(ties, func(n uint64, m meta) { addresses[n] = string(m.address) }); err != nil {
			return nil, err
		}
		slices.SortFunc(ties, func(a, b uint64) int { return strings.Compare(addresses[a], addresses[b]) })
		ties = ties[:free]
	}
	best = append(best, ties...)
	slices.Sort(best)
	return best, nil
}

// border is the rough score of the last that is a candidate by it.
func (s *searcher) border(found []uint64) float64 {
	h := make([]float64, 0, maxCandidates) // a heap, the least on top
	for _, n := range found {
		c := s.rough(n)
		switch {
		case len(h) < maxCandidates:
			h = append(h, c)
			for i := len(h) - 1; i > 0 && h[i] < h[(i-1)/2]; i = (i - 1) / 2 {
				h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
			}
		case c > h[0]:
			h[0] = c
			sink(h)
		}
	}
	return h[0]
}

func sink(h []float64) {
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if child >= len(h) || h[i] <= h[child] {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// appendRest adds those who were not judged finely, in the order of the
// combined text and never above one who was.
func (s *searcher) appendRest(list []*candidate, found []uint64) ([]*candidate, error) {
	judged := make(map[uint64]bool, len(list))
	ceiling := 1.0
	for _, c := range list {
		judged[c.doc] = true
		ceiling = min(ceiling, c.score)
	}
	docs := slices.DeleteFunc(slices.Clone(found), func(n uint64) bool { return judged[n] })
	rest := make([]*candidate, 0, len(docs))
	err := s.eachMeta(docs, func(n uint64, m meta) {
		c := &candidate{doc: n, id: m.id, address: m.address, coarse: s.coarse[n], raw: s.rough(n)}
		c.score = min(round(textSpan*s.normalScore(c.raw)), ceiling)
		rest = append(rest, c)
	})
	slices.SortFunc(rest, byScore)
	return append(list, rest...), err
}

// pageByKey orders by what the meta has: time, address.
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
	list, err := s.judgeAll(docs)
	if err != nil {
		return nil, nil, err
	}
	s.score(list)
	return list, found, nil
}

// byWeight lists the indices of the terms, the weightiest first.
func byWeight(terms []term) []int {
	order := make([]int, len(terms))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(terms[b].weight*terms[b].idf, terms[a].weight*terms[a].idf)
	})
	return order
}
