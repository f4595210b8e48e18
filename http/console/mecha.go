package console

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

const (
	shownMechas  = 50
	shownWaiting = 10 // of the oldest messages that wait for a Mecha
)

// mechasPage is what pages/mechas.html shows.
type mechasPage struct {
	Text   string // that was searched for
	Boxes  []mailboxRow
	Mechas int // that are registered
	Wait   int // for how many messages wait
	pager
}

// pager leads to the pages of a list before and after this one, or "".
type pager struct{ Before, After string }

// showMechas makes the page at /mecha: those with trouble first, then those for which messages
// wait, then the others by their addresses.
func (c *Console) showMechas(r *http.Request) (any, error) {
	ctx, now := r.Context(), c.config.Now()
	o, err := c.overview(ctx)
	if err != nil {
		return nil, err
	}
	waiting, err := c.mailboxes(ctx, o, now)
	if err != nil {
		return nil, err
	}
	p := &mechasPage{Text: strings.TrimSpace(r.URL.Query().Get("q")), Mechas: o.Mechas, Wait: len(waiting)}
	q := survey.MechaQuery{Text: p.Text, Limit: shownMechas}
	for _, b := range waiting {
		q.Except = append(q.Except, b.Number)
	}
	waiting = slices.DeleteFunc(waiting, func(b mailboxRow) bool {
		return !strings.Contains(strings.ToLower(string(b.Mecha)), strings.ToLower(p.Text))
	})
	n, from := c.pageOf(r, shownMechas)
	more := len(waiting) > from+shownMechas
	p.Boxes = waiting[min(from, len(waiting)):min(from+shownMechas, len(waiting))]
	if q.Limit -= len(p.Boxes); !more {
		q.Offset, q.Limit = max(0, from-len(waiting)), max(q.Limit, 1) // one, to report whether there is more
		list, further, err := c.config.Store.Mechas(q)
		if err != nil {
			return nil, err
		}
		more = further
		for _, m := range list {
			if len(p.Boxes) == shownMechas {
				more = true
				break
			}
			b := mailboxRow{Now: now, Live: c.config.Live != nil, Box: survey.Box{Mecha: m.Address, Number: m.Number,
				LiveKeys: m.LiveKeys, LastSeen: c.lastSeen(m.Number, m.LastSeen)}}
			b.Seen, b.Here = c.presence(m.Number, b.LastSeen, now)
			p.Boxes = append(p.Boxes, b)
		}
	}
	p.pager = pagesOf(r, n, more)
	return p, nil
}

// mechaPage is what pages/mecha.html shows.
type mechaPage struct {
	Verdict
	survey.MechaState
	Seen               string
	Here               bool
	Live               bool // what follows is known
	Sockets, LongPolls int
	Plots              []plot
	Ages               bars
	Waiting            []row // the oldest
	Hour               survey.MechaHour
	Leases             []lease
	Keys               []key
	Words              []words
}

// lease is a row of what workers hold.
type lease struct {
	survey.Lease
	Over bool // its time is over, and no server has noticed yet
	Dumb bool // its key has not been used since the lease began
}

// words are a list of a profile, such as its tags, with its name.
type words struct {
	Name string
	List []string
	More int
}

// showMecha makes the page at /mecha/{address}.
func (c *Console) showMecha(r *http.Request) (any, error) {
	ctx, now := r.Context(), c.config.Now()
	a, err := relay.ParseAddress(r.PathValue("address"))
	if err != nil {
		return nil, relay.Errorf(relay.MechaNotFound, "%s is not the address of a Mecha", relay.Quote(r.PathValue("address")))
	}
	state, err := c.config.Store.Mecha(a, now.Add(-lateAfter))
	if err != nil {
		return nil, err
	}
	state.Box.LastSeen = c.lastSeen(state.Box.Number, state.Box.LastSeen)
	p := &mechaPage{MechaState: state, Live: c.config.Live != nil}
	p.Seen, p.Here = c.presence(state.Box.Number, state.Box.LastSeen, now)
	if p.Live {
		p.Sockets, p.LongPolls = c.config.Live.Open(state.Box.Number)
	}
	b := mailboxRow{Box: state.Box, Now: now, Seen: p.Seen, Here: p.Here, Live: p.Live}
	b.rate()
	if b.Pending > 0 {
		if err := c.explain(ctx, &b, now); err != nil {
			return nil, err
		}
		list, _, err := c.config.Store.Messages(ctx, browse.ListQuery{Mecha: state.Address, Direction: relay.In,
			State: relay.OnlyPending, Oldest: true, Limit: shownWaiting})
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			p.Waiting = append(p.Waiting, rowOfMessage(m))
		}
	}
	if p.Hour, err = c.config.Store.MechaHour(state.Box.Number, now.Add(-time.Hour), spanLength); err != nil {
		return nil, err
	}
	if last := p.Hour.LastAck; last != nil && last.At.After(b.LastSeen) {
		b.LastSeen = last.At
		b.Seen, b.Here = c.presence(b.Number, b.LastSeen, now)
	}
	p.Seen, p.Here, p.Box.LastSeen = b.Seen, b.Here, b.LastSeen // with what its messages tell
	p.Verdict = judgeMecha(&b, p, now)
	p.Plots, p.Ages = plotsOf(p.Hour, now), barsOf(state.Ages)
	for _, l := range state.Leases {
		l.Worker, l.Label = cut(l.Worker, wordLength), cut(l.Label, wordLength)
		p.Leases = append(p.Leases,
			lease{l, !now.Before(l.Until), l.Claimed && !l.KeyUsed.IsZero() && l.KeyUsed.Add(time.Minute).Before(l.Since)})
	}
	for _, k := range state.Keys {
		p.Keys = append(p.Keys, keyOf(k, now))
	}
	p.Words = wordsOf(&state.Profile)
	return p, nil
}

// judgeMecha says in one sentence how it is with a Mecha.
func judgeMecha(b *mailboxRow, p *mechaPage, now time.Time) (v Verdict) {
	if v.Level = b.Level; b.Tone() == "warn" {
		v.Level = 1
	}
	v.Next = b.next()
	who := string(p.Address)
	unable := "it can neither send nor receive"
	if b.Pending > 0 {
		unable = "nobody can receive the " + plural(b.Pending, "message") + " that wait" +
			map[bool]string{true: "s"}[b.Pending == 1] + " for it"
	}
	switch {
	case !p.RemovedAt.IsZero():
		v.Text, v.Level = fmt.Sprintf("%s was removed: %s.", who, unable), max(v.Level, 1)
	case b.LiveKeys == 0:
		v.Text, v.Level = fmt.Sprintf("%s%s: %s.", who,
			(&standing{registered: p.CreatedAt, keys: p.MechaState.Keys, more: p.MoreKeys}).gone(now), unable), max(v.Level, 1)
	case b.Late > 0:
		v.Text = waitLong(b.Late, now.Sub(b.OldestAt)) + forWhom(b, 1, b.Late, now) + "."
	case b.Pending > 0:
		v.Text = fmt.Sprintf("%s for %s, %s.", waits(b.Pending), who, b.state(b.Pending, now))
	default:
		v.Text = fmt.Sprintf("Nothing waits for %s.", who)
	}
	switch b.Code {
	case relay.VerdictAnswered, relay.VerdictWorking, relay.VerdictDeferred, relay.VerdictBehind:
		// of the others, the sentence says as much
		v.Also = append(v.Also, b.Why)
	}
	if b.Pending > 0 && b.Pending != b.Late {
		v.Also = append(v.Also, fmt.Sprintf("%s pending, the oldest for %s.",
			plural(b.Pending, "message")+is(b.Pending), waited(b.OldestAt, now)))
	}
	v.hint(b.question())
	if b.Overdue > 0 {
		v.Also = append(v.Also, plural(b.Overdue, "message")+is(b.Overdue)+" overdue.")
	}
	return v
}

// plotsOf shows the hour of a Mecha.
func plotsOf(h survey.MechaHour, now time.Time) []plot {
	all := make([]point, spans)
	first := now.UnixMilli()/spanLength.Milliseconds() - spans + 1
	for i := range all {
		n := first + int64(i)
		all[i].Begin = time.UnixMilli(n * spanLength.Milliseconds())
		all[i].Events, all[i].Sent, all[i].Acked = h.In[n], h.Out[n], h.Acked[n]
	}
	var list []plot
	for _, of := range []struct {
		name  string
		value func(*point) float64
		total map[int64]int
	}{
		{"Received", func(s *point) float64 { return float64(s.Events) }, h.In},
		{"Sent", func(s *point) float64 { return float64(s.Sent) }, h.Out},
		{"Acknowledged", func(s *point) float64 { return float64(s.Acked) }, h.Acked},
	} {
		sum := 0
		for _, n := range of.total {
			sum += n
		}
		p := draw(of.name, &lastHour{points: all, from: h.From, counted: true}, number, of.value)
		p.Value = count(sum)
		if p.Unknown > 0 {
			p.Value += "+"
		}
		p.Top += " a minute"
		p.Label = fmt.Sprintf("%s in the last hour: %s messages, at most %s", of.name, p.Value, p.Top)
		list = append(list, p)
	}
	return list
}

// bars count pending messages by age, as inline SVG in a box of plotWidth by plotHeight.
type bars struct {
	Total string
	List  []bar
	Label string // for who cannot see them
}

type bar struct {
	Name, Amount    string
	X, Y, Width     int
	Height          int
	Tone            string
	Middle, TextTop int
}

var ageNames = []string{"1 min", "10 min", "1 h", "6 h", "1 day", "more"}

func barsOf(ages []int) bars {
	b := bars{Total: "0"}
	sum, top, more := 0, 1, ""
	for _, n := range ages {
		if sum, top = sum+n, max(top, n); n == survey.MaxCounted {
			more = "+"
		}
	}
	b.Total = count(sum) + more
	said := []string{}
	for i, n := range ages {
		w := plotWidth / len(ages)
		x := bar{Name: ageNames[i], Amount: count(n), X: i*w + 3, Width: w - 6, Tone: "busy", Middle: i*w + w/2}
		if i >= 2 { // late
			x.Tone = "bad"
		}
		if n == survey.MaxCounted {
			x.Amount += "+"
		}
		if x.Height = n * (plotHeight - 2) / top; n > 0 {
			x.Height = max(x.Height, 3)
			said = append(said, x.Name+": "+x.Amount)
		}
		x.Y = plotHeight - x.Height
		b.List = append(b.List, x)
	}
	b.Label = "Pending by age: none"
	if len(said) > 0 {
		b.Label = "Pending by age: " + strings.Join(said, ", ")
	}
	return b
}

const (
	shownWords = 40  // of a list of a profile
	wordLength = 120 // characters of each
	textLength = 600 // of a description
)

// wordsOf returns the lists of a profile that have something, each cut to what a page can show.
func wordsOf(p *relay.Profile) (all []words) {
	var skills []string
	for _, s := range p.Skills {
		name := s.Name
		if name == "" {
			name = s.ID
		}
		skills = append(skills, name)
	}
	accept := []string{}
	for _, a := range p.AcceptFrom {
		accept = append(accept, string(a))
	}
	for _, w := range []words{{Name: "Tags", List: p.Tags}, {Name: "Skills", List: skills},
		{Name: "Languages", List: p.Languages}, {Name: "Accepts types", List: p.MessageTypes},
		{Name: "Accepts from", List: accept}} {
		if len(w.List) == 0 {
			continue
		}
		w.More = max(0, len(w.List)-shownWords)
		shown := []string{}
		for _, text := range w.List[:len(w.List)-w.More] {
			shown = append(shown, cut(text, wordLength))
		}
		all = append(all, words{w.Name, shown, w.More})
	}
	return all
}
