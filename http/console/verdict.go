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
}

// judge says in one sentence whether all is well, and then what else there is to say.
func (c *Console) judge(o inspect.Overview, all []box, hour *lastHour, dead []row, now time.Time) (v Verdict) {
	c.judgeStore(&v, o)
	late := judgeWaiting(&v, all, now)
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
		oldest := slices.MinFunc(all, func(a, b box) int { return a.OldestAt.Compare(b.OldestAt) })
		least := map[bool]string{true: "At least "}[o.More]
		pending = fmt.Sprintf("%s%s pending, the oldest for %s.", least, plural(o.Pending, "message")+is(o.Pending), age(now.Sub(oldest.OldestAt)))
		if v.Text == "" {
			young := fmt.Sprintf("Nothing waits longer than %s; %s%s up to %s%s.", age(lateAfter), strings.ToLower(least), waits(o.Pending), age(max(now.Sub(oldest.OldestAt), time.Second)), forWhom(&oldest, len(all), now))
			v.say(0, young)
			pending = ""
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
	for _, text := range []string{pending, late, sent} {
		if text != "" {
			v.Also = append(v.Also, text)
		}
	}
	return v
}

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
			v.say(2, "The relay refuses messages: its disk is nearly full.")
		}
		return
	}
	if o.Serving == inspect.NotServed {
		v.say(2, "No server has the file open: nobody delivers.")
	}
	if o.DiskFree >= 0 && o.DiskFree < lowDisk {
		v.say(2, lowOn(o.DiskFree))
	}
}

// judgeWaiting says what waits for too long, or for nobody. unknown is what it cannot tell.
func judgeWaiting(v *Verdict, all []box, now time.Time) (unknown string) {
	var late, pending, overdue, mechas, looked int
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
		late, pending, overdue = late+b.Late, pending+b.Pending, overdue+b.Overdue
	}
	switch {
	case late > 0:
		v.say(worst.Level, fmt.Sprintf("%s longer than %s%s.", upper(moreLate+waits(late)), age(lateAfter), forWhom(worst, mechas, now)))
	case mechas > 0:
		v.say(worst.Level, fmt.Sprintf("%s%s.", upper(more+waits(pending)), forWhom(worst, mechas, now)))
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

func is(n int) string { return map[bool]string{true: " is", false: " are"}[n == 1] }

func was(n int) string { return map[bool]string{true: " was", false: " were"}[n == 1] }

// forWhom names the Mecha that it is about, and why it does not acknowledge.
func forWhom(worst *box, mechas int, now time.Time) string {
	who := fmt.Sprintf(", all for %s", worst.Mecha)
	if worst.Pending == 1 {
		who = fmt.Sprintf(" for %s", worst.Mecha)
	}
	if mechas > 1 {
		who = fmt.Sprintf(", for %s, the oldest for %s", plural(mechas, "Mecha"), worst.Mecha)
	}
	return who + ", " + worst.state(now)
}

// state says, as the end of a sentence, why the Mecha does not acknowledge its oldest message.
func (b *box) state(now time.Time) string {
	at := func(t time.Time) string { return moment(t, now) }
	s := &b.About
	switch {
	case b.Removed:
		return "which was removed"
	case b.LiveKeys == 0:
		return "which has no valid key"
	case b.Code == relay.VerdictAnswered:
		return "which has answered it, but has not acknowledged it"
	case b.Code == relay.VerdictPushed && b.Full:
		return "which is connected, but acknowledges nothing since " + at(s.PushedAt) + ": its window is full, and it is sent no more"
	case b.Code == relay.VerdictPushed && !b.Live:
		return "which got it at " + at(s.PushedAt) + " and has not acknowledged it"
	case b.Code == relay.VerdictPushed && b.Here:
		return "which got it at " + at(s.PushedAt) + ", is connected, and has not acknowledged it"
	case b.Code == relay.VerdictPushed:
		return "which got it at " + at(s.PushedAt) + " and left without acknowledging it"
	case b.Code == relay.VerdictBehind:
		return "which is connected, but was not sent it"
	case b.Code == relay.VerdictClaimed:
		worker := "one of whose workers"
		if s.Worker != "" {
			worker = "whose worker " + relay.Quote(s.Worker)
		}
		return worker + " has held it since " + at(s.Since) + " without a word; the lease ends at " + at(s.Until)
	case b.Code == relay.VerdictWorking:
		return "which has been at it since " + at(s.Message.Ack.At)
	case b.Code == relay.VerdictDeferred:
		return "which has put it off until " + at(s.Until)
	case b.Here && b.Live:
		return "which is connected"
	case b.LastSeen.IsZero():
		return "which has never made a request"
	case b.Live:
		return b.Seen
	case b.Here:
		return "which made a request " + age(max(now.Sub(b.LastSeen), time.Second)) + " ago"
	}
	return "which made its last request at " + at(b.LastSeen)
}
