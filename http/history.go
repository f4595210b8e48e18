package http

import (
	"context"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"relay/db/relay"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
	maxWait      = 60 * time.Second
)

// history answers GET /api/v1/mecha/{mechaId}/messages: the caller's messages.
func (s *Server) history(c *call) (answer, error) {
	if err := c.ownMecha(); err != nil {
		return answer{}, err
	}
	q, wait, err := c.historyQuery()
	if err != nil {
		return answer{}, err
	}
	return s.page(c, q, wait)
}

// conversation answers GET /api/v1/conversations/{conversationId}/messages:
// what the caller sent or received in it.
func (s *Server) conversation(c *call) (answer, error) {
	q, wait, err := c.historyQuery()
	if err != nil {
		return answer{}, err
	}
	q.Conversation, q.MustTakePart = relay.ConversationID(c.params.ByName("conversationId")), true
	if err := q.Conversation.Check("conversationId"); err != nil {
		return answer{}, err
	}
	return s.page(c, q, wait)
}

// page answers a history query. If nothing matches, it waits for a match; a wait
// of zero does not.
func (s *Server) page(c *call, q relay.HistoryQuery, wait time.Duration) (answer, error) {
	p, next, err := s.look(c, q, wait > 0)
	if err == nil && wait > 0 && len(p.Messages) == 0 && !p.More {
		p, err = s.waitForPage(c, next, wait)
	}
	if err != nil {
		return answer{}, err
	}
	b := make([]byte, 0, 64+640*len(p.Messages))
	b = append(appendName(b, '{', "messages"), '[')
	for i, m := range p.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendRecord(b, m)
	}
	b = append(b, ']')
	b = appendBool(b, ',', "has_more", p.More)
	b = appendOptional(b, ',', "next_cursor", string(p.Next))
	b = appendInt(b, ',', "limit", q.Limit)
	return ok(append(b, '}'))
}

// look reads a page, and charges the key for the rows. If the caller will look again,
// next is the query for the messages that are not there yet.
func (s *Server) look(c *call, q relay.HistoryQuery, again bool) (p relay.Page, next relay.HistoryQuery, err error) {
	next = q
	if again && !mayMatchLater(q.State) {
		// before the page, which then has looked at all up to there
		if next.Later, err = s.config.DB.Latest(c.Context()); err != nil {
			return p, next, err
		}
	}
	if err := s.reserve(c, s.pageRoom(q.Limit, q.Payload)); err != nil {
		return p, next, err
	}
	p, err = s.config.DB.History(c.Context(), q)
	s.chargeRows(c.key, p.Looked, rowsPerRequest)
	if len(p.Messages) == 0 {
		s.unreserve(c)
	}
	return p, next, err
}

// mayMatchLater reports whether a message that is there, and does not match, may match
// later. The states of a message only go forward.
func mayMatchLater(f relay.StateFilter) bool {
	switch f {
	case relay.AnyState, relay.OnlyPending, relay.OnlyQueued:
		return false
	}
	return true
}

// waitForPage is a long-poll. It looks again whenever something has happened to
// the caller's messages, only at the new ones if that is enough. It counts as a socket,
// and ends when the key does. While the key has used up its rate, it does not look again.
func (s *Server) waitForPage(c *call, q relay.HistoryQuery, wait time.Duration) (relay.Page, error) {
	wake, ended, stop, err := s.config.Live.Watch(c.key)
	if err != nil {
		return relay.Page{}, err
	}
	defer stop()
	// The wait may be longer than a request may take to arrive.
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	ctx, cancel := context.WithTimeout(c.Context(), wait)
	defer cancel()
	for reads := 1; ; reads++ {
		var p relay.Page
		p, q, err = s.look(c, q, true) // after Watch, or a message that came between would be missed
		if err != nil || len(p.Messages) > 0 || p.More {
			return p, err
		}
		select {
		case <-wake:
		case err := <-ended:
			return p, err
		case <-ctx.Done():
			return p, nil
		}
		if pause := s.pause(c, reads); pause > 0 {
			select {
			case <-time.After(pause):
			case err := <-ended:
				return p, err
			case <-ctx.Done():
			}
		}
	}
}

// On a busy mailbox, a long-poll whose filter matches nothing must not read again
// for every message: after quickReads there is a pause between two reads.
const (
	quickReads = 20
	pollPause  = 100 * time.Millisecond
)

// pause returns the pause of a long-poll after so many reads.
func (s *Server) pause(c *call, reads int) time.Duration {
	pause := s.keys.wait(c.key.Number, s.config.Now())
	if reads >= quickReads {
		pause = max(pause, pollPause)
	}
	return pause
}

// mecha reads the address in the path.
func (c *call) mecha() (relay.Address, error) {
	a, err := relay.ParseAddress(c.params.ByName("mechaId"))
	return a, relay.Named("mechaId", err)
}

// ownMecha refuses a path that names another Mecha than the key's own.
func (c *call) ownMecha() error {
	a, err := c.mecha()
	if err == nil && a != c.key.Mecha.Address {
		return relay.Errorf(relay.NotYourMecha, "the path names %s, but the key belongs to %s", a, c.key.Mecha.Address)
	}
	return err
}

// query reads the parameters of a request. err is the first fault that any method
// has found.
type query struct {
	values url.Values
	err    error
}

func (c *call) query() query {
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return query{err: relay.Errorf(relay.InvalidRequest, "the query string is malformed: %v", err)}
	}
	return query{values: values}
}

// historyQuery reads the parameters of PROTOCOL §3, History. Unknown ones are ignored.
func (c *call) historyQuery() (relay.HistoryQuery, time.Duration, error) {
	v := c.query()
	q := relay.HistoryQuery{
		Mecha:        c.key.Mecha.Number,
		Limit:        v.limit(),
		Since:        v.time("since"),
		Until:        v.time("until"),
		After:        relay.MessageID(v.values.Get("since_message_id")),
		Before:       relay.MessageID(v.values.Get("before_message_id")),
		Direction:    choice(&v, "direction", directions),
		State:        choice(&v, "state", states),
		Conversation: relay.ConversationID(v.values.Get("conversation_id")),
		Type:         v.values.Get("message_type"),
		Priority:     v.values.Get("priority"),
		Descending:   choice(&v, "order", orders),
		Payload:      choice(&v, "include", includes),
	}
	if peer := v.values.Get("peer"); peer != "" && v.err == nil {
		q.Peer, v.err = relay.ParseAddress(peer)
		v.err = relay.Named("peer", v.err)
	}
	if v.err == nil && q.Conversation != "" {
		v.err = q.Conversation.Check("conversation_id")
	}
	return q, v.wait(), v.err
}

// The words that parameters may have. "" stands for a parameter that is absent.
var (
	directions = map[string]relay.Direction{"": relay.Both, "all": relay.Both, "in": relay.In, "out": relay.Out}
	states     = map[string]relay.StateFilter{"": relay.AnyState, "pending": relay.OnlyPending, "queued": relay.OnlyQueued,
		"delivered": relay.OnlyDelivered, "acknowledged": relay.OnlyAcknowledged, "expired": relay.OnlyExpired,
		"dead": relay.OnlyDead, "overdue": relay.OnlyOverdue}
	orders   = map[string]bool{"": false, "asc": false, "desc": true}
	includes = map[string]bool{"": false, "payload": true}
)

// choice reads a parameter that has one of some words.
func choice[T any](v *query, name string, words map[string]T) T {
	value, known := words[v.values.Get(name)]
	if !known && v.err == nil {
		all := slices.Sorted(maps.Keys(words))[1:] // the first is ""
		v.err = relay.FieldErrorf(relay.InvalidRequest, name, "must be one of: %s", strings.Join(all, ", "))
	}
	return value
}

// limit reads the largest number of messages on a page.
func (v *query) limit() int {
	text := v.values.Get("limit")
	if text == "" {
		return defaultLimit
	}
	n, ok := wholeNumber(text, maxLimit)
	if (!ok || n == 0) && v.err == nil {
		v.err = relay.FieldErrorf(relay.InvalidLimit, "limit", "must be a whole number from 1; above %d counts as %d",
			maxLimit, maxLimit)
	}
	return n
}

// wait reads how long a long-poll may take; zero means no long-poll.
func (v *query) wait() time.Duration {
	text := v.values.Get("wait")
	if text == "" {
		return 0
	}
	const limit = int(maxWait / time.Second)
	n, ok := wholeNumber(text, limit)
	if !ok && v.err == nil {
		v.err = relay.FieldErrorf(relay.InvalidRequest, "wait",
			"must be a whole number of seconds from 0; above %d counts as %d", limit, limit)
	}
	return time.Duration(n) * time.Second
}

// wholeNumber reads any number of decimal digits. It returns at most limit.
func wholeNumber(text string, limit int) (n int, ok bool) {
	if text == "" {
		return 0, false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int(c-'0'), math.MaxInt32)
	}
	return min(n, limit), true
}

// time reads an RFC 3339 time. A space in it is a + that was not escaped.
func (v *query) time(name string) time.Time {
	text := v.values.Get(name)
	if text == "" || v.err != nil {
		return time.Time{}
	}
	t, err := relay.ParseTime(strings.ReplaceAll(text, " ", "+"))
	if err != nil {
		v.err = relay.FieldErrorf(relay.InvalidTime, name, "is not an RFC 3339 time such as 2026-11-20T08:00:00Z")
	} else if t.IsZero() {
		t = time.Unix(0, 0) // from here on the zero time means no time; every message is later than both
	}
	return t
}
