package console_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// A conversation has a lane for each Mecha and an arrow for each message, dashed until it is
// acknowledged, and marks for times in which nothing was sent.
func TestAConversationIsDrawn(t *testing.T) {
	p := mustPlay(t, true)
	c := p.enter()
	_, page := p.get(c, "/conversation/"+string(p.talk))
	for what, n := range map[string]int{`class="lane"`: 5, `class="lane-name"`: 5, ` dashed">`: 2, `class="says"`: 5, `class="says self"`: 1, `class="gap"`: 3, `<li class="event"`: 6, `class="head" d="M0 0l8-4v8z"`: 2} {
		if got := strings.Count(page, what); got != n {
			t.Errorf("%d of %s, not %d", got, what, n)
		}
	}
	wantText(t, "the page", words(page), "2 messages wait, the oldest for bob^demo", "1 message expired, failed or was rejected.", "6 messages between 5 Mechas", "2 min later", "26 min later", "4 min later",
		"question · completed", "order · completed", "answer · pending", "A dashed arrow is a message that is not acknowledged.")
	for _, path := range []string{"/conversation/none", "/conversation/", "/conversation", "/conversation/%3Cb%3E", "/conversation/conv_00000000000000000000000000"} {
		if status, page := p.get(c, path); status != 404 || strings.Contains(page, "<b>") {
			t.Errorf("%s: %d", path, status)
		}
	}
	p.mustSend(0, p.alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.Conversation = ".." })
	if status, page := p.get(c, "/conversation?id=.."); status != 200 || !strings.Contains(page, `Conversation <code class="id">..</code>`) {
		t.Errorf("the label ..: %d", status)
	}
	_, page = p.get(c, "/message/"+string(p.late.ID))
	if !strings.Contains(page, `href="/conversation/`+string(p.late.Conversation)+`"`) || !strings.Contains(page, `href="/mecha/bob%5edemo"`) {
		t.Error("the message leads neither to its conversation nor to its recipient")
	}
}

var messages = regexp.MustCompile(`<li class="event" id="e([^"]+)"`)

// Of a long conversation the newest messages are shown, and the way to earlier ones; of many
// participants, twelve have a lane, and the page says whose messages are not drawn.
func TestALongConversationIsShownInParts(t *testing.T) {
	s := mustBegin(t, true)
	in := func(m *relay.SendMessage) { m.Conversation = "long" }
	for i := range 14 {
		s.mustIssue(relay.Address(fmt.Sprintf("worker-with-a-long-name-%d^demo", i)), "")
	}
	for i := range 205 {
		s.mustSend(time.Duration(205-i)*time.Second, s.alice, relay.Address(fmt.Sprintf("worker-with-a-long-name-%d^demo", i%14)), `{}`, in)
	}
	c := s.enter()
	_, page := s.get(c, "/conversation/long")
	seen := map[string]bool{}
	for _, m := range messages.FindAllStringSubmatch(page, -1) {
		seen[m[1]] = true
	}
	if len(seen) != 200 || strings.Count(page, `class="lane"`) != 12 {
		t.Errorf("%d messages, %d lanes", len(seen), strings.Count(page, `class="lane"`))
	}
	wantText(t, "the page", words(page), "42 messages of 3 further Mechas in the list only", "Of the conversation, 200 messages are shown", "worker-with-a-lon…")
	before := regexp.MustCompile(`<a href="([^"]*)">Earlier messages`).FindStringSubmatch(page)
	if before == nil {
		t.Fatal("nothing leads to earlier messages")
	}
	_, page = s.get(c, html.UnescapeString(before[1]))
	for _, m := range messages.FindAllStringSubmatch(page, -1) {
		if seen[m[1]] {
			t.Error("a message is on both pages")
		}
		seen[m[1]] = true
	}
	if len(seen) != 205 || strings.Contains(page, "Earlier messages") || !strings.Contains(page, "The newest") {
		t.Errorf("%d messages on both pages", len(seen))
	}
}
