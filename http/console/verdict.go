package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"relay/db/inspect"
	"relay/db/relay"
)

// Verdict is one sentence, and how bad it is: 0 good, 1 not so good, 2 bad.
type Verdict struct {
	Text  string
	Level int
	Also  []string // what else is to be said
	Next  string   // what to do; "" if there is not one thing
}

// judge says in one sentence whether all is well, and then what else there is to say.
func (c *Console) judge(o inspect.Overview, all []box, hour *lastHour, dead []row, now time.Time) (v Verdict) {
	c.judgeStore(&v, o)
	stored := v.Text != ""
	late := judgeWaiting(&v, all, now)
	waiting := v.Text != "" && !stored
	total := hour.total
	if total.Failed > 0 {
		v.say(1, plural(total.Failed, "message")+was(total.Failed)+" acknowledged as failed or rejected in the last hour"+latestOf(dead, false, total.Failed)+".")
	}
	if total.Expired > 0 {
		expired := " expired"
		if slices.ContainsFunc(dead, func(r row) bool { return r.What == "expired" && r.time.Before(now.Add(-time.Hour)) }) {
			expired = was(total.Expired) + " found to have expired" // it expired while no server ran
		}
		v.say(1, plural(total.Expired, "message")+expired+" in the last hour"+latestOf(dead, true, total.Expired)+".")
	}
	pending := "Nothing is pending."
	if len(all) > 0 {
		oldest := oldestOf(all)
		least := map[bool]string{true: "At least "}[o.More]
		pending = fmt.Sprintf("%s%s pending, the oldest for %s.", least, plural(o.Pending, "message")+is(o.Pending), waited(oldest.OldestAt, now))
		if v.Text == "" {
			young := fmt.Sprintf("Nothing waits longer than %s; %s%s up to %s%s.", age(lateAfter), strings.ToLower(least), waits(o.Pending), waited(oldest.OldestAt, now), forWhom(oldest, len(all), o.Pending, now))
			level := one(slices.ContainsFunc(all, func(b box) bool { return b.Tone() == "warn" }))
			v.say(level, young)
			pending, waiting = "", level > 0
		}
	}
	if v.Text == "" && !hour.counted {
		v.say(0, "Nothing waits.")
		pending = ""
	} else if v.Text == "" {
		v.say(0, "All is well: nothing waits.")
		pending = ""
	}
	sent := "The last hour is being counted."
	if hour.counted {
		sent = plural(total.Sent, "message") + " in the last hour."
	}
	switch {
	case waiting: // the sentence is of the first box, or of the oldest
		worst := &all[0]
		if pending == "" {
			worst = oldestOf(all)
		}
		if worst.reason != nil {
			v.Next = worst.reason.next()
		}
	case !stored && v.Level > 0 && total.Failed == 0 && hour.counted:
		v.Next = "Send it again, if it still matters."
		if total.Expired > 1 {
			v.Next = "Send them again, if they still matter."
		}
	}
	if old := now.Sub(o.At); old > lookOld {
		late = strings.TrimSpace(late + " What waits was counted " + age(old) + " ago.")
	}
	for _, text := range []string{pending, late, sent} {
		if text != "" {
			v.Also = append(v.Also, text)
		}
	}
	return v
}

// oldestOf gives the box whose oldest message has waited longest.
func oldestOf(all []box) *box {
	oldest := &all[0]
	for i := range all {
		if all[i].OldestAt.Before(oldest.OldestAt) {
			oldest = &all[i]
		}
	}
	return oldest
}

func one(b bool) int { return map[bool]int{true: 1}[b] }

// say makes a text the sentence, if there is none yet; else it is said, too.
func (v *Verdict) say(level int, text string) {
	if v.Text == "" {
		v.Text, v.Level = text, level
	} else {
		v.Also = append(v.Also, text)
	}
}

// judgeStore says what keeps the server from its work, as far as that is known.
func (c *Console) judgeStore(v *Verdict, o inspect.Overview) {
	if c.config.Live != nil {
		if vitals := c.config.Live.Vitals(); !vitals.Writable {
			v.say(2, "The relay cannot write to its database.")
		} else if !vitals.Accepting {
			v.say(2, refuses(vitals, o.DiskFree))
			v.Next = freeSpace
		}
		return
	}
	if o.Serving == inspect.NotServed {
		v.say(2, "No server has the file open: nobody delivers.")
		v.Next = "Start relay serve."
	}
	if o.DiskFree >= 0 && o.DiskFree < lowDisk {
		v.say(2, lowOn(o.DiskFree))
		v.Next = freeSpace
	}
}

// judgeWaiting says what waits for too long, or for nobody. unknown is what it cannot tell.
func judgeWaiting(v *Verdict, all []box, now time.Time) (unknown string) {
	var late, pending, overdue, mechas, looked int
	var lateMechas int
	var worst *box
	more, moreLate := "", ""
	for i := range all {
		b := &all[i]
		if b.More {
			looked++
		}
		if b.Level == 0 {
			continue
		}
		if b.More {
			if more = "at least "; b.Late >= b.Pending { // the oldest are counted
				moreLate = more
			}
		}
		if mechas++; worst == nil {
			worst = b
		}
		late, pending, overdue, lateMechas = late+b.Late, pending+b.Pending, overdue+b.Overdue, lateMechas+one(b.Late > 0)
	}
	switch {
	case late > 0:
		v.say(worst.Level, upper(moreLate+waitLong(late, now.Sub(oldestOf(all).OldestAt)))+forWhom(worst, lateMechas, late, now)+".")
	case mechas > 0:
		v.say(worst.Level, fmt.Sprintf("%s%s.", upper(more+waits(pending)), forWhom(worst, mechas, pending, now)))
	}
	if overdue > 0 {
		v.say(1, upper(more+plural(overdue, "message"))+is(overdue)+" not acknowledged by the time that the sender asked for.")
	}
	if looked > 0 {
		unknown = fmt.Sprintf("For %s more wait than are counted here: the oldest are.", plural(looked, "Mecha"))
	}
	return unknown
}

// upper makes the first letter of a sentence a capital.
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// latestOf names the recipient of the newest of n messages that expired, or that failed.
func latestOf(dead []row, expired bool, n int) string {
	for _, r := range dead {
		if (r.What == "expired") == expired {
			if n == 1 {
				return ", for " + string(r.To)
			}
			return ", the latest for " + string(r.To)
		}
	}
	return ""
}

func waits(n int) string {
	if n == 1 {
		return "1 message waits"
	}
	return plural(n, "message") + " wait"
}

// waitLong says that n messages wait longer than lateAfter, the oldest of them for a time.
func waitLong(n int, oldest time.Duration) string {
	if n == 1 {
		return "1 message has waited " + age(oldest)
	}
	return fmt.Sprintf("%s longer than %s, the oldest for %s", waits(n), age(lateAfter), age(oldest))
}

func is(n int) string { return map[bool]string{true: " is", false: " are"}[n == 1] }

func was(n int) string { return map[bool]string{true: " was", false: " were"}[n == 1] }

// forWhom names the Mecha that n messages are about, and why it does not acknowledge.
func forWhom(worst *box, mechas, n int, now time.Time) string {
	who := fmt.Sprintf(", all for %s", worst.Mecha)
	if n == 1 {
		who = fmt.Sprintf(" for %s", worst.Mecha)
	}
	if mechas > 1 {
		who = fmt.Sprintf(", for %s, the oldest for %s", plural(mechas, "Mecha"), worst.Mecha)
	}
	return who + ", " + worst.state(n, now)
}

// state says, as the end of a sentence about n messages, why the Mecha does not acknowledge the
// oldest of them.
func (b *box) state(n int, now time.Time) string {
	at := func(t time.Time) string { return moment(t, now) }
	s, it := &b.About, "it"
	if n > 1 {
		it = "the oldest"
	}
	got := "which got " + it + " at " + at(s.PushedAt)
	if now.Sub(s.PushedAt) < justNow {
		got = "which got " + it + " just now"
	}
	switch {
	case b.Removed || b.LiveKeys == 0:
		return b.gone(now)
	case b.Code == relay.VerdictAnswered:
		return "which has answered " + it + ", but has not acknowledged it"
	case b.Code == relay.VerdictPushed && b.Full:
		return "which is connected, but acknowledges nothing since " + at(s.PushedAt) + ": its window is full, and it is sent no more"
	case b.Code == relay.VerdictPushed && !b.Live:
		return got + " and has not acknowledged it"
	case b.Code == relay.VerdictPushed && b.Here:
		return got + ", is connected, and has not acknowledged it"
	case b.Code == relay.VerdictPushed:
		return got + " and left without acknowledging it"
	case b.Code == relay.VerdictBehind:
		return "which is connected, but was not sent " + it
	case b.Code == relay.VerdictClaimed:
		worker := "one of whose workers"
		if s.Worker != "" {
			worker = "whose worker " + relay.Quote(s.Worker)
		}
		return worker + " has held " + it + " since " + at(s.Since) + " without a word; the lease ends at " + at(s.Until)
	case b.Code == relay.VerdictWorking:
		return "which has been at " + it + " since " + at(s.Message.Ack.At)
	case b.Code == relay.VerdictDeferred:
		return "which has put " + it + " off until " + at(s.Until)
	}
	return b.presence(now)
}

// gone says why nobody can be the Mecha.
func (b *box) gone(now time.Time) string {
	switch {
	case b.reason != nil:
		text := b.reason.who.gone(now)
		if rest, ok := strings.CutPrefix(text, "’s"); ok {
			return "whose" + rest
		}
		return "which" + text
	case b.Removed:
		return "which was removed"
	}
	return "which has no valid key"
}

// presence says when the Mecha was there.
func (b *box) presence(now time.Time) string {
	switch {
	case b.Here && b.Live:
		return "which is connected"
	case b.LastSeen.IsZero() && b.reason != nil && b.reason.who.live() != nil:
		return "which has never made a request: it was " + b.reason.who.unused(now)
	case b.LastSeen.IsZero():
		return "which has never made a request"
	case b.Live:
		return b.Seen
	case b.Here:
		return "which made a request " + ago(b.LastSeen, now)
	}
	return "which made its last request at " + moment(b.LastSeen, now)
}
