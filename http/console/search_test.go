package console_test

import (
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// Each word of a search keeps what it says, also far back in the history; a word that means
// nothing is named.
func TestASearchFindsWhatItsWordsSay(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	alice, bob := s.mustIssue("alice^demo", ""), s.mustIssue("bob^demo", "")
	order := s.mustSend(50*time.Minute, alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.Type = "order" })
	s.mustAck(49*time.Minute, bob, order, "failed", "no paper")
	answer := s.mustSend(48*time.Minute, bob, "alice^demo", `{}`, func(m *relay.SendMessage) { m.InReplyTo, m.Conversation = order.ID, order.Conversation })
	s.mustSendMany(alice, "alice^demo", 1200) // newer than both
	fresh := s.mustSend(0, alice, "bob^demo", `{}`)
	c := s.enter()
	for _, x := range []struct {
		q    string
		want []*relay.Message
	}{
		{"order", []*relay.Message{order}},
		{"type:order", []*relay.Message{order}},
		{"from:bob^demo", []*relay.Message{answer}},
		{"from:bob", []*relay.Message{answer}},
		{"to:bob^demo", []*relay.Message{fresh, order}},
		{"to:BOB older:10m", []*relay.Message{order}},
		{"to:bob^demo state:pending", []*relay.Message{fresh}},
		{"state:failed", []*relay.Message{order}},
		{"state:dead", []*relay.Message{order}},
		{"has:reply", []*relay.Message{answer}},
		{"conv:" + string(order.Conversation), []*relay.Message{answer, order}},
		{string(order.ID), []*relay.Message{order}},
		{"from:alice^demo to:bob^demo", []*relay.Message{fresh, order}},
		{"from:nobody^demo", nil},
		{"conv:conv_nothing", nil},
		{"type:order zzz", nil},
	} {
		_, page := s.get(c, "/?q="+strings.NewReplacer(" ", "+", "^", "%5E").Replace(x.q))
		_, flow, _ := strings.Cut(page, `id="flow"`)
		flow, _, _ = strings.Cut(flow, "</section>")
		if n := strings.Count(flow, `class="event"`); n != len(x.want) {
			t.Errorf("%s: %d messages, want %d", x.q, n, len(x.want))
		}
		for _, m := range x.want {
			if !strings.Contains(flow, "/message/"+string(m.ID)) {
				t.Errorf("%s does not find %s", x.q, m.ID)
			}
		}
	}
	for q, says := range map[string]string{
		"colour:red":    "colour:red is not understood: there is no such field. The words are from:, to:, conv:, type:, state:, older: and has:reply",
		"from:":         "from: is not understood: it has nothing after the colon.",
		"older:soon":    "older:soon is not understood: an age is a number with s, m, h or d, as in older:10m.",
		"older:-5m":     "older:-5m is not understood",
		"older:NaNd":    "older:NaNd is not understood",
		"older:1e9d":    "older:1e9d is not understood",
		"older:0s":      "older:0s is not understood",
		"has:none":      "has:none is not understood: there is has:reply only.",
		"state:unacked": "unacked is no state, and is looked for as the word of an ack. The states are pending, queued, delivered, acknowledged, expired, overdue and dead.",
	} {
		_, page := s.get(c, "/?q="+q)
		_, flow, _ := strings.Cut(page, `id="flow"`)
		flow, _, _ = strings.Cut(flow, "</section>")
		if got := words(page); !strings.Contains(got, says) || strings.Contains(flow, `class="event"`) {
			t.Errorf("%s: it lacks %q: %s", q, says, got)
		}
	}
}
