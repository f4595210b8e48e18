package console_test

import (
	"net/url"
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
		path, page := "/?q="+strings.NewReplacer(" ", "+", "^", "%5E").Replace(x.q), ""
		for end := time.Now().Add(patience); time.Now().Before(end); { // on a busy machine, a search may end before it has found all
			if _, page = s.get(c, path); !strings.Contains(page, "Older messages were not looked at") {
				break
			}
		}
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

// Whatever state a search names, a sentence says what is searched for, and of which states there
// are only events.
func TestASearchForAStateSaysWhatItFinds(t *testing.T) {
	t.Parallel()
	s := mustStage(t, false)
	c := s.enter()
	for state, says := range map[string]string{
		"pending": "state:pending finds messages that are neither acknowledged nor expired.", "queued": "state:queued finds messages that wait", "delivered": "marked as delivered, but not acknowledged.",
		"acknowledged": "are acknowledged, in whatever word.", "acked": "are acknowledged, in whatever word.", "expired": "expired before they were acknowledged.", "dead": "expired, or were acknowledged as failed or rejected.",
		"OVERDUE": "state:overdue finds messages that were not acknowledged by the time", "completed": "have this as the word of their latest acknowledgement.", "failed": "have this as the word", "rejected": "have this as the word",
		"received": "have this as the word", "processing": "have this as the word", "deferred": "have this as the word",
		"accepted": "state:accepted is an event: the relay has taken a message. It is shown here from now on, when it happens; no earlier message is found by it.", "pushed": "is an event: a message is written to a socket.",
		"claimed":  "is an event: a worker gets a lease of a message. It is shown here from now on, when it happens; no earlier message is found by it. The page of a Mecha shows what its workers hold now.",
		"returned": "is an event: a lease or a deferral ends", "conversation_full": "is an event: a conversation has all the messages", "of<this>": "of<this> is no state, and is looked for as the word of an ack.",
	} {
		if _, page := s.get(c, "/?q="+url.QueryEscape("state:"+state)); !strings.Contains(words(page), says) {
			t.Errorf("state:%s: it lacks %q: %s", state, says, words(page))
		}
	}
}

// The id of a conversation, alone, finds its messages, even if it looks like a field of a search;
// without such a conversation, it is one that there is not.
func TestASearchFindsAConversationByItsID(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	in := func(id relay.ConversationID) *relay.Message {
		return s.mustSend(time.Minute, alice, "alice^demo", `{}`, func(m *relay.SendMessage) { m.Conversation = id })
	}
	c := s.enter()
	ids := []relay.ConversationID{"order:17", "urn:uuid:f81d4fae", ":", "older:soon", "plain-17", ""}
	for _, id := range ids {
		m := in(id)
		_, page := s.get(c, "/?q="+url.QueryEscape(string(m.Conversation)))
		_, flow, _ := strings.Cut(page, `id="flow"`)
		flow, _, _ = strings.Cut(flow, "</section>")
		if n := strings.Count(flow, `class="event"`); n != 1 || !strings.Contains(flow, "/message/"+string(m.ID)) || strings.Contains(page, "not understood") {
			t.Errorf("%s finds %d messages: %s", m.Conversation, n, words(page))
		}
		if link := `href="/conversation/` + string(m.Conversation) + `">the conversation</a>`; id != "plain-17" && !strings.Contains(page, link) {
			t.Errorf("%s: nothing leads to the conversation", m.Conversation)
		}
	}
	_, page := s.get(c, "/?q=order:18")
	wantText(t, "a search for no conversation", words(page), "order:18 is not understood: there is no such field.")
	if t.Failed() {
		return
	}
	// Updates to an open page are searched for in the same way.
	b := mustOpen(t)
	b.open(s.entry("/?q=order:17"))
	b.await(isLive)
	in("order:18")
	m := in("order:17")
	b.await(`document.querySelectorAll("#flow .event").length == 2`)
	if first := b.eval(`document.querySelector("#flow .event a").getAttribute("href")`); first != `"/message/`+string(m.ID)+`"` {
		t.Errorf("the newest row is %s", first)
	}
}
