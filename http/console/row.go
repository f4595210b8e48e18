package console

import (
	"cmp"
	"time"

	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
)

// row is an event as a page shows it. static/console.js makes the same rows of its JSON.
type row struct {
	Position string               `json:"position"`
	At       string               `json:"at"`    // RFC 3339, UTC
	Clock    string               `json:"clock"` // for people, in the zone of the console
	What     string               `json:"what"`  // one word
	Tone     string               `json:"tone"`  // the class of its colour: good, bad, warn, busy, quiet
	ID       relay.MessageID      `json:"id"`
	Conv     relay.ConversationID `json:"conv"`
	From     relay.Address        `json:"from"`
	To       relay.Address        `json:"to"`
	Type     string               `json:"type"`
	Note     string               `json:"note"`
	time     time.Time
}

// noticeable is how much later than a message expired that must be noticed for the console to tell
// both times.
const noticeable = 5 * time.Second

// dated returns the step of a message with the time at which it happened, and, if it was written much
// later, that time. An expiry is written when a server notices it: after a time without a server,
// that may be long after.
func dated(m *relay.Message, s look.Step) (at look.Step, noticed time.Time) {
	if s.What != look.StepExpired || m.ExpiresAt.IsZero() || !m.ExpiresAt.Before(s.At) {
		return s, time.Time{}
	}
	if s.At.Sub(m.ExpiresAt) >= noticeable {
		noticed = s.At
	}
	s.At = m.ExpiresAt
	return s, noticed
}

// rowOf makes the row of an event.
func rowOf(e browse.Event) row {
	m := e.Message
	s, noticed := dated(m, e.Step)
	r := row{time: s.At, Position: rowID(e), At: relay.FormatTime(s.At), Clock: s.At.Local().Format("15:04:05.000"),
		ID: m.ID, Conv: m.Conversation, From: m.From, To: m.To, Type: relay.Visible(m.Type)}
	if m.Type == relay.DefaultType {
		r.Type = "" // nobody needs to read it in each row
	}
	r.What, r.Tone = nameStep(s)
	switch {
	case !noticed.IsZero():
		r.Note = "noticed at " + noticed.Local().Format("15:04:05")
	case s.Detail != "":
		r.Note = relay.Visible(s.Detail)
	case s.What == look.StepAcknowledged:
		r.Note = "after " + took(s.At.Sub(m.CreatedAt))
	case s.What == look.StepPushed:
		r.Note = "to a socket"
	case s.What == look.StepClaimed && s.Worker != "":
		r.Note = "by " + relay.Visible(s.Worker)
	case !s.Until.IsZero():
		r.Note = "until " + s.Until.Local().Format("15:04:05")
	case s.What == look.StepAccepted:
		r.Note = size(int64(m.PayloadBytes)) + inConversation(m)
		if m.InReplyTo != "" {
			r.Note += ", answers " + string(m.InReplyTo)
		}
	}
	return r
}

// inConversation is the end of a note that names the conversation of a message, if a client has named
// it; else "".
func inConversation(m *relay.Message) string {
	if identifier.MatchString(string(m.Conversation)) {
		return ""
	}
	return ", in " + relay.Visible(string(m.Conversation))
}

// rowID tells the rows of a page apart.
func rowID(e browse.Event) string {
	if e.Step.What == look.StepPushed {
		return cursor(e.Position) + "-" + cursor(relay.Position(e.Step.At.UnixMilli())) + "-" + string(e.Step.Key)
	}
	return cursor(e.Position)
}

// rowOfMessage is the row of a message in a list: the latest that the message itself tells.
func rowOfMessage(m *relay.Message) row {
	e := browse.Event{Position: m.Position, Message: m, Step: look.Step{At: m.CreatedAt, What: look.StepAccepted}}
	r := rowOf(e)
	r.Position = "m" + r.Position // a page may have a row of its acceptance, too
	switch {
	case m.State == relay.Expired:
		r.What, r.Tone = "expired", "bad"
	case m.Ack != nil:
		s := look.Step{What: look.StepAcknowledged, Status: m.Ack.Status}
		if m.State.Pending() {
			s.What = look.StepProgress
		}
		r.What, r.Tone = nameStep(s)
		r.Note = cmp.Or(relay.Visible(m.Ack.Detail), r.Note)
	case m.Overdue:
		r.What, r.Tone = "overdue", "warn"
	case m.State == relay.Delivered:
		r.What, r.Tone = "delivered", "busy"
	default:
		r.What, r.Tone = "pending", "quiet"
	}
	return r
}

// nameStep returns the word for a step, and its colour.
func nameStep(s look.Step) (what, tone string) {
	s.Status = relay.Visible(s.Status)
	switch s.What {
	case look.StepAccepted:
		return "accepted", "quiet"
	case look.StepAcknowledged:
		if isFailure(s.Status) {
			return s.Status, "bad"
		}
		return s.Status, "good"
	case look.StepProgress:
		if s.Status == relay.Deferred {
			return s.Status, "warn"
		}
		return s.Status, "busy"
	case look.StepExpired:
		return "expired", "bad"
	case look.StepOverdue:
		return "overdue", "warn"
	case look.StepFull:
		return "conversation full", "warn"
	case look.StepReturned:
		return "came back", "warn"
	}
	return string(s.What), "busy"
}
