package console

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/inspect"
	"relay/db/relay"
)

// query is a search: words as in "from:alice^demo state:pending older:10m". Words without a
// colon are looked for in the addresses, the id, the type and the last word of the recipient.
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
	Hint     string   // a sentence about a word that may mean something else than it seems to
}

// states are the values of state: that the store knows.
var states = map[string]relay.StateFilter{
	"pending": relay.OnlyPending, "queued": relay.OnlyQueued, "delivered": relay.OnlyDelivered, "acknowledged": relay.OnlyAcknowledged, "acked": relay.OnlyAcknowledged,
	"expired": relay.OnlyExpired, "dead": relay.OnlyDead, "overdue": relay.OnlyOverdue,
}

// steps are further values of state: events, and the words of acks that the relay knows.
var steps = []string{"accepted", "pushed", "claimed", "overdue", "completed", "failed", "rejected", "received", relay.Processing, relay.Deferred}

const (
	knownFields = "The words are from:, to:, conv:, type:, state:, older: and has:reply; a word without a colon is looked for in addresses, ids and types."
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
		if _, ok := states[q.state]; !ok && !slices.Contains(steps, q.state) {
			q.Hint = relay.Visible(q.state) + " is no state, and is looked for as the word of an ack. " + knownStates
		}
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
	const day, most = 24 * time.Hour, 36_500
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseFloat(days, 64)
		return time.Duration(n * float64(day)), err == nil && n > 0 && n < most
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0 && d < most*day
}

// empty tells whether the query wants everything.
func (q query) empty() bool {
	return q.from == "" && q.to == "" && q.conv == "" && q.kind == "" && q.state == "" && q.older == 0 && !q.reply && len(q.words) == 0 && len(q.Refused) == 0
}

// matches tells whether the query wants an event.
func (q query) matches(e inspect.Event, now time.Time) bool {
	m := e.Message
	switch {
	case len(q.Refused) > 0:
		return false
	case !hasAddress(m.From, q.from), !hasAddress(m.To, q.to), q.conv != "" && m.Conversation != q.conv, q.kind != "" && m.Type != q.kind,
		q.older > 0 && now.Sub(m.CreatedAt) < q.older, q.reply && m.InReplyTo == "":
		return false
	}
	if q.state != "" && q.state != string(e.Step.What) && q.state != e.Step.Status && !inState(m, states[q.state]) {
		return false
	}
	for _, w := range q.words {
		if !strings.Contains(strings.ToLower(strings.Join([]string{string(m.From), string(m.To), string(m.ID), m.Type, e.Step.Status, string(e.Step.What)}, " ")), w) {
			return false
		}
	}
	return true
}

// hasAddress tells whether an address is the wanted one, or begins with it.
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
func (q query) list(now time.Time) inspect.ListQuery {
	l := inspect.ListQuery{Conversation: q.conv, Type: q.kind, State: states[q.state]}
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
