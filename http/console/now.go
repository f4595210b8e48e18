package console

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"time"

	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

const (
	lateAfter  = 10 * time.Minute // a message that is pending for so long is a trouble
	shownBoxes = 20
	explained  = 6  // Mechas of which a page of Now says why; open messages by which a conversation is judged
	shownRows  = 40 // of the flow
	shownDead  = 6
	looked     = 500 // messages that a search takes from the store, of which it shows those that match
	searchFor  = 2 * time.Second
	deadFor    = 200 * time.Millisecond
)

// nowPage is what pages/now.html shows.
type nowPage struct {
	Verdict
	Boxes  []mailboxRow
	Others int // further Mechas for which messages wait
	Mechas int
	Rows   []row
	Cut    bool  // a search had no time for older messages
	Dead   []row // messages that failed, were rejected or expired in the last hour
	Query  query
	Plots  []plot
}

// mailboxRow is a row of Now: the messages that wait for a Mecha.
type mailboxRow struct {
	survey.Box
	Now    time.Time
	Seen   string // presence, for people
	Here   bool   // it is online
	Level  int
	Why    string            // of its oldest message
	Code   relay.VerdictCode // likewise
	About  relay.Situation   // likewise; without a Message if nobody has asked why
	Live   bool              // the server says whether it is online; else Here is whether it made a request shortly ago
	reason *reason           // likewise; nil if nobody has asked why
	// Question is a message of the Mecha that its oldest message may answer without naming it; nil: none.
	Question *relay.Message
}

// rate says how bad it is.
func (b *mailboxRow) rate() {
	switch {
	case b.Pending > 0 && (b.Removed || b.LiveKeys == 0) || b.Late > b.Held+b.Deferred:
		b.Level = 2
	case b.Late > 0 || b.Overdue > 0:
		b.Level = 1
	}
}

// judgeOldest corrects the level by the oldest message: the others may wait for it.
func (b *mailboxRow) judgeOldest(t *look.Trace, now time.Time) {
	if b.Level == 0 || b.Removed || b.LiveKeys == 0 {
		return
	}
	level, rest := levelOf(t, b.Code, now), b.Late-b.Held-b.Deferred
	if t.Situation.Until.IsZero() {
		rest-- // it is one of those that nobody holds
	}
	if level == 2 || rest > 0 && t.Situation.Until.After(now) {
		b.Level = 2
	} else {
		b.Level = 1
	}
}

// Tone is the colour of its mark. A message that has waited for a minute, or for a Mecha that has never made
// a request, is not well, but is not in trouble yet.
func (b *mailboxRow) Tone() string {
	switch {
	case b.Pending == 0:
		return "idle"
	case b.Level == 2:
		return "bad"
	case b.Level == 1 || b.Now.Sub(b.OldestAt) > time.Minute || b.LastSeen.IsZero() && !b.Here:
		return "warn"
	}
	return "busy"
}

// explain says why its oldest message waits.
func (c *Console) explain(ctx context.Context, b *mailboxRow, now time.Time) error {
	t, err := c.config.Store.Why(ctx, b.Oldest)
	if relay.ErrorCode(err) == relay.MessageNotFound {
		return nil // removed since
	}
	if err != nil {
		return err
	}
	v := c.verdict(t)
	b.Why, b.Code, b.About = humane(v.Text, now), v.Code, t.Situation
	if b.Pending > 1 {
		b.Why = ofOldest(b.Why)
	}
	// its messages tell more than the use of its keys, which is noted up to a minute later
	if b.LastSeen.Before(t.Situation.LastSeen) {
		b.LastSeen = t.Situation.LastSeen
		b.Seen, b.Here = c.presence(b.Number, b.LastSeen, now)
	}
	if b.reason, err = c.reason(t, v.Code, now); err != nil {
		return err
	}
	b.judgeOldest(t, now)
	b.Question, err = c.questionOf(ctx, t.Message)
	return err
}

// namesMessage matches a verdict up to where it names its message. The name of a worker, in quotation marks, and a
// reason, in parentheses, are somebody's own words.
var namesMessage = regexp.MustCompile(`^((?:[^“(]|“[^”]*”)*?[Tt]he )message`)

// ofOldest has a verdict name its message as the oldest of several.
func ofOldest(verdict string) string {
	return namesMessage.ReplaceAllString(verdict, "${1}oldest message")
}

// next is what to do about the oldest message of a Mecha.
func (b *mailboxRow) next() (all []advice) {
	if b.reason == nil {
		return nil
	}
	if all = b.reason.next(); b.Question != nil {
		all = append(all, nameQuestion(b.About.Message.From))
	}
	return all
}

// showNow makes the page at /.
func (c *Console) showNow(r *http.Request) (any, error) {
	ctx, now := r.Context(), c.config.Now()
	caughtUp := make(chan bool, 1)
	go func() { caughtUp <- c.flow.catchUp(ctx) }() // while what waits is counted
	o, err := c.overview(ctx)
	if err != nil {
		return nil, err
	}
	counted := <-caughtUp
	p := &nowPage{Mechas: o.Mechas}
	if p.Query, err = c.understand(ctx, r.URL.Query().Get("q")); err != nil {
		return nil, err
	}
	if p.Boxes, err = c.mailboxes(ctx, o, now); err != nil {
		return nil, err
	}
	h := c.flow.hour.hour(now)
	if !counted {
		h.forget(now)
	}
	if p.Dead, err = c.dead(&h, now); err != nil {
		return nil, err
	}
	lost, err := c.lost(ctx, p.Dead)
	if err != nil {
		return nil, err
	}
	p.Verdict = c.judge(o, p.Boxes, &h, p.Dead, lost, now)
	if more := len(p.Boxes) - shownBoxes; more > 0 {
		p.Boxes, p.Others = p.Boxes[:shownBoxes], more
	}
	if p.Rows, p.Cut, err = c.rows(ctx, p.Query, now); err != nil {
		return nil, err
	}
	h.points[len(h.points)-1].pending = o.Pending
	pendingNow(h.points, o.Pending)
	p.Plots = []plot{
		draw("Sends", &h, rate, h.whole(func(s *point) float64 { return float64(s.Sent) })),
		draw("Acks", &h, rate, h.whole(func(s *point) float64 { return float64(s.Acked) })),
		draw("Time to ack", &h, seconds, func(s *point) float64 {
			if s.Acked == 0 {
				return -1
			}
			return s.Lag.Seconds() / float64(s.Acked)
		}),
		draw("Pending", &h, number, func(s *point) float64 { return float64(s.pending) }),
	}
	return p, nil
}

// mailboxes returns the Mechas for which messages wait, those with trouble first.
func (c *Console) mailboxes(ctx context.Context, o survey.Overview, now time.Time) ([]mailboxRow, error) {
	all := make([]mailboxRow, 0, len(o.Boxes))
	for _, b := range o.Boxes {
		n := mailboxRow{Box: b, Now: now, Live: c.config.Live != nil}
		n.LastSeen = c.lastSeen(b.Number, b.LastSeen)
		n.Seen, n.Here = c.presence(b.Number, n.LastSeen, now)
		n.rate()
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b mailboxRow) int {
		return cmp.Or(b.Level-a.Level, a.OldestAt.Compare(b.OldestAt), cmp.Compare(a.Mecha, b.Mecha))
	})
	for i := range all {
		if b := &all[i]; i < explained && (b.Level > 0 || now.Sub(b.OldestAt) > time.Minute || b.LastSeen.IsZero()) {
			if err := c.explain(ctx, b, now); err != nil {
				return nil, err
			}
			if b.Code == relay.VerdictAway || b.Code == relay.VerdictNeverConnected || b.Code == relay.VerdictRecipientGone {
				b.Why = b.mayAnswer() // the rest Seen says
			}
		}
	}
	return all, nil
}

// lastSeen returns when a Mecha was there for the last time, by what the file tells and by what the
// server remembers of the last minute, which may not be in the file yet.
func (c *Console) lastSeen(id relay.MechaNumber, noted time.Time) time.Time {
	if c.config.Live != nil {
		if at := c.config.Live.LastRequest(id); at.After(noted) {
			return at
		}
	}
	return noted
}

// presence says for people whether a Mecha is there, which was seen at a time (lastSeen): with a
// server, whether it has a socket or a long-poll open; without one, when it made its last request
// that was noted, of any kind.
func (c *Console) presence(id relay.MechaNumber, seen, now time.Time) (text string, here bool) {
	switch {
	case c.config.Live != nil && c.config.Live.Online(id):
		return "connected", true
	case c.config.Live == nil && seen.IsZero():
		return "no request noted yet", false
	case seen.IsZero():
		return "no request yet", false
	case c.config.Live == nil && now.Sub(seen) < 2*time.Minute: // the file knows it to a minute
		return "last request " + ago(seen, now), true
	case c.config.Live == nil:
		return "last request " + moment(seen, now), false
	}
	return "not connected, last seen " + moment(seen, now), false
}

// verdict judges a trace, with what the server knows.
func (c *Console) verdict(t *look.Trace) relay.Verdict {
	t.Situation.Online = c.config.Live != nil && c.config.Live.Online(t.Message.Recipient)
	t.Situation.LastSeen = c.lastSeen(t.Message.Recipient, t.Situation.LastSeen)
	return relay.Decide(&t.Situation)
}

// rows returns the newest rows of the flow, the newest first; for a search, the newest messages
// that it finds. cut tells that a search had no time for older ones.
func (c *Console) rows(ctx context.Context, q query, now time.Time) (all []row, cut bool, err error) {
	if !q.empty() {
		return c.search(ctx, q, now)
	}
	events, err := c.config.Store.Newest(shownRows)
	if err != nil {
		return nil, false, err
	}
	pushes, _, err := c.config.Store.NewestPushes(shownRows)
	if len(events) > 0 { // so that nothing is missing between two rows
		pushes = slices.DeleteFunc(pushes, func(e browse.Event) bool { return e.Step.At.Before(events[0].Step.At) })
	}
	for _, e := range slices.Backward(inOrder(events, pushes)) {
		if all = append(all, rowOf(e)); len(all) == shownRows {
			break
		}
	}
	return all, false, err
}

// search looks for messages, the newest first, for a bounded time.
func (c *Console) search(ctx context.Context, q query, now time.Time) (all []row, cut bool, err error) {
	if len(q.Refused) > 0 {
		return nil, false, nil
	}
	l := q.list(now)
	l.Limit = looked
	for end := time.Now().Add(searchFor); ; {
		list, more, err := c.find(ctx, l, time.Until(end))
		for _, m := range list {
			r := rowOfMessage(m)
			if q.matches(browse.Event{Message: m, Step: look.Step{What: look.StepKind(r.What), Status: r.What}}, now) {
				if all = append(all, r); len(all) == shownRows {
					return all, false, err
				}
			}
		}
		if err != nil || !more || len(list) == 0 || time.Now().After(end) {
			return all, more, err
		}
		l.Before = list[len(list)-1].ID // those that the store cannot tell apart are looked at here
	}
}

// find lists messages, and those that it has found if the time is over. What does not exist
// has no messages.
func (c *Console) find(
	ctx context.Context, l browse.ListQuery, limit time.Duration,
) (list []*relay.Message, cut bool, err error) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	list, cut, err = c.config.Store.Messages(limited, l)
	switch {
	case relay.ErrorCode(err) == relay.MechaNotFound || relay.ErrorCode(err) == relay.ConversationNotFound:
		return nil, false, nil
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return list, true, nil
	}
	return list, cut, err
}

// dead lists the messages that failed, were rejected or expired in the last hour, however old
// they are, the newest such event first.
func (c *Console) dead(h *lastHour, now time.Time) (all []row, err error) {
	if h.total.Failed+h.total.Expired == 0 {
		return nil, nil
	}
	list, err := c.config.Store.Dead(now.Add(-time.Hour), shownDead)
	slices.SortStableFunc(list, func(a, b browse.Event) int { return byTime(b, a) })
	for _, e := range list {
		r := rowOf(e)
		r.Position = "m" + r.Position // the flow may have a row of it, too
		all = append(all, r)
	}
	return all, err
}
