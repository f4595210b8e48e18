package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
)

// Verdict is one sentence, and how bad it is: 0 good, 1 not so good, 2 bad.
type Verdict struct {
	Text  string
	Level int
	Also  []string // what else is to be said
	Next  []advice // what to do, in this order
}

// judge says in one sentence whether all is well, and then what else there is to say.
func (c *Console) judge(
	o survey.Overview, all []mailboxRow, hour *lastHour, dead []row, lost *reason, now time.Time,
) (v Verdict) {
	c.judgeStore(&v, o)
	stored := v.Text != ""
	said := len(v.Also)
	late := judgeWaiting(&v, all, now)
	waiting := v.Text != "" && !stored || len(v.Also) > said
	total := hour.total
	v.judgeEnded(total, dead, lost, now)
	pending := "Nothing is pending."
	if len(all) > 0 {
		oldest := oldestOf(all)
		least := map[bool]string{true: "At least "}[o.More]
		pending = fmt.Sprintf("%s%s pending, the oldest for %s.", least, plural(o.Pending, "message")+is(o.Pending),
			waited(oldest.OldestAt, now))
		young := waitUpTo(o.Pending, waited(oldest.OldestAt, now)) + forWhom(oldest, len(all), o.Pending, now) + "."
		if late := 0; !o.More {
			for _, b := range all {
				late += b.Late
			}
			if late == o.Pending { // the sentence says as much
				pending = ""
			}
		}
		switch {
		case stored && waiting: // both are named
			v.Text += " " + v.Also[said]
			v.Also = slices.Delete(v.Also, said, said+1)
		case stored:
			v.Text += " " + upper(strings.ToLower(least)+young)
			pending, waiting = "", true
		case v.Text == "":
			young = fmt.Sprintf("Nothing waits longer than %s; %s%s", age(lateAfter), strings.ToLower(least), young)
			level := one(slices.ContainsFunc(all, func(b mailboxRow) bool { return b.Tone() == "warn" }))
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
	case waiting: // for the first box
		v.Next = append(v.Next, all[0].next()...)
		if all[0].Question != nil && all[0].Level > 0 && !stored {
			v.Text += " " + all[0].mayAnswer()
		}
		v.hint(all[0].question())
	case !stored && total.Expired > 0 && total.Failed == 0 && lost != nil:
		v.Next = lost.next()
	}
	if old := now.Sub(o.At); old > lookOld {
		late = strings.TrimSpace(late + " The waiting messages were counted " + age(old) + " ago.")
	}
	for _, text := range []string{pending, late, sent} {
		if text != "" {
			v.Also = append(v.Also, text)
		}
	}
	return v
}

// oldestOf returns the box whose oldest message has waited longest.
func oldestOf(all []mailboxRow) *mailboxRow {
	oldest := &all[0]
	for i := range all {
		if all[i].OldestAt.Before(oldest.OldestAt) {
			oldest = &all[i]
		}
	}
	return oldest
}

func one(b bool) int { return map[bool]int{true: 1}[b] }

// say makes text the sentence if the verdict has no sentence yet; else it adds the text.
func (v *Verdict) say(level int, text string) {
	if v.Text == "" {
		v.Text, v.Level = text, level
	} else {
		v.Also = append(v.Also, text)
	}
}

// judgeEnded says what failed or expired in the last hour.
func (v *Verdict) judgeEnded(total survey.Span, dead []row, lost *reason, now time.Time) {
	if total.Failed > 0 {
		v.say(1, plural(total.Failed, "message")+was(total.Failed)+" acknowledged as failed or rejected in the last hour"+
			latestOf(dead, false, total.Failed)+".")
	}
	if total.Expired > 0 {
		expired := " expired"
		if slices.ContainsFunc(dead, func(r row) bool { return r.What == "expired" && r.time.Before(now.Add(-time.Hour)) }) {
			expired = was(total.Expired) + " found to have expired" // it expired while no server ran
		}
		v.say(1, plural(total.Expired, "message")+expired+" in the last hour"+
			latestOf(dead, true, total.Expired)+lost.why()+".")
	}
}

// hint says a text, unless it is "", as the first of what else there is to say.
func (v *Verdict) hint(text string) {
	if text != "" {
		v.Also = slices.Insert(v.Also, 0, text)
	}
}

// judgeStore says what keeps the server from its work, as far as that is known.
func (c *Console) judgeStore(v *Verdict, o survey.Overview) {
	if c.config.Live != nil {
		if vitals := c.config.Live.Health(); !vitals.Writable {
			v.say(2, "The relay cannot write to its database.")
		} else if !vitals.Accepting {
			v.say(2, refuses(vitals, o.DiskFree))
			v.Next = []advice{freeSpace}
		}
		return
	}
	if o.Serving == browse.NotServed {
		v.say(2, "No server has the file open: nobody delivers.")
		v.Next = []advice{startServer}
	}
	if o.DiskFree >= 0 && o.DiskFree < lowDisk {
		v.say(2, lowOn(o.DiskFree))
		v.Next = append(v.Next, freeSpace)
	}
}

// judgeWaiting says what waits for too long, or for nobody. unknown is what it cannot tell.
func judgeWaiting(v *Verdict, all []mailboxRow, now time.Time) (unknown string) {
	var late, pending, overdue, mechas, looked int
	var lateMechas int
	var worst *mailboxRow
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
		v.say(worst.Level, upper(moreLate+waitLong(late, now.Sub(oldestOf(all).OldestAt)))+forWhom(worst,
			lateMechas, late, now)+".")
	case mechas > 0:
		v.say(worst.Level, fmt.Sprintf("%s%s.", upper(more+waits(pending)), forWhom(worst, mechas, pending, now)))
	}
	if overdue > 0 {
		v.say(1, upper(more+plural(overdue, "message"))+is(overdue)+
			" not acknowledged by the time that the sender asked for.")
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

// waitUpTo says that n messages wait, the oldest of them for a time.
func waitUpTo(n int, oldest string) string {
	if n == 1 {
		return "1 message has waited " + oldest
	}
	return waits(n) + " up to " + oldest
}

func is(n int) string { return map[bool]string{true: " is", false: " are"}[n == 1] }

func was(n int) string { return map[bool]string{true: " was", false: " were"}[n == 1] }

// forWhom names the Mecha that n messages are about, and why it does not acknowledge.
func forWhom(worst *mailboxRow, mechas, n int, now time.Time) string {
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
func (b *mailboxRow) state(n int, now time.Time) string {
	at := func(t time.Time) string { return moment(t, now) }
	s, it := &b.About, "it"
	if n > 1 {
		it = "the oldest"
	}
	got := "which was sent " + it + " at " + at(s.PushedAt)
	if now.Sub(s.PushedAt) < justNow {
		got = "which was sent " + it + " just now"
	}
	switch {
	case b.Removed || b.LiveKeys == 0:
		return b.gone(now)
	case b.Code == relay.VerdictAnswered:
		return "which has answered " + it + ", but has not acknowledged it"
	case b.Code == relay.VerdictPushed && !b.reason.full.open.IsZero():
		return "which is connected " + b.reason.full.says(now) +
			": its window is full, so the relay sends it no others for now"
	case b.Code == relay.VerdictPushed && !b.Live:
		return got + " and has not acknowledged it"
	case b.Code == relay.VerdictPushed && b.Here:
		return got + ", is connected, and has not acknowledged it"
	case b.Code == relay.VerdictPushed:
		return got + ", has not acknowledged it, and is not connected now"
	case b.Code == relay.VerdictBehind:
		return "which is connected, but was not sent " + it
	case b.Code == relay.VerdictClaimed:
		worker := "one of whose workers"
		if s.Worker != "" {
			worker = "whose worker " + relay.Quote(s.Worker)
		}
		return worker + " claimed " + it + " at " + at(s.Since) + " and has reported nothing since; its lease ends at " +
			at(s.Until)
	case b.Code == relay.VerdictWorking:
		return "which reported " + relay.Visible(s.Message.Ack.Status) + " for " + it + " at " + at(s.Message.Ack.At) +
			", and nothing since"
	case b.Code == relay.VerdictDeferred:
		text := "which has put " + it + " off until " + at(s.Until)
		if s.Message.Ack != nil && s.Message.Ack.Detail != "" {
			text += ": " + relay.Quote(cut(s.Message.Ack.Detail, wordLength))
		}
		return text
	}
	return b.presence(now)
}

// gone says why nobody can be the Mecha.
func (b *mailboxRow) gone(now time.Time) string {
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
func (b *mailboxRow) presence(now time.Time) string {
	switch {
	case b.Here && b.Live:
		return "which is connected"
	case b.LastSeen.IsZero():
		never := "which has never made a request"
		if !b.Live { // the file may not have the last minute yet
			never = "of which no request is noted yet"
		}
		if b.reason != nil && b.reason.who.live() != nil {
			never += ": it was " + b.reason.who.unused(now)
		}
		return never
	case b.Live:
		return "which is " + b.Seen
	case b.Here:
		return "which made a request " + ago(b.LastSeen, now)
	}
	return "which made its last request at " + moment(b.LastSeen, now)
}
