package retention

import (
	"fmt"
	"time"

	"relay/db/internal/engine"
)

// space decides when unused pages of the file go back to the file system. Some are kept:
// new messages take the place of removed ones.
type space struct {
	checked time.Time // by the real clock
	giving  bool      // pages are being given back
	pages   int64     // in a piece; a power of two, because each number is a statement of its own
}

const (
	checkSpace = time.Second
	keptShare  = 16  // one page of so many may be unused
	keptPages  = 256 // so may these
	leastPages = 8   // in a piece
	mostPages  = 512
)

// spacePiece gives a piece of the work of giving space back; nil if there is none.
func (r *Retention) spacePiece() engine.Job {
	s := &r.space
	if !s.giving {
		if time.Since(s.checked) < checkSpace {
			return nil
		}
		s.checked = time.Now()
		free, all, err := r.pages()
		if err != nil || free <= keptPages+all/keptShare {
			return nil
		}
		s.giving, s.pages = true, leastPages
	}
	v := &giveBack{pages: s.pages}
	return r.choreOf(v, func() {
		if s.giving = v.free > (keptPages+v.all/keptShare)/2 && v.cut > 0; !s.giving {
			r.w.Checkpoints.CopySoon = true // only a copied log makes the file shorter
		}
		switch {
		case r.took > r.goal:
			s.pages = max(s.pages/2, leastPages)
		case r.took < r.goal/2:
			s.pages = min(s.pages*2, mostPages)
		}
	})
}

// pages counts the unused pages of the file, and all.
func (r *Retention) pages() (free, all int64, err error) {
	if free, err = r.w.C.Number("PRAGMA freelist_count"); err == nil {
		all, err = r.w.C.Number("PRAGMA page_count")
	}
	return free, all, err
}

// giveBack is the chore that moves used pages to the place of unused ones and cuts the
// unused ones off the end of the file.
type giveBack struct {
	pages int64

	// apply sets the fields below.

	free, all, cut int64
}

func (g *giveBack) Size() int { return 0 }

func (g *giveBack) Apply(t *engine.Tx) error {
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
