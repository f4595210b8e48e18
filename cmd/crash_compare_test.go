package cmd_test

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"relay/db/dbtest"
	"relay/db/look"
	"relay/db/relay"
)

// catchUp lets the listeners hear the rest, and compares it with the histories.
func (c *crash) catchUp() {
	c.each(func(*sender) {}, func(r *recipient) {
		var want []string
		for _, m := range c.server.history(r.agent, "direction=in") {
			want = append(want, m.MessageID)
		}
		r.listen(func() bool { return len(r.heard) >= len(want) })
		for i := range max(len(want), len(r.heard)) {
			if i >= len(want) || i >= len(r.heard) || want[i] != r.heard[i] {
				c.t.Errorf("%s heard %d messages, its history has %d, and they differ from number %d on", r.Address, len(r.heard), len(want), i)
				return
			}
		}
	}, nil)
}

// compare reads every history and holds it against what was answered.
func (c *crash) compare() {
	var all []record
	found := map[string]record{}
	for _, r := range c.recipients {
		h := c.server.history(r.agent, "direction=in&include=payload")[1:] // but for the cursor
		c.wantOrder(r.Address, h)
		pending := 1
		for _, m := range h {
			var p struct{ Token string }
			json.Unmarshal(m.Payload, &p) // an empty token is found below
			if before, twice := found[p.Token]; twice {
				c.t.Errorf("%s is there twice: %s and %s", p.Token, before.MessageID, m.MessageID)
			}
			found[p.Token] = m
			if m.State != "acknowledged" {
				pending++
			}
		}
		inbox := parse[struct{ Pending int }](c.t, c.server.ask(r.agent, "GET", "/api/v1/mecha/"+r.Address+"/inbox", "").want(c.t, 200))
		if inbox.Pending != pending {
			c.t.Errorf("%s: inbox counts %d pending, history has %d", r.Address, inbox.Pending, pending)
		}
		all = append(all, h...)
	}
	slices.SortFunc(all, func(a, b record) int { return strings.Compare(a.MessageID, b.MessageID) })
	c.wantOrder("all", all)
	total := 0
	for _, s := range c.senders {
		total += c.compareSender(s, found)
	}
	if total != len(all) {
		c.t.Errorf("%d messages were accepted, but histories have %d", total, len(all))
	}
	for _, r := range c.recipients {
		c.compareDeeds(r, found)
	}
}

func (c *crash) wantOrder(whose string, h []record) {
	for i := 1; i < len(h); i++ {
		if h[i].MessageID <= h[i-1].MessageID {
			c.t.Errorf("%s: %s stands after %s", whose, h[i].MessageID, h[i-1].MessageID)
		}
		if h[i].CreatedAt.Before(h[i-1].CreatedAt) {
			c.t.Errorf("%s: created_at goes back from %v to %v", whose, h[i-1].CreatedAt, h[i].CreatedAt)
		}
	}
}

// compareSender returns how many messages the sender knows to be accepted.
func (c *crash) compareSender(s *sender, found map[string]record) (n int) {
	own := c.server.history(s.agent, "direction=out")
	c.wantOrder(s.Address, own)
	last := ""
	for _, l := range s.letters {
		m, there := found[l.token]
		if l.outcome == unknown { // the second attempt was refused for its nonce, so nobody knows
			l.outcome = absent
			if there {
				l.outcome = accepted
				s.committed.Add(1)
			}
		}
		if there != (l.outcome == accepted) {
			c.t.Errorf("%s: outcome %d, in history: %v", l.token, l.outcome, there)
		}
		if l.outcome != accepted {
			continue
		}
		n++
		if l.id != "" && l.id != m.MessageID || l.id != "" && !l.createdAt.Equal(m.CreatedAt) || m.To != l.to || m.From != s.Address || !m.Signed {
			c.t.Errorf("%s was answered as %s at %v to %s, and is %+v", l.token, l.id, l.createdAt, l.to, m)
		}
		if !strings.Contains(l.request.body, `"payload":`+string(m.Payload)) {
			c.t.Errorf("%s: the payload is %s", l.token, m.Payload)
		}
		if m.InReplyTo != l.question || l.conversation != "" && m.ConversationID != l.conversation {
			c.t.Errorf("%s was sent as an answer to %q, in %q, and is %+v", l.token, l.question, l.conversation, m)
		}
		if !l.retried {
			if m.MessageID <= last {
				c.t.Errorf("%s was sent after the 201 of %s, and stands before it", m.MessageID, last)
			}
			last = m.MessageID
		}
	}
	if len(own) != n {
		c.t.Errorf("%s was told of %d accepted messages, its history has %d", s.Address, n, len(own))
	}
	c.compareConversations(s, own)
	return n
}

// compareConversations holds the conversations and the answers of a sender against its history,
// which finds the same messages in another way.
func (c *crash) compareConversations(s *sender, own []record) {
	conversations, answers := map[string][]string{}, map[string][]string{}
	for _, m := range own {
		conversations[m.ConversationID] = append(conversations[m.ConversationID], m.MessageID)
		if m.InReplyTo != "" {
			answers[m.InReplyTo] = append(answers[m.InReplyTo], m.MessageID)
		}
	}
	for id, want := range conversations {
		if len(want) == 1 { // founded by its only message
			continue
		}
		var got []string
		for _, m := range c.server.history(s.agent, "direction=out&conversation_id="+url.QueryEscape(id)) {
			got = append(got, m.MessageID)
		}
		if !slices.Equal(got, want) {
			c.t.Errorf("%s: the conversation %s has %v, want %v", s.Address, id, got, want)
		}
	}
	in, err := look.Inspect(c.db)
	if err != nil {
		c.t.Fatal(err)
	}
	defer in.Close()
	for id, want := range answers {
		var got []string
		list, err := dbtest.Answers(c.t.Context(), in, relay.MessageID(id))
		if err != nil {
			c.t.Fatal(err)
		}
		for _, m := range list {
			got = append(got, string(m.ID))
		}
		if !slices.Equal(got, want) {
			c.t.Errorf("%s: the answers to %s are %v, want %v", s.Address, id, got, want)
		}
	}
}

func (c *crash) compareDeeds(r *recipient, found map[string]record) {
	for _, d := range r.deeds {
		m := found[d.letter.token]
		state := "acknowledged"
		if d.status == "" || d.status == "processing" {
			state = "delivered"
		}
		if m.State != state || d.status != "" && (m.Ack == nil || m.Ack.Status != d.status) {
			c.t.Errorf("%s was answered as %s %s, and is %s %+v", m.MessageID, state, d.status, m.State, m.Ack)
		}
	}
}
