package http

import (
	"crypto/rand"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"relay/db/relay"

	"github.com/julienschmidt/httprouter"
)

// tickets are those that nobody has used (PROTOCOL §4, Tickets). A page in a browser
// cannot set headers on a handshake; its ticket stands for the key that got it. Tickets
// are in memory alone. It is safe for concurrent use.
type tickets struct {
	mu    sync.Mutex
	all   map[string]ticket              // by their texts
	of    map[relay.MechaNumber][]string // the texts of a Mecha's, the oldest first
	sweep time.Time                      // when the expired ones are dropped
}

type ticket struct {
	key  *relay.Key
	ends time.Time
}

const (
	ticketLife = 30 * time.Second
	maxTickets = 64 // of a Mecha; one more ends its oldest
)

// issue makes a ticket of a key. It ends at the given time.
func (ts *tickets) issue(key *relay.Key, now time.Time) (text string, ends time.Time) {
	text, ends = "tk_"+rand.Text(), now.Add(ticketLife)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.all == nil {
		ts.all, ts.of = map[string]ticket{}, map[relay.MechaNumber][]string{}
	}
	if !now.Before(ts.sweep) {
		ts.sweep = ends
		for text, t := range ts.all {
			if !now.Before(t.ends) {
				ts.remove(text)
			}
		}
	}
	if own := ts.of[key.Mecha.Number]; len(own) == maxTickets {
		ts.remove(own[0])
	}
	ts.all[text] = ticket{key, ends}
	ts.of[key.Mecha.Number] = append(ts.of[key.Mecha.Number], text)
	return text, ends
}

// remove removes a ticket. The caller holds mu.
func (ts *tickets) remove(text string) {
	m := ts.all[text].key.Mecha.Number
	delete(ts.all, text)
	rest := slices.DeleteFunc(ts.of[m], func(own string) bool { return own == text })
	if len(rest) == 0 {
		delete(ts.of, m)
	} else {
		ts.of[m] = rest
	}
}

// take uses a ticket up, and gives its key. Error: InvalidTicket.
func (ts *tickets) take(text string, now time.Time) (*relay.Key, error) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	t, known := ts.all[text]
	if known {
		ts.remove(text)
	}
	if !known || !now.Before(t.ends) {
		return nil, relay.Errorf(relay.InvalidTicket, "this ticket is not valid: each opens one WebSocket, within %g seconds",
			ticketLife.Seconds())
	}
	return t.key, nil
}

// getTicket answers POST /api/v1/mecha/{mechaId}/ticket.
func (s *Server) getTicket(c *call) (answer, error) {
	if err := c.ownMecha(); err != nil {
		return answer{}, err
	}
	if err := s.config.DB.UseNonce(c.key, c.claimed); err != nil {
		return answer{}, err
	}
	text, ends := s.tickets.issue(c.key, c.at)
	b := appendField(nil, '{', "ticket", text)
	b = appendTime(b, ',', "expires_at", ends)
	return answer{status: http.StatusCreated, body: append(b, "}\n"...)}, nil
}

// ticketOf returns the ticket of a handshake; "" if it has none.
func ticketOf(r *http.Request) string {
	if !strings.Contains(r.URL.RawQuery, "ticket=") {
		return ""
	}
	return r.URL.Query().Get("ticket")
}

// admit is authenticate for a handshake with a ticket: that stands for the key, whose
// request for it was authenticated.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, p httprouter.Params, text string) (*call, error) {
	if err := s.refuseDraining(); err != nil {
		return nil, err
	}
	c := &call{Request: r, w: w, conn: connection(r.Context()), params: p, input: input{at: s.config.Now()}}
	key, err := s.tickets.take(text, c.at)
	if err == nil {
		c.key = key
		noteKey(w, key)
		err = key.Check(c.at)
	}
	if err == nil {
		c.conn.vouch(key.Mecha.Number)
		err = s.allow(c)
	}
	if err == nil && !c.conn.beginWork() {
		err = errEvicted
	}
	if err != nil {
		c.done(s)
		return nil, s.countFailure(r, err)
	}
	return c, nil
}
