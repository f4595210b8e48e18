package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
)

const (
	shownAnswers = 20
	shownOthers  = 5
)

// messagePage is what pages/message.html shows.
type messagePage struct {
	*relay.Message
	Verdict relay.Verdict
	Level   int
	Next    []advice
	SinceIs string // what has happened at Verdict.Since
	State   string // for people
	Server  string // what keeps the server from its work, if Verdict does not say it
	Waits   string // how long the message has waited; "" if it does not wait
	Vain    string // why it is in vain to send it again now; "": it is not known to be
	Retried bool
	Steps   []step
	Answers []row // the messages that answer it
	Answer  *relay.Message
	Others  []row // if nothing answers it: what its recipient has sent its sender since
	Ahead   int
	// Elsewhere may be meant as the answer, but is in another conversation, or nil.
	Elsewhere *relay.Message
	// Unread says that Elsewhere itself waits, and how it is with whom it is for.
	Unread string
	Seen   string // how it is with the recipient; "" if that does not matter any more
}

// Size is the length of the payload in bytes.
func (p *messagePage) Size() int64 { return int64(p.PayloadBytes) }

// step is a line of the life of a message.
type step struct {
	At    time.Time
	After string // since the step before; "" for the first
	Gap   int    // how long that is, from 0 to 4
	What  string
	Tone  string
	Text  string
	Key   string
}

// showMessage makes the page at /message/{id}.
func (c *Console) showMessage(r *http.Request) (any, error) {
	id := relay.MessageID(r.PathValue("id"))
	t, err := c.config.Store.Why(r.Context(), id)
	if err != nil {
		return nil, err
	}
	answers, err := c.config.Store.Answers(id, shownAnswers)
	if err != nil {
		return nil, err
	}
	p := &messagePage{Message: t.Message, Verdict: c.verdict(t), Retried: t.Retried, Answer: t.Situation.Answer,
		Ahead: t.Situation.Ahead}
	now := c.config.Now()
	p.Level, p.SinceIs, p.State = levelOf(t, p.Verdict.Code, now), sinceWords[p.Verdict.Code], stateOf(&t.Situation)
	if err := c.addAnswers(r.Context(), p, answers); err != nil {
		return nil, err
	}
	reason, err := c.reason(t, p.Verdict.Code, now)
	if err != nil {
		return nil, err
	}
	p.Verdict.Text, p.Next, p.Steps = reason.text(p.Verdict.Text), reason.next(), lifeOf(t, reason.who)
	if t.Message.State.Pending() {
		p.Waits = age(now.Sub(t.Message.CreatedAt))
		if p.Seen, err = c.seen(r.Context(), t); err != nil {
			return nil, err
		}
	}
	if p.Verdict.Code == relay.VerdictBehind {
		if err := c.judgeBehind(r.Context(), p, now); err != nil {
			return nil, err
		}
	}
	if p.Elsewhere != nil {
		var level int
		var next []advice
		if p.Unread, level, next, err = c.unread(r.Context(), p.Elsewhere); err != nil {
			return nil, err
		}
		if p.Verdict.Code == relay.VerdictAcknowledged { // somebody may wait for the answer that is in another conversation
			p.Level, p.Next = max(p.Level, level, 1), append(p.Next, next...)
		}
		p.Next = append(p.Next, nameQuestion(p.To))
	}
	return p, c.judgeServer(r.Context(), p)
}

// addAnswers adds to the page of a message what answers it, or what may be meant as that.
func (c *Console) addAnswers(ctx context.Context, p *messagePage, answers []*relay.Message) error {
	for _, m := range answers {
		p.Answers = append(p.Answers, rowOfMessage(m))
	}
	if a := p.Answer; a != nil && a.InReplyTo != p.ID { // it answers without naming the question
		p.Answers = append(p.Answers, rowOfMessage(a))
	}
	if len(p.Answers) > 0 {
		return nil
	}
	l := browse.ListQuery{Mecha: p.To, Peer: p.From, Direction: relay.Out, After: p.ID, Oldest: true, Limit: shownOthers}
	list, _, err := c.find(ctx, l, deadFor)
	for _, m := range list {
		row := rowOfMessage(m)
		if m.Conversation != p.Conversation {
			if inConversation(m) == "" {
				row.Note += ", in " + shorten(string(m.Conversation))
			}
			if p.Elsewhere == nil && m.InReplyTo == "" && (p.Message.State != relay.Acknowledged || atAbout(p.Ack, m)) {
				p.Elsewhere = m
			}
		}
		p.Others = append(p.Others, row)
	}
	return err
}

// judgeBehind corrects the level of a message behind a full window by that of the oldest message: while
// its recipient may be at work on that one, the others wait for their turn.
func (c *Console) judgeBehind(ctx context.Context, p *messagePage, now time.Time) error {
	oldest, _, err := c.config.Store.Messages(ctx,
		browse.ListQuery{Mecha: p.To, Direction: relay.In, State: relay.OnlyPending, Oldest: true, Limit: 1})
	if err != nil || len(oldest) == 0 {
		return err
	}
	t, err := c.config.Store.Why(ctx, oldest[0].ID)
	if relay.ErrorCode(err) == relay.MessageNotFound {
		return nil // removed since
	}
	if err == nil {
		p.Level = min(p.Level, levelOf(t, c.verdict(t).Code, now))
	}
	return err
}

// judgeServer puts before what is said of a message that waits what keeps the server from its work, and
// what is to be done about that. It says next to "Send again" whether that is in vain now.
func (c *Console) judgeServer(ctx context.Context, p *messagePage) error {
	if p.Verdict.Code == relay.VerdictRecipientGone {
		p.Vain = fmt.Sprintf("in vain until %s has a valid key", p.To)
	}
	if live := c.config.Live; !p.Message.State.Pending() && live == nil {
		return nil // nobody asks for that now
	} else if live != nil {
		if v := live.Health(); v.Accepting && v.Writable {
			return nil
		}
		p.Vain = "the relay refuses it now"
	}
	o, err := c.overview(ctx)
	if err != nil {
		return err
	}
	var v Verdict
	if c.judgeStore(&v, o); v.Text == "" {
		return nil
	}
	if p.Server = strings.Join(append([]string{v.Text}, v.Also...), " "); !p.Message.State.Pending() {
		return nil
	}
	p.Verdict.Text = p.Server + " " + p.Verdict.Text
	p.Server, p.Level, p.Next = "", max(p.Level, v.Level), append(v.Next, p.Next...)
	return nil
}

// stateOf says in what state a message is: of a pending one, the farthest that it is known to have come
// in this attempt.
func stateOf(s *relay.Situation) string {
	m := s.Message
	switch {
	case !m.State.Pending():
		return m.State.String()
	case s.Claimed:
		return "claimed, not acknowledged"
	case !s.Until.IsZero():
		return "deferred, not acknowledged"
	case !s.PushedAt.IsZero():
		return "pushed, not acknowledged"
	case m.State == relay.Delivered:
		return "delivered, not acknowledged"
	}
	return "waits, no delivery is recorded"
}

// lifeOf makes the lines of the life of a message. who is its recipient, if that can receive no more.
func lifeOf(t *look.Trace, who *standing) (all []step) {
	for _, s := range withAnswer(t) {
		s, noticed := dated(t.Message, s)
		line := step{At: s.At, Text: explainStep(t.Message, s), Key: cmp.Or(relay.Visible(s.KeyLabel), string(s.Key))}
		if line.What, line.Tone = nameStep(s); s.What == stepAnswered {
			line.Tone = "good"
		}
		if !noticed.IsZero() {
			line.Text += "; noticed at " + noticed.Local().Format("15:04:05 MST")
		}
		all = append(all, line)
	}
	if last, _ := who.lastKey(); t.Situation.RecipientGone && last != nil && !last.RevokedAt.IsZero() {
		text := fmt.Sprintf("the %s key of %s, %s", who.only(), t.Message.To, nameKey(*last))
		if who.revoker != "" {
			text += ", by " + who.revoker
		}
		all = append(all, step{At: last.RevokedAt, What: "key revoked", Tone: "bad", Text: text})
	}
	slices.SortStableFunc(all, func(a, b step) int { return a.At.Compare(b.At) })
	for n := range all[1:] {
		d := all[n+1].At.Sub(all[n].At)
		all[n+1].After, all[n+1].Gap = "+"+took(d), gap(d)
	}
	return all
}

// reason returns what the sentences about a message are made of.
func (c *Console) reason(t *look.Trace, code relay.VerdictCode, now time.Time) (*reason, error) {
	who, err := c.standing(t.Message.To, code, &t.Situation)
	return &reason{full: c.fullWindow(t.Message.Recipient), code: code, about: &t.Situation, to: t.Message.To,
		live: c.config.Live != nil, online: t.Situation.Online, who: who, now: now}, err
}

// seen says how it is with the recipient of a message that waits.
func (c *Console) seen(ctx context.Context, t *look.Trace) (string, error) {
	o, err := c.overview(ctx)
	for _, b := range o.Boxes {
		switch {
		case b.Number != t.Message.Recipient:
		case b.Removed:
			return "removed", err
		case b.LiveKeys == 0:
			return "no valid key", err
		}
	}
	text, _ := c.presence(t.Message.Recipient, t.Situation.LastSeen, c.config.Now())
	return text, err
}

// gap returns how wide a time line shows a time, from 0 to 4.
func gap(d time.Duration) int {
	n := 0
	for _, limit := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if d >= limit {
			n++
		}
	}
	return n
}

const stepAnswered look.StepKind = "answered"

// withAnswer returns the steps of a trace, and the answer among them, by their times.
func withAnswer(t *look.Trace) (all []look.Step) {
	a := t.Situation.Answer
	for _, s := range t.Steps {
		if a != nil && a.CreatedAt.Before(s.At) {
			all = append(all, look.Step{At: a.CreatedAt, What: stepAnswered})
			a = nil
		}
		all = append(all, s)
	}
	if a != nil {
		all = append(all, look.Step{At: a.CreatedAt, What: stepAnswered})
	}
	return all
}

// explainStep says what happened in a step.
func explainStep(m *relay.Message, s look.Step) string {
	switch s.What {
	case look.StepAccepted:
		signed := "not signed"
		if m.Signed {
			signed = "its signature was verified"
		}
		return fmt.Sprintf("from %s, %s, %s", m.From, size(int64(m.PayloadBytes)), signed)
	case look.StepPushed:
		return fmt.Sprintf("written to a socket of %s", m.To)
	case look.StepDelivered:
		return fmt.Sprintf("%s marked the message as delivered", m.To)
	case look.StepClaimed:
		by := "a worker"
		if s.Worker != "" {
			by = "the worker " + relay.Quote(s.Worker)
		}
		return fmt.Sprintf("by %s of %s, with a lease until %s", by, m.To, s.Until.Local().Format("15:04:05 MST"))
	case look.StepReturned:
		return "its lease or its deferral ended: it can be claimed or sent again"
	case look.StepOverdue:
		return fmt.Sprintf("%s was told that the message is not acknowledged", m.From)
	case look.StepFull:
		return fmt.Sprintf("%s was told that the conversation holds all the messages that it may", m.From)
	case look.StepExpired:
		if s.Detail != "" { // somebody has asked for it
			return s.Detail
		}
		return "the message was not acknowledged in its time"
	case stepAnswered:
		return fmt.Sprintf("by %s", m.To)
	}
	text := relay.Visible(s.Detail)
	if !s.Until.IsZero() {
		until := "until " + s.Until.Local().Format("15:04:05 MST")
		if s.Detail == "" {
			return until
		}
		text = until + ": " + relay.Quote(s.Detail)
	}
	return text
}

// payload answers GET /message/{id}/payload: the exact bytes, or with ?indent=1 the JSON on
// several lines, whose numbers keep their spelling. Scripts of it would not run.
func (c *Console) payload(w http.ResponseWriter, r *http.Request) {
	body, err := c.config.Store.Payload(relay.MessageID(r.PathValue("id")))
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	if r.URL.Query().Get("indent") != "" {
		var b bytes.Buffer
		if json.Indent(&b, body, "", "  ") == nil {
			body = b.Bytes()
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	_, _ = w.Write(body) // the client may be gone
}

// curl answers GET /message/{id}/curl: the command that sends the message again, as its sender.
func (c *Console) curl(w http.ResponseWriter, r *http.Request) {
	id := relay.MessageID(r.PathValue("id"))
	m, err := c.config.Store.Message(id)
	if err == nil {
		m.Payload, err = c.config.Store.Payload(id)
	}
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	body, err := json.Marshal(struct {
		To       relay.Address        `json:"to"`
		Conv     relay.ConversationID `json:"conversation_id,omitempty"`
		Type     string               `json:"message_type,omitempty"`
		Priority string               `json:"priority,omitempty"`
		Reply    relay.MessageID      `json:"in_reply_to,omitempty"`
		Payload  json.RawMessage      `json:"payload"`
	}{m.To, m.Conversation, m.Type, m.Priority, m.InReplyTo, m.Payload})
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "relay curl POST /api/v1/messages %s\n", relay.ShellWord(string(body)))
}
