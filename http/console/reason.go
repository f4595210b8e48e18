package console

import (
	"fmt"
	"strings"
	"time"

	"relay/db/inspect"
	"relay/db/relay"
)

// levelOf says how bad it is with a message, for every page: 0 only if it is acknowledged as its
// sender wants it, 1 while it waits for somebody, 2 if it failed, if nobody can receive it, or if
// nothing has happened to it for lateAfter and nobody has named a time until which it waits.
func levelOf(t *inspect.Trace, code relay.VerdictCode, now time.Time) int {
	switch code {
	case relay.VerdictRecipientGone, relay.VerdictExpired, relay.VerdictFailed, relay.VerdictRejected:
		return 2
	}
	switch {
	case !t.Message.State.Pending():
		return 0
	case t.Situation.Until.After(now) || now.Sub(lastStep(t)) <= lateAfter:
		return 1
	}
	return 2
}

// lastStep tells when something has happened to a message that gives hope. A client that crashes
// again and again is pushed the message each time, so only the first push counts, and the first
// claim; of its own words, the latest does.
func lastStep(t *inspect.Trace) time.Time {
	last, seen := t.Message.CreatedAt, map[inspect.StepKind]bool{}
	for _, s := range t.Steps {
		switch s.What {
		case inspect.StepOverdue, inspect.StepFull:
			continue
		case inspect.StepPushed, inspect.StepClaimed, inspect.StepReturned:
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
	removed    time.Time     // zero: it is registered
	keys       []inspect.Key // the live ones first, then the newest
	more       bool          // it has more keys
}

// standing reads it, if the code of a verdict wants it; else it is nil.
func (c *Console) standing(a relay.Address, code relay.VerdictCode) (*standing, error) {
	if code != relay.VerdictRecipientGone && code != relay.VerdictNeverConnected {
		return nil, nil
	}
	m, err := c.config.Store.Mecha(a, time.Time{})
	if relay.ErrorCode(err) == relay.MechaNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &standing{registered: m.CreatedAt, removed: m.RemovedAt, keys: m.Keys, more: m.MoreKeys}, nil
}

// live gives the first key that is neither revoked nor expired; nil: there is none.
func (s *standing) live() *inspect.Key {
	if s == nil || len(s.keys) == 0 || s.keys[0].State >= inspect.KeyExpired {
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
	case len(s.keys) == 0:
		return " has no key"
	}
	last, when := s.keys[0], time.Time{}
	for _, k := range s.keys { // the one that ended last
		if end := ended(k); end.After(when) {
			last, when = k, end
		}
	}
	which := "’s last key"
	if len(s.keys) == 1 && !s.more {
		which = "’s only key"
	}
	what := "expired"
	if !last.RevokedAt.IsZero() {
		what = "was revoked"
	}
	return fmt.Sprintf("%s, %s, %s at %s", which, nameKey(last), what, moment(when, now))
}

// ended tells when a key that is not live ended.
func ended(k inspect.Key) time.Time {
	if !k.RevokedAt.IsZero() {
		return k.RevokedAt
	}
	return k.ExpiresAt
}

// nameKey names a key by its label, or by its id if it has none.
func nameKey(k inspect.Key) string {
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

// A reason is what the sentences of a message that waits are made of.
type reason struct {
	code   relay.VerdictCode
	about  *relay.Situation
	to     relay.Address
	live   bool // the server tells whether the recipient is online
	online bool
	who    *standing
	now    time.Time
}

// text is the headline of the page of a message; said is what relay.Judge says, which it is if
// there is nothing better.
func (r *reason) text(said string) string {
	s, at := r.about, func(t time.Time) string { return moment(t, r.now) }
	switch r.code {
	case relay.VerdictRecipientGone:
		return string(r.to) + r.who.gone(r.now) + ": nobody can receive the message."
	case relay.VerdictDeferred:
		said = fmt.Sprintf("%s has put the message off until %s", r.to, at(s.Until))
		if s.Message.Ack != nil && s.Message.Ack.Detail != "" {
			said += ": " + relay.Quote(s.Message.Ack.Detail)
		}
		return said + "."
	case relay.VerdictPushed:
		return r.pushed(at)
	case relay.VerdictBehind:
		if s.Ahead > 0 {
			return fmt.Sprintf("%s is connected, but has yet to acknowledge %s before this one: until then its socket takes no more.", r.to, plural(s.Ahead, "message"))
		}
	case relay.VerdictNeverConnected:
		if more := r.who.unused(r.now); more != "" {
			return fmt.Sprintf("%s has never made a request. It was %s.", r.to, more)
		}
	case relay.VerdictAnswered:
		if s.Message.State.Pending() {
			return strings.TrimSuffix(humane(said, r.now), ".") + ", but has not acknowledged the message."
		}
	}
	said = humane(said, r.now)
	if rest, ok := strings.CutPrefix(said, "It "); ok {
		said = "The message " + rest
	}
	return said
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
		return fmt.Sprintf("The message was written to %s of %s %s, and was not acknowledged since.", plural(s.Sockets, "socket"), r.to, when)
	case !r.online:
		return fmt.Sprintf("%s got the message %s and left without acknowledging it; it was last there at %s.", r.to, when, at(s.LastSeen))
	case r.now.Sub(s.PushedAt) <= lateAfter:
		return fmt.Sprintf("%s got the message %s, is connected, and has not acknowledged it yet.", r.to, when)
	}
	return fmt.Sprintf("%s got the message %s, has not acknowledged it, and is connected: it hangs.", r.to, when)
}

// justNow is how long something has happened just now.
const justNow = 5 * time.Second

func (r *reason) justPushed() bool { return r.now.Sub(r.about.PushedAt) < justNow }

// next is the one thing to do about it; "" if there is none.
func (r *reason) next() string {
	s := r.about
	switch r.code {
	case relay.VerdictRecipientGone:
		if r.who == nil || !r.who.removed.IsZero() {
			return ""
		}
		return fmt.Sprintf("Make a new key for it: relay key create %s", r.to)
	case relay.VerdictExpired:
		return "Send it again, if it still matters."
	case relay.VerdictDeferred:
		return fmt.Sprintf("Wait until %s, or remove what %s waits for.", moment(s.Until, r.now), r.to)
	case relay.VerdictClaimed:
		worker := "the worker"
		if s.Worker != "" {
			worker += " " + relay.Quote(s.Worker)
		}
		return fmt.Sprintf("Look at %s, or wait until %s, when the lease ends.", worker, moment(s.Until, r.now))
	case relay.VerdictPushed:
		switch {
		case r.live && !r.online:
			return fmt.Sprintf("Look at why %s ended, and start it again.", r.to)
		case r.now.Sub(s.PushedAt) <= lateAfter:
			return ""
		}
		return fmt.Sprintf("Look at what %s does; if it hangs, restart it.", r.to)
	case relay.VerdictBehind:
		if s.Ahead > 0 {
			return fmt.Sprintf("Look at what %s does with the oldest message before this one.", r.to)
		}
	case relay.VerdictAway:
		return fmt.Sprintf("Start %s.", r.to)
	case relay.VerdictNeverConnected:
		if k := r.who.live(); k != nil {
			return fmt.Sprintf("Start %s with its key, %s.", r.to, nameKey(*k))
		}
		return fmt.Sprintf("Start %s.", r.to)
	}
	return ""
}

// sinceWords name what has happened at the time of a verdict.
var sinceWords = map[relay.VerdictCode]string{
	relay.VerdictExpired: "Expired at", relay.VerdictFailed: "Failed at", relay.VerdictRejected: "Rejected at", relay.VerdictAnswered: "Answered at", relay.VerdictAcknowledged: "Acknowledged at",
	relay.VerdictWorking: "Last word at", relay.VerdictDeferred: "Put off at", relay.VerdictClaimed: "Claimed at", relay.VerdictPushed: "Last written to a socket at", relay.VerdictAway: "Last seen at",
}
