package search

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"relay/db/relay"
)

// Search answers a request (PROTOCOL §5). It fails with InvalidRequest or InvalidLimit,
// which name the field, if the request is wrong; with ErrBusy or ErrCallerBusy if too
// many searches are running; with Overloaded if the index is found damaged, which Follow
// then rebuilds; with ShuttingDown after Close; or with ctx's error. Any number of
// goroutines may call Search; Options.Concurrency of them run at once.
func (x *Index) Search(ctx context.Context, req Request) (*Result, error) {
	began := time.Now()
	if err := checkRequest(&req); err != nil {
		return nil, err
	}
	result, weights, err := x.searchInTurn(ctx, &req)
	var damage *DamageError
	if errors.As(err, &damage) {
		x.log.Error("a search found damage in the search index", "cause", err)
		x.damaged.Store(true)
		x.Wake()
		return nil, &relay.Error{Code: relay.Overloaded, Detail: "the search index is being rebuilt",
			RetryAfter: time.Second, Cause: err}
	}
	if err != nil {
		return nil, err
	}
	if req.Highlight && req.Lookup != nil {
		if err := highlight(ctx, &req, result, weights); err != nil {
			return nil, err
		}
	}
	result.TookMS = time.Since(began).Milliseconds()
	return result, nil
}

// searchInTurn waits for the caller's turn, and searches.
func (x *Index) searchInTurn(
	ctx context.Context, req *Request,
) (result *Result, weights map[string]float64, err error) {
	if err := x.turns.Take(ctx, req.Caller, maxWaiting); err != nil {
		return nil, nil, err
	}
	defer x.turns.Give(req.Caller)
	return x.search(ctx, req)
}

// search answers from one view of the index. It also returns the weights of the
// query's terms, for highlights.
func (x *Index) search(ctx context.Context, req *Request) (result *Result, weights map[string]float64, err error) {
	defer recoverDamage(&err)
	defer panicOnFault()()
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
	s := &searcher{v: v, ctx: ctx, req: req, boost: x.boost,
		clock: clock{ctx: ctx, deadline: time.Now().Add(x.budget), budget: x.budget}}
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
	result.Partial = s.clock.expired
	return result, s.highlightWeights(), nil
}

// run fills in the result.
func (s *searcher) run(result *Result) error {
	s.takeBuffers()
	err := s.answer(result)
	s.returnBuffers()
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
	result.CorrectedQuery, result.Words = s.query.corrected, s.query.subject
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

// find lists, in ascending order, the numbers of the documents that have a term
// of the query, or a name that is the query or similar to it.
func (s *searcher) find() ([]uint64, error) {
	var err error
	if s.query, err = s.parseQuery(s.req.Query); err != nil {
		return nil, err
	}
	if err := s.scoreCoarsely(); err != nil {
		return nil, err
	}
	if err := s.findExactSkills(); err != nil {
		return nil, err
	}
	if err := s.findNames(); err != nil {
		return nil, err
	}
	s.minTrigrams = s.trigramThreshold()
	s.buffers.list = s.similar.appendTo(s.buffers.list[:0])
	for _, n := range s.buffers.list {
		if s.isNameCandidate(n) {
			s.found.add(n)
		}
	}
	for n := range s.exact {
		s.found.add(n)
	}
	if err := s.prepareBoost(); err != nil {
		return nil, err
	}
	for _, n := range s.wellKnown {
		s.found.add(n)
	}
	found := s.found.appendTo(s.buffers.list[:0])
	s.buffers.list = found
	for _, n := range found {
		s.bestCoarse = max(s.bestCoarse, s.coarse[n])
	}
	return found, nil
}

// scoreCoarsely adds up the BM25 of the combined text over the query's terms, in a fixed
// order, because floating-point sums depend on the order. The heaviest terms come first,
// so that a search that runs out of time has used the best.
func (s *searcher) scoreCoarsely() error {
	average := max(float64(s.v.totals.text)/max(float64(s.v.totals.documents), 1), 1)
	var err error
	if s.lengths, err = s.v.columns.lengthsOf(s.v); err != nil {
		return err
	}
	for i := range s.query.terms {
		s.maxCoarse += s.query.terms[i].weight * s.query.terms[i].idf * (coarseK1 + 1)
	}
	for _, i := range byWeight(s.query.terms) {
		if err := s.scoreTerm(&s.query.terms[i], average); err != nil {
			return err
		}
		if s.clock.over() {
			break
		}
	}
	return nil
}

// byWeight lists the indices of the terms, the heaviest first.
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
