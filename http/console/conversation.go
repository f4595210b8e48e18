package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"relay/db/look/browse"
	"relay/db/relay"
)

const (
	shownMessages = 200
	maxLanes      = 12
	rowHeight     = 38 // of an arrow
	gapHeight     = 26 // of a gap mark
	gapFrom       = time.Minute
	laneLeft      = 14  // per cent of the width: before it stand the times
	laneText      = 120 // pixels of a lane, at least (console.css)
	letter        = 6.6 // pixels of a letter
)

// conversationPage is what pages/conversation.html shows.
type conversationPage struct {
	Verdict
	ID      relay.ConversationID
	Rows    []row
	Lanes   []lane
	Arrows  []arrow
	Gaps    []gapMark
	Height  int
	Size    string // the class of the diagram, for its least width
	Undrawn int    // messages of participants that have no lane
	Others  int    // participants without a lane
	Before  string // the link to the messages before these, or ""
	Latest  string // the link to the newest; "": they are shown
	Desc    string
}

// lane is a participant, at X per cent of the width.
type lane struct {
	Address    relay.Address
	Name, Crew string
	X          string
}

// arrow is a message, from X1 to X2 per cent of the width, Y pixels from the top.
type arrow struct {
	row
	X1, X2, Middle string
	Y, TextY       int
	Left           bool // it points to the left
	Self           bool // the Mecha wrote to itself
	Dashed         bool // it is not acknowledged
	Text           string
	Title          string
	ClockOf        string
}

// gapMark is a time without messages.
type gapMark struct {
	Y, TextY int
	Text     string
}

// conversationPath is the link to a conversation. Labels of dots alone mean something else in a path.
func conversationPath(id relay.ConversationID) string {
	if strings.Trim(string(id), ".") == "" {
		return "/conversation?id=" + string(id)
	}
	return "/conversation/" + string(id)
}

// showConversation makes the page at /conversation/{id}.
func (c *Console) showConversation(r *http.Request) (any, error) {
	p := &conversationPage{ID: relay.ConversationID(r.PathValue("id"))}
	if p.ID == "" {
		p.ID = relay.ConversationID(r.URL.Query().Get("id"))
	}
	none := relay.Errorf(relay.ConversationNotFound, "there is no message in the conversation %s",
		relay.Quote(string(p.ID)))
	if p.ID == "" || p.ID.Check("id") != nil {
		return nil, none
	}
	q := browse.ListQuery{Conversation: p.ID, Limit: shownMessages, Before: relay.MessageID(r.URL.Query().Get("before"))}
	list, more, err := c.config.Store.Messages(r.Context(), q)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, none
	}
	slices.Reverse(list) // time goes down
	if more {
		p.Before = linkWith(r, "before", string(list[0].ID))
	}
	if q.Before != "" {
		p.Latest = linkWith(r, "before", "")
	}
	for _, m := range list {
		row := rowOfMessage(m)
		row.Note = strings.Replace(row.Note, inConversation(m), "", 1) // all are in it
		p.Rows = append(p.Rows, row)
	}
	p.draw(list)
	if p.Verdict, err = c.judgeConversation(r.Context(), list, more || q.Before != ""); err != nil {
		return nil, err
	}
	return p, nil
}

// judgeConversation says in one sentence where a conversation stands. It is as bad as the worst of
// its open messages; of one in which nothing is open, as bad as its last message.
func (c *Console) judgeConversation(ctx context.Context, list []*relay.Message, part bool) (v Verdict, err error) {
	now, dead := c.config.Now(), 0
	var open []*relay.Message
	parties := map[relay.Address]bool{}
	for _, m := range list {
		parties[m.From], parties[m.To] = true, true
		switch {
		case m.State.Pending():
			open = append(open, m)
		case m.State == relay.Expired, m.Ack != nil && isFailure(m.Ack.Status):
			dead++
		}
	}
	if len(open) > 0 {
		v.Text = fmt.Sprintf("%s, the oldest for %s, since %s.", waits(len(open)), open[0].To, moment(open[0].CreatedAt, now))
		v.Level, err = c.worst(ctx, open, now)
	} else {
		last := list[len(list)-1]
		v.Text = fmt.Sprintf("Nothing is open: the last message, from %s, is %s.", last.From, rowOfMessage(last).What)
		v.Level, err = c.worst(ctx, []*relay.Message{last}, now)
	}
	if err != nil {
		return v, err
	}
	if dead > 0 {
		v.Level = max(v.Level, 1)
		v.Also = append(v.Also, fmt.Sprintf("%s expired, failed or%s rejected.", plural(dead, "message"), was(dead)))
	}
	these := plural(len(list), "message")
	if part {
		these = "Of the conversation, " + these + " are shown:"
	}
	v.Also = append(v.Also, fmt.Sprintf("%s between %s, from %s to %s.",
		these, plural(len(parties), "Mecha"), moment(list[0].CreatedAt, now), moment(list[len(list)-1].CreatedAt, now)))
	return v, nil
}

// worst returns the worst level of messages, the oldest of which is first. It looks at some of them:
// at the oldest for each recipient, then at the oldest of the others. Of those that it does not look
// at, it knows that they wait.
func (c *Console) worst(ctx context.Context, list []*relay.Message, now time.Time) (level int, err error) {
	var firsts, others []*relay.Message
	known := map[relay.MechaNumber]bool{}
	for _, m := range list {
		if known[m.Recipient] {
			others = append(others, m)
			continue
		}
		known[m.Recipient] = true
		firsts = append(firsts, m)
	}
	all := append(firsts, others...)
	if len(all) > explained {
		all, level = all[:explained], 1
	}
	for _, m := range all {
		t, err := c.config.Store.Why(ctx, m.ID)
		if relay.ErrorCode(err) == relay.MessageNotFound {
			continue // removed since
		}
		if err != nil {
			return 0, err
		}
		if level = max(level, levelOf(t, c.verdict(t).Code, now)); level == 2 {
			break
		}
	}
	return level, nil
}

// draw makes the lanes and arrows of the messages, which are in the order of time.
func (p *conversationPage) draw(list []*relay.Message) {
	at := map[relay.Address]int{}
	others := map[relay.Address]bool{}
	for _, m := range list {
		for _, a := range []relay.Address{m.From, m.To} {
			if _, known := at[a]; known {
				continue
			}
			if len(at) == maxLanes {
				others[a] = true
				continue
			}
			at[a] = len(at)
			p.Lanes = append(p.Lanes, lane{Address: a})
		}
	}
	p.Others = len(others)
	n := len(p.Lanes)
	switch p.Size = "many"; {
	case n <= 2:
		p.Size = "two"
	case n <= 3:
		p.Size = "few"
	case n <= 6:
		p.Size = "some"
	}
	middle := func(i float64) float64 { return laneLeft + (i+0.5)*(100-laneLeft)/float64(n) }
	x := func(i float64) string { return fmt.Sprintf("%.2f%%", middle(i)) }
	letters := laneText / letter
	for i := range p.Lanes {
		l := &p.Lanes[i]
		l.X, l.Name, l.Crew = x(float64(i)), fit(l.Address.Name(), letters), fit("^"+l.Address.Crew(), letters)
	}
	y, drawn := 8, time.Time{}
	for _, m := range list {
		from, ok := at[m.From]
		to, also := at[m.To]
		if !ok || !also {
			p.Undrawn++
			continue
		}
		if d := m.CreatedAt.Sub(drawn); !drawn.IsZero() && d >= gapFrom {
			p.Gaps = append(p.Gaps, gapMark{Y: y + gapHeight/2, TextY: y + gapHeight/2 + 4, Text: age(d) + " later"})
			y += gapHeight
		}
		drawn = m.CreatedAt
		r := rowOfMessage(m)
		a := arrow{row: r, X1: x(float64(from)), X2: x(float64(to)), Middle: x(float64(from+to) / 2), Y: y + rowHeight - 12,
			TextY: y + rowHeight - 18, Left: to < from, Self: to == from, Dashed: m.State.Pending() || m.State == relay.Expired,
			ClockOf: m.CreatedAt.Local().Format("15:04:05")}
		text := r.What
		if r.Type != "" {
			text = relay.Visible(r.Type) + " · " + r.What
		}
		across := max(to-from, from-to, 1)
		a.Text = fit(text, letters*float64(across))
		a.Title = fmt.Sprintf("%s: %s to %s, %s", a.ClockOf, m.From, m.To, relay.Visible(text))
		if a.Self {
			a.Middle = a.X1
		}
		p.Arrows = append(p.Arrows, a)
		y += rowHeight
	}
	p.Height = y + 14
	p.Desc = fmt.Sprintf("%s of %s, the oldest on top. A dashed arrow is a message that is not acknowledged. "+
		"The list has the same messages as text.", plural(len(p.Arrows), "message"), plural(n, "Mecha"))
}

// fit cuts a text to so many letters.
func fit(text string, letters float64) string {
	if utf8.RuneCountInString(text) <= int(letters) {
		return text
	}
	return cut(text, max(int(letters)-1, 1))
}
