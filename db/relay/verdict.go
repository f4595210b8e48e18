package relay

import (
	"fmt"
	"time"
)

// A Verdict says why there is no answer to a message, or where the answer is (PROTOCOL §3,
// Trace).
type Verdict struct {
	Code  VerdictCode
	Text  string    // a sentence for people
	Since time.Time // since when it has been so; zero if that is not known, or always
}

// VerdictCode is the name of a Verdict for machines.
type VerdictCode string

// The codes, in the order in which Decide looks.
const (
	VerdictRecipientGone  VerdictCode = "recipient_gone"
	VerdictExpired        VerdictCode = "expired"
	VerdictFailed         VerdictCode = "failed"
	VerdictRejected       VerdictCode = "rejected"
	VerdictAnswered       VerdictCode = "answered"
	VerdictAcknowledged   VerdictCode = "acknowledged"
	VerdictWorking        VerdictCode = "working"
	VerdictDeferred       VerdictCode = "deferred"
	VerdictClaimed        VerdictCode = "claimed"
	VerdictPushed         VerdictCode = "pushed"
	VerdictBehind         VerdictCode = "behind"
	VerdictAway           VerdictCode = "away"
	VerdictNeverConnected VerdictCode = "never_connected"
	VerdictWaiting        VerdictCode = "waiting"
)

// A Situation is what is known of a message and its recipient.
type Situation struct {
	Message *Message
	Answer  *Message // or nil

	RecipientGone bool      // it was removed, or has no valid key
	Hidden        bool      // the asker may not know whether the recipient listens
	Online        bool      // the recipient has a socket or a long-poll open
	LastSeen      time.Time // zero: never
	Ahead         int       // messages that are pending before this one

	Until    time.Time // the end of the present lease or deferral, or zero
	Since    time.Time // when that began
	Claimed  bool      // it is a lease
	Worker   string    // the name that its holder gave; "" without one, or if it must not be shown
	Begun    time.Time // when the attempt began, if it is not the first; earlier statuses do not count
	PushedAt time.Time // when the message was last written to a socket, or zero
	Sockets  int       // to how many sockets it was written
	HadAt    time.Time // when its recipient last claimed it, or marked it as delivered; zero: never
}

// Decide returns the verdict of the first rule that holds.
func Decide(s *Situation) Verdict {
	for _, rule := range rules {
		if rule.holds(s) {
			since, text := rule.say(s)
			code := rule.code
			if code == VerdictFailed {
				code = VerdictCode(s.Message.Ack.Status)
			}
			return Verdict{Code: code, Text: text, Since: since}
		}
	}
	return Verdict{Code: VerdictWaiting, Text: fmt.Sprintf("%s has not acknowledged the message.", s.Message.To)}
}

// rule is one reason.
type rule struct {
	code  VerdictCode
	holds func(*Situation) bool
	say   func(*Situation) (since time.Time, text string)
}

// rules are the reasons, in the order in which people want to hear them. The rules of an
// acknowledged message say nothing about the recipient's presence.
var rules = []rule{
	{VerdictRecipientGone,
		func(s *Situation) bool { return s.RecipientGone && s.Message.State.Pending() },
		func(s *Situation) (time.Time, string) {
			return time.Time{}, fmt.Sprintf("%s was removed, or has no valid key: nobody can receive the message.", s.Message.To)
		}},
	{VerdictExpired,
		func(s *Situation) bool { return s.Message.State == Expired },
		func(s *Situation) (time.Time, string) {
			return s.Message.ExpiresAt, fmt.Sprintf("The message expired at %s, before %s acknowledged it%s.",
				clock(s.Message.ExpiresAt), s.Message.To, prefixed(": ", WhyExpired(s)))
		}},
	{VerdictFailed, // or VerdictRejected: the status of the acknowledgement
		func(s *Situation) bool {
			return s.Message.State == Acknowledged && (s.Message.Ack.Status == "failed" || s.Message.Ack.Status == "rejected")
		},
		func(s *Situation) (time.Time, string) {
			return s.Message.Ack.At, fmt.Sprintf("%s acknowledged the message as %s at %s%s.",
				s.Message.To, s.Message.Ack.Status, clock(s.Message.Ack.At), because(s.Message.Ack.Detail))
		}},
	{VerdictAnswered,
		func(s *Situation) bool { return s.Answer != nil },
		func(s *Situation) (time.Time, string) {
			where := ""
			if s.Answer.Conversation != s.Message.Conversation {
				where = " in the conversation " + string(s.Answer.Conversation)
			}
			return s.Answer.CreatedAt, fmt.Sprintf("%s answered at %s with %s%s.",
				s.Message.To, clock(s.Answer.CreatedAt), s.Answer.ID, where)
		}},
	{VerdictAcknowledged,
		func(s *Situation) bool { return s.Message.State == Acknowledged },
		func(s *Situation) (time.Time, string) {
			return s.Message.Ack.At, fmt.Sprintf("%s acknowledged the message as %s at %s%s, and no answer to it is recorded.",
				s.Message.To, s.Message.Ack.Status, clock(s.Message.Ack.At), because(s.Message.Ack.Detail))
		}},
	{VerdictWorking,
		func(s *Situation) bool {
			return s.Message.Ack != nil && ReportsProgress(s.Message.Ack.Status) && s.Message.Ack.Status != Deferred &&
				!s.Message.Ack.At.Before(s.Begun)
		},
		func(s *Situation) (time.Time, string) {
			return s.Message.Ack.At, fmt.Sprintf("%s, and nothing since.", lastWord(s.Message))
		}},
	{VerdictDeferred,
		func(s *Situation) bool { return !s.Until.IsZero() && !s.Claimed },
		func(s *Situation) (time.Time, string) {
			detail := ""
			if s.Message.Ack != nil {
				detail = because(s.Message.Ack.Detail)
			}
			return s.Since, fmt.Sprintf("%s has deferred the message until %s%s.", s.Message.To, clock(s.Until), detail)
		}},
	{VerdictClaimed,
		func(s *Situation) bool { return s.Claimed },
		func(s *Situation) (time.Time, string) {
			worker := "A worker"
			if s.Worker != "" {
				worker = "The worker " + Quote(s.Worker)
			}
			return s.Since, fmt.Sprintf("%s of %s has claimed the message until %s, and has reported nothing yet.",
				worker, s.Message.To, clock(s.Until))
		}},
	{VerdictPushed,
		func(s *Situation) bool { return !s.PushedAt.IsZero() },
		func(s *Situation) (time.Time, string) {
			return s.PushedAt, fmt.Sprintf("The message was written to %s of %s at %s, and has not been acknowledged since.",
				count(s.Sockets, "socket"), s.Message.To, clock(s.PushedAt))
		}},
	{VerdictBehind,
		func(s *Situation) bool { return !s.Hidden && s.Online },
		func(s *Situation) (time.Time, string) {
			return time.Time{}, fmt.Sprintf("%s is connected, but has not been sent this message%s.",
				s.Message.To, prefixed("; ", waiting(s.Ahead)))
		}},
	{VerdictAway,
		func(s *Situation) bool { return !s.Hidden && !s.LastSeen.IsZero() },
		func(s *Situation) (time.Time, string) {
			return s.LastSeen, fmt.Sprintf("%s was last seen at %s, and has not been sent this message%s.",
				s.Message.To, clock(s.LastSeen), prefixed("; ", waiting(s.Ahead)))
		}},
	{VerdictNeverConnected,
		func(s *Situation) bool { return !s.Hidden },
		func(s *Situation) (time.Time, string) {
			return time.Time{}, fmt.Sprintf("%s has never made a request.", s.Message.To)
		}},
}

func clock(t time.Time) string { return FormatTime(t) }

func because(detail string) string {
	if detail == "" {
		return ""
	}
	return " (" + detail + ")"
}

// waiting describes the messages before one, or returns "".
func waiting(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 earlier message is also waiting"
	}
	return count(n, "message") + " before it wait, too"
}

// lastWord describes the latest acknowledgement of a message.
func lastWord(m *Message) string {
	return fmt.Sprintf("%s reported %s%s at %s", m.To, m.Ack.Status, because(m.Ack.Detail), clock(m.Ack.At))
}

// WhyExpired says in a clause what is recorded of a message that has expired: how far it came, or
// when its recipient was last seen. It is "" if the asker may not know.
func WhyExpired(s *Situation) string {
	m := s.Message
	switch {
	case m.Ack != nil:
		return lastWord(m) + ", and nothing since"
	case !s.HadAt.IsZero():
		return fmt.Sprintf("%s got the message at %s, and reported nothing", m.To, clock(s.HadAt))
	case !s.PushedAt.IsZero():
		return fmt.Sprintf("the message was written to %s of %s, last at %s",
			count(s.Sockets, "socket"), m.To, clock(s.PushedAt))
	case s.Hidden:
		return ""
	case s.Online:
		return fmt.Sprintf("no delivery is recorded, and %s is connected now", m.To)
	case s.LastSeen.IsZero():
		return fmt.Sprintf("%s has never made a request", m.To)
	}
	return fmt.Sprintf("no delivery is recorded, and %s was last seen at %s", m.To, clock(s.LastSeen))
}

// prefixed puts a prefix before a text that is not empty.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
