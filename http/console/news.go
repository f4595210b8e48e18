package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"relay/db/relay"
)

// news is what a page is told. Total counts the events since the last one; rows has the ones that match the
// page's search and are shown. The page fetches its parts again if Total is not 0.
type news struct {
	Cursor string `json:"cursor"`
	Total  int    `json:"total"`
	Passed int    `json:"passed"`           // of them, those that were not looked at, because there were too many
	Behind string `json:"behind,omitempty"` // how far the console is behind what is committed, in words; "": not at all
	Rows   []row  `json:"rows"`
	Failed string `json:"failed,omitempty"` // nothing new is read, and why
	// Counting tells that the last hour is not counted yet. A page that says so is fetched again when it is.
	Counting bool `json:"counting,omitempty"`
}

// take returns what a page has not been told.
func (f *flow) take(p *page, q query) news {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := news{Cursor: cursor(f.at), Total: p.total, Passed: p.total - len(p.events), Rows: []row{}}
	now := f.c.config.Now()
	for _, e := range p.events {
		if q.matches(e, now) {
			n.Rows = append(n.Rows, rowOf(e))
		}
	}
	p.total, p.events = 0, nil
	if f.behind > time.Second {
		n.Behind = age(f.behind) + " behind"
	} else if n.Counting = !f.counted; n.Counting {
		n.Behind = "counting the last hour"
	}
	n.Failed = f.trouble(now)
	return n
}

// trouble says since when nothing new is read, and why; "" if all is read. f.mu is held.
func (f *flow) trouble(now time.Time) string {
	switch {
	case f.readAt.IsZero() && f.failed == nil:
		return "" // the last hour is being counted: what happens now is told after that
	case f.failed == nil && now.Sub(f.readAt) < stuckAfter:
		return ""
	case f.failed == nil:
		return "nothing new is read for " + age(now.Sub(f.readAt)) + ": the database does not answer"
	case f.readAt.IsZero():
		return "the database cannot be read"
	}
	return "the database cannot be read since " + moment(f.readAt, now)
}

// position returns the position up to which all is counted. Before the last hour is counted, it
// is the latest: a page that is made now shows all before it.
func (f *flow) position() relay.Position {
	f.mu.Lock()
	at := f.at
	f.mu.Unlock()
	if at == 0 {
		at, _ = f.c.config.Store.Latest() // if it cannot be read, neither can the page
	}
	return at
}

func cursor(p relay.Position) string { return strconv.FormatInt(int64(p), 10) }

// readAfter reads the cursor of a request; the present position if it has none.
func (c *Console) readAfter(r *http.Request) relay.Position {
	n, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil || n < 0 {
		return c.flow.position()
	}
	return relay.Position(n)
}

// live answers GET /live: the socket on which a page is told what happens.
func (c *Console) live(w http.ResponseWriter, r *http.Request) {
	if c.config.Upgrade == nil {
		c.refuse(w, r, errNoPage)
		return
	}
	after := c.readAfter(r)
	q, err := c.understand(r.Context(), r.URL.Query().Get("q"))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	if !c.begin() {
		return // the process ends
	}
	defer c.work.Done()
	err = c.config.Upgrade(w, r, func(ctx context.Context, send func([]byte) error) error {
		p, err := c.flow.listen(after)
		if err != nil {
			return err
		}
		defer c.flow.leave(p)
		heard := time.NewTicker(heardEvery)
		defer heard.Stop()
		for {
			text, err := json.Marshal(c.flow.take(p, q))
			if err == nil {
				err = send(text)
			}
			if err != nil {
				return nil // the page is gone
			}
			select {
			case <-ctx.Done():
				return nil
			case <-c.ctx.Done():
				return c.ctx.Err()
			case <-p.wake:
			case <-heard.C: // so that the page knows that it is still live
			}
		}
	})
	if err != nil {
		c.refuse(w, r, err)
	}
}

// poll answers GET /events: what live tells, for a page that has no socket.
func (c *Console) poll(w http.ResponseWriter, r *http.Request) {
	after := c.readAfter(r)
	q, err := c.understand(r.Context(), r.URL.Query().Get("q"))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	p, err := c.flow.listen(after)
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	defer c.flow.leave(p)
	n := c.flow.take(p, q)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(n) // the page may be gone
}
