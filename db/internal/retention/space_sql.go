package retention

import (
	"fmt"
	"time"

	"relay/db/file"
	"relay/db/internal/engine"
	"relay/db/relay"
)

// space decides when unused pages of the file are freed. Some stay, since new messages
// will use them.
type space struct {
	checked time.Time // by the real clock
	giving  bool      // pages are being freed
	pages   int64     // in a piece; a power of two, because each number needs its own statement
}

const (
	checkSpace = time.Second
	keptShare  = 16  // one page of so many may stay unused
	keptPages  = 256 // and these
	minPages   = 8   // in a piece
	maxPages   = 512
)

// spacePiece returns the next piece of freeing space, or nil. asked is what a command waits for,
// or nil.
func (r *Retention) spacePiece(asked *pruneRun) engine.Job {
	s := &r.space
	if !s.giving {
		if time.Since(s.checked) < checkSpace {
			return nil
		}
		s.checked = time.Now()
		free, all, err := r.pages()
		if err != nil || free <= asked.mayKeep(keptPages+all/keptShare) {
			return nil
		}
		s.giving, s.pages = true, minPages
	}
	v := &truncatePages{pages: s.pages}
	return r.localJobOf(v, func() {
		s.giving = v.cut > 0 && v.free > asked.mayKeep((keptPages+v.all/keptShare)/2)
		if asked != nil && asked.unused > 0 { // there may be new unused pages
			s.giving = s.giving && r.addResult(asked, relay.Pruned{}, v.cut*file.PageSize).Given < asked.unused
		}
		if !s.giving {
			r.w.Checkpoints.CopySoon = true // only a copied log makes the file shorter
			s.checked = time.Now()
		}
		switch {
		case r.took > r.goal:
			s.pages = max(s.pages/2, minPages)
		case r.took < r.goal/2:
			s.pages = min(s.pages*2, maxPages)
		}
	})
}

// pages counts the unused pages of the file, and all pages.
func (r *Retention) pages() (free, all int64, err error) {
	if free, err = r.w.C.Number("PRAGMA freelist_count"); err == nil {
		all, err = r.w.C.Number("PRAGMA page_count")
	}
	return free, all, err
}

// mayKeep returns how many unused pages may stay in the file: none, if a command frees them.
func (a *pruneRun) mayKeep(pages int64) int64 {
	if a != nil && a.unused > 0 {
		return 0
	}
	return pages
}

// truncatePages is the local write that moves used pages to the place of unused ones and
// cuts the unused ones off the end of the file.
type truncatePages struct {
	pages int64

	// Apply sets the fields below.

	free, all, cut int64
}

func (g *truncatePages) Size() int { return 0 }

func (g *truncatePages) Apply(t *engine.Tx) error {
	before, err := t.C.Number("PRAGMA page_count")
	if err != nil {
		return err
	}
	r := t.C.Query(fmt.Sprintf("PRAGMA incremental_vacuum(%d)", g.pages))
	for r.Next() { // one row for each page
	}
	if err := r.Close(); err != nil {
		return err
	}
	if g.free, err = t.C.Number("PRAGMA freelist_count"); err == nil {
		g.all, err = t.C.Number("PRAGMA page_count")
	}
	g.cut = before - g.all
	return err
}
