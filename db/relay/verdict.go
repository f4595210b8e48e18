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
	Since time.Time // since when it has been so; zero: it is not known, or has always been so
}

// VerdictCode is the name of a Verdict for machines.
type VerdictCode string

// The codes, in the order in which Judge looks.
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
	Answer  *Message // nil: none

	RecipientGone bool      // it was removed, or has no key that lives
	Hidden        bool      // the asker may not know whether the recipient listens
	Online        bool      // the recipient has a socket or a long-poll open
	LastSeen      time.Time // zero: never
	Ahead         int       // messages that are pending before this one

	Until    time.Time // the end of a lease or a deferral that runs; zero: none does
	Since    time.Time // when that began
	Claimed  bool      // it is a lease
	Worker   string    // the name that its holder gave; "" if none, or if it must not be shown
	Begun    time.Time // when the attempt began, if it is not the first: no word before that counts
	PushedAt time.Time // when the message was last written to a socket; zero: never
	Sockets  int       // to how many it was written in all
}

// Judge gives the verdict: that of the first rule that holds.
func Judge(s *Situation) Verdict {
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
	return Verdict{Code: VerdictWaiting, Text: fmt.Sprintf("%s has not acknowledged it.", s.Message.To)}
}

// rule is one reason.
type rule struct {
	code  VerdictCode
	holds func(*Situation) bool
	say   func(*Situation) (since time.Time, text string)
}

// rules are the reasons, in the order in which people want to hear them. Of a message that
// was acknowledged, nothing is said about the recipient's presence.
var rules = []rule{
	{VerdictRecipientGone,
		func(s *Situation) bool { return s.RecipientGone && s.Message.State.Pending() },
		func(s *Situation) (time.Time, string) {
			return time.Time{}, fmt.Sprintf("%s was removed, or has no valid key: nobody can receive it.", s.Message.To)
		}},
	{VerdictExpired,
		func(s *Situation) bool { return s.Message.State == Expired },
		func(s *Situation) (time.Time, string) {
			return s.Message.ExpiresAt, fmt.Sprintf("It expired at %s, before %s acknowledged it.", clock(s.Message.ExpiresAt), s.Message.To)
		}},
	{VerdictFailed, // or VerdictRejected: the word of the acknowledgement
		func(s *Situation) bool {
			return s.Message.State == Acknowledged && (s.Message.Ack.Status == "failed" || s.Message.Ack.Status == "rejected")
		},
		func(s *Situation) (time.Time, string) {
			return s.Message.Ack.At, fmt.Sprintf("%s acknowledged it as %s at %s%s.", s.Message.To, s.Message.Ack.Status, clock(s.Message.Ack.At), because(s.Message.Ack.Detail))
		}},
	{VerdictAnswered,
		func(s *Situation) bool { return s.Answer != nil },
		func(s *Situation) (time.Time, string) {
			where := ""
			if s.Answer.Conversation != s.Message.Conversation {
				where = " in the conversation " + string(s.Answer.Conversation)
			}
			return s.Answer.CreatedAt, fmt.Sprintf("%s answered at %s with %s%s.", s.Message.To, clock(s.Answer.CreatedAt), s.Answer.ID, where)
		}},
	{VerdictAcknowledged,
		func(s *Situation) bool { return s.Message.State == Acknowledged },
		func(s *Situation) (time.Time, string) {
			return s.Message.Ack.At, fmt.Sprintf("%s acknowledged it as %s at %s%s, and has sent no answer.", s.Message.To, s.Message.Ack.Status, clock(s.Message.Ack.At), because(s.Message.Ack.Detail))
		}},
	{VerdictWorking,
		func(s *Situation) bool {
			return s.Message.Ack != nil && ReportsProgress(s.Message.Ack.Status) && s.Message.Ack.Status != Deferred && !s.Message.Ack.At.Before(s.Begun)
		},
		func(s *Situation) (time.Time, string) {
			return s.Message.Ack.At, fmt.Sprintf("%s has been at it since %s: %s%s.", s.Message.To, clock(s.Message.Ack.At), s.Message.Ack.Status, because(s.Message.Ack.Detail))
		}},
	{VerdictDeferred,
		func(s *Situation) bool { return !s.Until.IsZero() && !s.Claimed },
		func(s *Situation) (time.Time, string) {
			detail := ""
			if s.Message.Ack != nil {
				detail = because(s.Message.Ack.Detail)
			}
			return s.Since, fmt.Sprintf("%s has put it off until %s%s.", s.Message.To, clock(s.Until), detail)
		}},
	{VerdictClaimed,
		func(s *Situation) bool { return s.Claimed },
		func(s *Situation) (time.Time, string) {
			worker := "A worker"
			if s.Worker != "" {
				worker = "The worker " + Quote(s.Worker)
			}
			return s.Since, fmt.Sprintf("%s of %s has claimed it until %s, and has said nothing yet.", worker, s.Message.To, clock(s.Until))
		}},
	{VerdictPushed,
		func(s *Situation) bool { return !s.PushedAt.IsZero() },
		func(s *Situation) (time.Time, string) {
			return s.PushedAt, fmt.Sprintf("It was written to %s of %s at %s, and was not acknowledged since.", count(s.Sockets, "socket"), s.Message.To, clock(s.PushedAt))
		}},
	{VerdictBehind,
		func(s *Situation) bool { return !s.Hidden && s.Online },
		func(s *Situation) (time.Time, string) {
			if s.Ahead == 0 { // a full window would hold a message that is pending
				return time.Time{}, fmt.Sprintf("%s is connected, but this message has not been written to a socket of it.", s.Message.To)
			}
			return time.Time{}, fmt.Sprintf("%s is connected, but behind: %s before it, and a full window waits for acknowledgements.", s.Message.To, waiting(s.Ahead))
		}},
	{VerdictAway,
		func(s *Situation) bool { return !s.Hidden && !s.LastSeen.IsZero() },
		func(s *Situation) (time.Time, string) {
			return s.LastSeen, fmt.Sprintf("%s has been away since %s, with %s before it.", s.Message.To, clock(s.LastSeen), waiting(s.Ahead))
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

func waiting(n int) string {
	if n == 0 {
		return "no message"
	}
	return count(n, "message")
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
