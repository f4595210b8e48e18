package console

import (
	"context"
	"strconv"
	"strings"
	"time"

	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/relay"
)

// query is a search: words as in "from:alice^demo state:pending older:10m". Words without a
// colon are looked for in the addresses, the id, the type and the last word of the recipient; a
// whole id of a conversation will do, too.
type query struct {
	Text     string // as it was typed
	from, to string
	conv     relay.ConversationID
	kind     string // the message type
	state    string // of the message, or what happened
	older    time.Duration
	reply    bool // only answers
	words    []string
	Refused  []string // sentences about words that mean nothing; then nothing is found
	Says     string   // a sentence that says what is searched for, where the words do not
}

// states are the values of state: that the store knows.
var states = map[string]relay.StateFilter{
	"pending": relay.OnlyPending, "queued": relay.OnlyQueued, "delivered": relay.OnlyDelivered,
	"acknowledged": relay.OnlyAcknowledged, "acked": relay.OnlyAcknowledged,
	"expired": relay.OnlyExpired, "dead": relay.OnlyDead, "overdue": relay.OnlyOverdue,
}

// stateFinds says what each value of states finds, and each word of an ack that the relay knows.
var stateFinds = map[string]string{
	"pending":      "are neither acknowledged nor expired",
	"queued":       "wait, and that their recipient has not marked as delivered",
	"delivered":    "their recipient has marked as delivered, but not acknowledged",
	"acknowledged": "are acknowledged, in whatever word", "acked": "are acknowledged, in whatever word",
	"expired": "expired before they were acknowledged", "dead": "expired, or were acknowledged as failed or rejected",
	"overdue":   "were not acknowledged by the time that their sender asked for",
	"completed": ofAck, "failed": ofAck, "rejected": ofAck, "received": ofAck, relay.Processing: ofAck,
	relay.Deferred: ofAck,
}

const ofAck = "have this as the word of their latest acknowledgement"

// stateEvents are further values of state:, with what happens then. A message of the past does not tell
// of them, so only the live flow has them.
var stateEvents = map[look.StepKind]string{
	look.StepAccepted: "the relay has taken a message", look.StepPushed: "a message is written to a socket",
	look.StepClaimed:  "a worker gets a lease of a message",
	look.StepReturned: "a lease or a deferral ends, and the message waits again",
	look.StepFull:     "a conversation has all the messages that it may have",
}

// sayState says in a sentence what a value of state: finds.
func sayState(state string) string {
	if what := stateFinds[state]; what != "" {
		return "state:" + state + " finds messages that " + what + "."
	}
	what := stateEvents[look.StepKind(state)]
	if what == "" {
		return relay.Visible(state) + " is no state, and is looked for as the word of an ack. " + knownStates
	}
	say := "state:" + state + " is an event: " + what +
		". It is shown here from now on, when it happens; no earlier message is found by it."
	if state == string(look.StepClaimed) {
		say += " The page of a Mecha shows what its workers hold now."
	}
	return say
}

const (
	knownFields = "The words are from:, to:, conv:, type:, state:, older: and has:reply; " +
		"a word without a colon is looked for in addresses, ids and types."
	knownStates = "The states are pending, queued, delivered, acknowledged, expired, overdue and dead."
)

// parseQuery reads a search. A word that it does not understand is in Refused.
func parseQuery(text string) query {
	q := query{Text: strings.TrimSpace(text)}
	for _, word := range strings.Fields(q.Text) {
		field, value, named := strings.Cut(word, ":")
		if !named {
			q.words = append(q.words, strings.ToLower(word))
		} else if problem := q.set(field, value); problem != "" {
			q.Refused = append(q.Refused, relay.Visible(word)+" is not understood: "+problem)
		}
	}
	return q
}

// understand reads a search as parseQuery does. What that does not understand, and what looks like the
// id of a conversation, is one if there is a conversation with that id.
func (c *Console) understand(ctx context.Context, text string) (query, error) {
	q := parseQuery(text)
	id := relay.ConversationID(q.Text)
	if len(q.Refused) == 0 && !strings.HasPrefix(q.Text, "conv_") || id.Check("id") != nil {
		return q, nil
	}
	list, _, err := c.find(ctx, browse.ListQuery{Conversation: id, Limit: 1}, searchFor)
	if err != nil || len(list) == 0 {
		return q, err
	}
	return query{Text: q.Text, conv: id, Says: "This is the id of a conversation: its messages are found."}, nil
}

// set sets a field, and says in a sentence what is wrong with it.
func (q *query) set(field, value string) (problem string) {
	if value == "" {
		return "it has nothing after the colon. " + knownFields
	}
	switch field {
	case "from":
		q.from = strings.ToLower(value)
	case "to":
		q.to = strings.ToLower(value)
	case "conv":
		q.conv = relay.ConversationID(value)
	case "type":
		q.kind = value
	case "state":
		q.state = strings.ToLower(value)
		q.Says = sayState(q.state)
	case "older":
		d, ok := parseAge(value)
		if q.older = d; !ok {
			return "an age is a number with s, m, h or d, as in older:10m."
		}
	case "has":
		if q.reply = value == "reply"; !q.reply {
			return "there is has:reply only."
		}
	default:
		return "there is no such field. " + knownFields
	}
	return ""
}

// parseAge reads an age as in 90s, 10m, 2h or 3d, which is more than nothing and less than the
// hundred years that a time can be from now.
func parseAge(text string) (time.Duration, bool) {
	const day, limit = 24 * time.Hour, 36_500
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(day)), err == nil && n > 0 && n < limit
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0 && d < limit*day
}

// Conversation is the conversation that the search is about; "" if it names none.
func (q query) Conversation() relay.ConversationID { return q.conv }

// empty reports whether the query wants everything.
func (q query) empty() bool {
	return q.from == "" && q.to == "" && q.conv == "" && q.kind == "" && q.state == "" && q.older == 0 && !q.reply &&
		len(q.words) == 0 && len(q.Refused) == 0
}

// matches reports whether the query wants an event.
func (q query) matches(e browse.Event, now time.Time) bool {
	m := e.Message
	switch {
	case len(q.Refused) > 0:
		return false
	case !hasAddress(m.From, q.from), !hasAddress(m.To, q.to), q.conv != "" && m.Conversation != q.conv,
		q.kind != "" && m.Type != q.kind, q.older > 0 && now.Sub(m.CreatedAt) < q.older, q.reply && m.InReplyTo == "":
		return false
	}
	if q.state != "" && q.state != string(e.Step.What) && q.state != e.Step.Status && !inState(m, states[q.state]) {
		return false
	}
	for _, w := range q.words {
		if !strings.EqualFold(string(m.Conversation), w) &&
			!strings.Contains(strings.ToLower(strings.Join([]string{string(m.From), string(m.To), string(m.ID), m.Type,
				e.Step.Status, string(e.Step.What)}, " ")), w) {
			return false
		}
	}
	return true
}

// hasAddress reports whether an address is the wanted one, or begins with it.
func hasAddress(a relay.Address, want string) bool {
	return want == "" || strings.HasPrefix(strings.ToLower(string(a)), want)
}

func inState(m *relay.Message, f relay.StateFilter) bool {
	switch f {
	case relay.OnlyPending:
		return m.State.Pending()
	case relay.OnlyQueued:
		return m.State == relay.Queued
	case relay.OnlyDelivered:
		return m.State == relay.Delivered
	case relay.OnlyAcknowledged:
		return m.State == relay.Acknowledged
	case relay.OnlyExpired:
		return m.State == relay.Expired
	case relay.OnlyDead:
		return m.State == relay.Expired || m.State == relay.Acknowledged && isFailure(m.Ack.Status)
	case relay.OnlyOverdue:
		return m.Overdue
	}
	return false
}

func isFailure(status string) bool { return status == "failed" || status == "rejected" }

// list is the part of the query that the store can answer from its tables.
func (q query) list(now time.Time) browse.ListQuery {
	l := browse.ListQuery{Conversation: q.conv, Type: q.kind, State: states[q.state]}
	if l.State == relay.AnyState && isFailure(q.state) {
		l.State = relay.OnlyDead
	}
	if a, err := relay.ParseAddress(q.from); err == nil {
		l.Mecha, l.Direction = a, relay.Out
	}
	if a, err := relay.ParseAddress(q.to); err == nil {
		if l.Mecha == "" {
			l.Mecha, l.Direction = a, relay.In
		} else {
			l.Peer = a
		}
	}
	if q.older > 0 {
		l.Until = now.Add(-q.older)
	}
	return l
}
