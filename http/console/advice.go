package console

import (
	"fmt"

	"relay/db/relay"
)

// advice is one thing to do: a sentence, and perhaps the command that does it.
type advice struct {
	Text    string
	Command string // for a shell, or ""
}

// do is advice without a command.
func do(format string, args ...any) advice { return advice{Text: fmt.Sprintf(format, args...)} }

// next is what to do about a message, in the order in which it is to be done.
func (r *reason) next() []advice {
	s := r.about
	switch r.code {
	case relay.VerdictRecipientGone:
		return r.newKey()
	case relay.VerdictExpired:
		if first := r.beforeAgain(); len(first) > 0 {
			return append(first, do("Then send the message again, if it still matters."))
		}
	case relay.VerdictFailed, relay.VerdictRejected:
		return []advice{do("Read what %s says of it. Send the message again only if that has changed.", r.to)}
	case relay.VerdictDeferred:
		return []advice{do("Wait until %s, when %s is sent the message again, or mend what %s gives as its reason.",
			moment(s.Until, r.now), r.to, r.to)}
	case relay.VerdictClaimed:
		worker := "the worker"
		if s.Worker != "" {
			worker += " " + relay.Quote(s.Worker)
		}
		return []advice{do("Look at whether %s still runs, or wait until %s: "+
			"then its lease ends, and another worker can claim the message.", worker, moment(s.Until, r.now))}
	case relay.VerdictPushed:
		return r.nextPushed()
	case relay.VerdictBehind:
		if s.Ahead > 0 {
			return []advice{do("Look at what %s does with the oldest message that it has not acknowledged.", r.to)}
		}
	case relay.VerdictAway:
		return []advice{do("Start %s.", r.to)}
	case relay.VerdictNeverConnected:
		return []advice{r.start()}
	}
	return nil
}

func (r *reason) nextPushed() []advice {
	switch {
	case !r.full.open.IsZero():
		return []advice{do("Look at what %s does with the oldest message that it has not acknowledged.", r.to)}
	case r.live && !r.online:
		return []advice{do("Look at why %s is not connected any more, and start it again.", r.to)}
	case r.now.Sub(r.about.PushedAt) <= lateAfter:
		return nil
	}
	return []advice{do("Look at what %s does; if it hangs, restart it.", r.to)}
}

// start is the advice for a Mecha that is not there.
func (r *reason) start() advice {
	if k := r.who.live(); k != nil {
		return do("Start %s with its key, %s.", r.to, nameKey(*k))
	}
	return do("Start %s.", r.to)
}

// newKey is the advice for a Mecha without a valid key.
func (r *reason) newKey() []advice {
	if r.who == nil || !r.who.removed.IsZero() {
		return nil
	}
	return []advice{{fmt.Sprintf("Make a new key, give it to %s, and start it with that:", r.to),
		"relay key create " + string(r.to)}}
}

// beforeAgain is what to do before an expired message is sent again; nil if that is in vain, because
// the recipient was removed.
func (r *reason) beforeAgain() []advice {
	s := r.about
	switch {
	case s.RecipientGone:
		return r.newKey()
	case s.Message.Ack != nil || !s.HadAt.IsZero() || !s.PushedAt.IsZero():
		return []advice{do("Look at what %s did with the message.", r.to)}
	case r.online:
		return []advice{do("%s is connected now.", r.to)}
	}
	return []advice{r.start()}
}
