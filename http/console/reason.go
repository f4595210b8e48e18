package console

import (
	"fmt"
	"strings"
	"time"

	"relay/db/look"
	"relay/db/look/survey"
	"relay/db/relay"
)

// levelOf says how bad it is with a message, for every page: 0 only if it is acknowledged as its sender
// wants it. 1 if it ended in another way, or waits for something that may still happen automatically. 2 if
// it waits and nobody can receive it, or if nothing has happened to it for lateAfter and nobody has named a
// time until which it waits. A worker that claims a message and is then not heard of for lateAfter has named
// such a time in vain.
func levelOf(t *look.Trace, code relay.VerdictCode, now time.Time) int {
	s := &t.Situation
	switch {
	case code == relay.VerdictExpired, code == relay.VerdictFailed, code == relay.VerdictRejected:
		return 1
	case code == relay.VerdictRecipientGone:
		return 2
	case !t.Message.State.Pending():
		return 0
	case s.Until.After(now) && !(s.Claimed && unheard(s, now)) || now.Sub(lastStep(t)) <= lateAfter:
		return 1
	}
	return 2
}

// unheard tells that the recipient of a claimed message is not connected, and has made no request for
// lateAfter: it neither renewed the lease nor reported anything.
func unheard(s *relay.Situation, now time.Time) bool {
	return !s.Online && now.Sub(s.Since) > lateAfter && now.Sub(s.LastSeen) > lateAfter
}

// lastStep returns when something has happened to a message that gives hope. A client that crashes
// again and again is pushed the message each time, so only the first push counts, and the first
// claim; of its own words, the latest does.
func lastStep(t *look.Trace) time.Time {
	last, seen := t.Message.CreatedAt, map[look.StepKind]bool{}
	for _, s := range t.Steps {
		switch s.What {
		case look.StepOverdue, look.StepFull:
			continue
		case look.StepPushed, look.StepClaimed, look.StepReturned:
			if seen[s.What] {
				continue
			}
			seen[s.What] = true
		}
		if s.At.After(last) {
			last = s.At
		}
	}
	return last
}

// standing is what a sentence tells of a Mecha that has never made a request, or that nobody can be.
type standing struct {
	registered time.Time
	removed    time.Time    // zero: it is registered
	keys       []survey.Key // the live ones first, then the newest
	more       bool         // it has more keys
	revoker    string       // who revoked its last key, for people; "" if that is not known
}

// standing reads it, if the verdict of a message wants it; else it is nil.
func (c *Console) standing(a relay.Address, code relay.VerdictCode, about *relay.Situation) (*standing, error) {
	ended := code == relay.VerdictExpired && (about.RecipientGone || about.LastSeen.IsZero())
	if code != relay.VerdictRecipientGone && code != relay.VerdictNeverConnected && !ended {
		return nil, nil
	}
	m, err := c.config.Store.Mecha(a, time.Time{})
	if relay.ErrorCode(err) == relay.MechaNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := &standing{registered: m.CreatedAt, removed: m.RemovedAt, keys: m.Keys, more: m.MoreKeys}
	if last, _ := s.lastKey(); code == relay.VerdictRecipientGone && last != nil && !last.RevokedAt.IsZero() {
		s.revoker, err = c.revoker(last)
	}
	return s, err
}

// revoker returns the name of the user who revoked a key, by the audit log; "" if that does not say.
func (c *Console) revoker(k *survey.Key) (string, error) {
	acts, err := c.config.Store.Acts(k.RevokedAt.Add(-time.Second))
	for _, a := range acts {
		if a.Key == k.ID && a.What == relay.ActKeyRevoked {
			return relay.Visible(a.By.User), err
		}
	}
	return "", err
}

// live returns the first key that is neither revoked nor expired, or nil.
func (s *standing) live() *survey.Key {
	if s == nil || len(s.keys) == 0 || s.keys[0].State >= survey.KeyExpired {
		return nil
	}
	return &s.keys[0]
}

// gone says, after the name of the Mecha, why nobody can receive what waits for it.
func (s *standing) gone(now time.Time) string {
	switch {
	case s == nil:
		return " was removed, or has no valid key"
	case !s.removed.IsZero():
		return " was removed at " + moment(s.removed, now)
	}
	last, when := s.lastKey()
	if last == nil || s.live() != nil {
		return " has no valid key"
	}
	what := "expired"
	if !last.RevokedAt.IsZero() {
		what = "was revoked"
	}
	text := fmt.Sprintf("’s %s key, %s, %s at %s", s.only(), nameKey(*last), what, moment(when, now))
	if s.revoker != "" {
		text += " by " + s.revoker
	}
	return text
}

// only is "only" if the Mecha has one key, else "last".
func (s *standing) only() string {
	if len(s.keys) == 1 && !s.more {
		return "only"
	}
	return "last"
}

// lastKey returns the key that ended last, and when, or nil.
func (s *standing) lastKey() (last *survey.Key, when time.Time) {
	if s == nil {
		return nil, time.Time{}
	}
	for i := range s.keys {
		if end := ended(s.keys[i]); end.After(when) {
			last, when = &s.keys[i], end
		}
	}
	return last, when
}

// ended returns when a key that is not live ended.
func ended(k survey.Key) time.Time {
	if !k.RevokedAt.IsZero() {
		return k.RevokedAt
	}
	return k.ExpiresAt
}

// nameKey names a key by its label, or by its id if it has none.
func nameKey(k survey.Key) string {
	if k.Label == "" {
		return string(k.ID)
	}
	return relay.Quote(cut(k.Label, wordLength))
}

// unused says when a Mecha that has never made a request was registered, and what key it has.
func (s *standing) unused(now time.Time) string {
	k := s.live()
	if k == nil {
		return ""
	}
	key := "has a key, " + nameKey(*k)
	if k.LastUsed.IsZero() {
		key += ", that was never used"
	}
	return fmt.Sprintf("registered at %s, and %s", moment(s.registered, now), key)
}

// A reason is what the sentences about a message are made of.
type reason struct {
	code   relay.VerdictCode
	about  *relay.Situation
	to     relay.Address
	live   bool // the server reports whether the recipient is online
	online bool
	who    *standing
	full   fullWindow
	now    time.Time
}

// fullWindow tells of the sockets of a Mecha whose sync window is full.
type fullWindow struct {
	open time.Time // since when the oldest is open; zero: nobody knows, or no socket is open
	sent int       // messages that they were sent, and that are not acknowledged
}

func (c *Console) fullWindow(id relay.MechaNumber) (w fullWindow) {
	if c.config.Live != nil {
		w.open, w.sent = c.config.Live.Full(id)
	}
	return w
}

// says tells, after "is connected", since when it is, and what it has not acknowledged.
func (w fullWindow) says(now time.Time) string {
	return fmt.Sprintf("since %s, and has not acknowledged %s that it was sent",
		moment(w.open, now), plural(w.sent, "message"))
}

// text is the headline of the page of a message; said is what relay.Judge says, which it is if
// there is nothing better.
func (r *reason) text(said string) string {
	s, at := r.about, func(t time.Time) string { return moment(t, r.now) }
	switch r.code {
	case relay.VerdictRecipientGone:
		return string(r.to) + r.who.gone(r.now) + ": nobody can receive the message."
	case relay.VerdictDeferred:
		said = fmt.Sprintf("%s has deferred the message until %s", r.to, at(s.Until))
		if s.Message.Ack != nil && s.Message.Ack.Detail != "" {
			said += ": " + relay.Quote(s.Message.Ack.Detail)
		}
		return said + "."
	case relay.VerdictPushed:
		return r.pushed(at)
	case relay.VerdictBehind:
		if !r.full.open.IsZero() {
			return fmt.Sprintf("%s is connected %s: its window is full, so the relay has not sent it this message yet.",
				r.to, r.full.says(r.now))
		}
	case relay.VerdictNeverConnected:
		if more := r.who.unused(r.now); more != "" {
			if !r.live { // the file may not have the last minute yet
				return fmt.Sprintf("No request of %s is noted yet. It was %s.", r.to, more)
			}
			return fmt.Sprintf("%s has never made a request. It was %s.", r.to, more)
		}
	case relay.VerdictAnswered:
		if s.Message.State.Pending() {
			return strings.TrimSuffix(humane(said, r.now), ".") + ", but has not acknowledged the message."
		}
	}
	return humane(said, r.now)
}

// pushed tells of a message that was written to a socket whether the recipient is still there.
func (r *reason) pushed(at func(time.Time) string) string {
	s := r.about
	when := at(s.PushedAt)
	if r.justPushed() {
		when = "just now"
	} else {
		when = "at " + when
	}
	switch {
	case !r.live:
		return fmt.Sprintf("The message was written to %s of %s %s, and has not been acknowledged since.",
			plural(s.Sockets, "socket"), r.to, when)
	case !r.online:
		return fmt.Sprintf("%s was sent the message %s, has not acknowledged it, and is not connected now; "+
			"it was last seen at %s.", r.to, when, at(s.LastSeen))
	}
	return fmt.Sprintf("%s was sent the message %s, is connected, and has not acknowledged it.", r.to, when)
}

// justNow is how long something has happened just now.
const justNow = 5 * time.Second

func (r *reason) justPushed() bool { return r.now.Sub(r.about.PushedAt) < justNow }

// sinceWords name what has happened at the time of a verdict.
var sinceWords = map[relay.VerdictCode]string{
	relay.VerdictExpired: "Expired at", relay.VerdictFailed: "Failed at", relay.VerdictRejected: "Rejected at",
	relay.VerdictAnswered: "Answered at", relay.VerdictAcknowledged: "Acknowledged at",
	relay.VerdictWorking: "Last word at", relay.VerdictDeferred: "Deferred at", relay.VerdictClaimed: "Claimed at",
	relay.VerdictPushed: "Last written to a socket at", relay.VerdictAway: "Last seen at",
}
