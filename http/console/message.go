package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"relay/db/inspect"
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
	Next    string // what to do
	SinceIs string // what has happened at Verdict.Since
	Refuses string // that the server refuses messages; "": it does not
	Retried bool
	Steps   []step
	Answers []row // the messages that answer it
	Answer  *relay.Message
	Others  []row // if nothing answers it: what its recipient has sent its sender since
	Ahead   int
	// Elsewhere may be meant as the answer, but is in another conversation; nil: there is none.
	Elsewhere *relay.Message
	Seen      string // how it is with the recipient; "" if that does not matter any more
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
	p := &messagePage{Message: t.Message, Verdict: c.verdict(t), Retried: t.Retried, Answer: t.Situation.Answer, Ahead: t.Situation.Ahead}
	now := c.config.Now()
	p.Level, p.SinceIs = levelOf(t, p.Verdict.Code, now), sinceWords[p.Verdict.Code]
	for _, m := range answers {
		p.Answers = append(p.Answers, rowOfMessage(m))
	}
	if a := p.Answer; a != nil && a.InReplyTo != id { // it answers without naming the question
		p.Answers = append(p.Answers, rowOfMessage(a))
	}
	if len(p.Answers) == 0 {
		l := inspect.ListQuery{Mecha: t.Message.To, Peer: t.Message.From, Direction: relay.Out, After: id, Oldest: true, Limit: shownOthers}
		list, _, err := c.find(r.Context(), l, deadFor)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			p.Others = append(p.Others, rowOfMessage(m))
			if p.Elsewhere == nil && m.Conversation != t.Message.Conversation && m.InReplyTo == "" {
				p.Elsewhere = m
			}
		}
	}
	if t.Message.State.Pending() {
		if p.Seen, err = c.seen(r.Context(), t); err != nil {
			return nil, err
		}
	}
	if p.Elsewhere != nil && p.Verdict.Code == relay.VerdictAcknowledged {
		p.Level = 1 // somebody may wait for the answer that is in another conversation
	}
	reason, err := c.reason(t, p.Verdict.Code, now)
	if err != nil {
		return nil, err
	}
	if p.Refuses, err = c.refusing(r.Context()); err != nil {
		return nil, err
	}
	if p.Verdict.Text, p.Next = reason.text(p.Verdict.Text), reason.next(); p.Elsewhere != nil {
		p.Next = "Read that message; one that names this one in in_reply_to is told here as its answer."
	}
	p.Steps = lifeOf(t)
	return p, nil
}

// lifeOf makes the lines of the life of a message.
func lifeOf(t *inspect.Trace) (all []step) {
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
	slices.SortStableFunc(all, func(a, b step) int { return a.At.Compare(b.At) })
	for n := range all[1:] {
		d := all[n+1].At.Sub(all[n].At)
		all[n+1].After, all[n+1].Gap = "+"+took(d), gap(d)
	}
	return all
}

// refusing says that the server refuses messages; "" if it does not, or if nobody knows.
func (c *Console) refusing(ctx context.Context) (string, error) {
	if c.config.Live == nil {
		return "", nil
	}
	v := c.config.Live.Vitals()
	if v.Accepting || !v.Writable {
		return "", nil
	}
	o, err := c.overview(ctx)
	return refuses(v, o.DiskFree), err
}

// reason gives what the sentences about a message are made of.
func (c *Console) reason(t *inspect.Trace, code relay.VerdictCode, now time.Time) (*reason, error) {
	who, err := c.standing(t.Message.To, code)
	return &reason{code: code, about: &t.Situation, to: t.Message.To, live: c.config.Live != nil, online: t.Situation.Online, who: who, now: now}, err
}

// seen says how it is with the recipient of a message that waits.
func (c *Console) seen(ctx context.Context, t *inspect.Trace) (string, error) {
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

// gap gives how wide a time line shows a time, from 0 to 4.
func gap(d time.Duration) int {
	n := 0
	for _, limit := range []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		if d >= limit {
			n++
		}
	}
	return n
}

const stepAnswered inspect.StepKind = "answered"

// withAnswer gives the steps of a trace, and the answer among them, by their times.
func withAnswer(t *inspect.Trace) (all []inspect.Step) {
	a := t.Situation.Answer
	for _, s := range t.Steps {
		if a != nil && a.CreatedAt.Before(s.At) {
			all = append(all, inspect.Step{At: a.CreatedAt, What: stepAnswered})
			a = nil
		}
		all = append(all, s)
	}
	if a != nil {
		all = append(all, inspect.Step{At: a.CreatedAt, What: stepAnswered})
	}
	return all
}

// explainStep says what happened in a step.
func explainStep(m *relay.Message, s inspect.Step) string {
	switch s.What {
	case inspect.StepAccepted:
		signed := "not signed"
		if m.Signed {
			signed = "its signature was verified"
		}
		return fmt.Sprintf("from %s, %s, %s", m.From, size(int64(m.PayloadBytes)), signed)
	case inspect.StepPushed:
		return fmt.Sprintf("written to a socket of %s", m.To)
	case inspect.StepDelivered:
		return fmt.Sprintf("%s fetched it", m.To)
	case inspect.StepClaimed:
		by := "a worker"
		if s.Worker != "" {
			by = "the worker " + relay.Quote(s.Worker)
		}
		return fmt.Sprintf("by %s of %s, until %s", by, m.To, s.Until.Local().Format("15:04:05 MST"))
	case inspect.StepReturned:
		return "its lease ran out, or its deferral was over: it is free again"
	case inspect.StepOverdue:
		return fmt.Sprintf("%s was told that it is not acknowledged", m.From)
	case inspect.StepFull:
		return fmt.Sprintf("%s was told that the conversation holds all the messages that it may", m.From)
	case inspect.StepExpired:
		if s.Detail != "" { // somebody has asked for it
			return s.Detail
		}
		return "its time was over before it was acknowledged"
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
