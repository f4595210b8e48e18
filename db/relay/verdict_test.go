package relay_test

import (
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// Each rule holds alone, and goes before those that come later in the list.
func TestTheVerdict(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	message := func(state relay.State, ack *relay.Ack) *relay.Message {
		return &relay.Message{ID: "msg_1", To: "bob^demo", Conversation: "conv_1", State: state, Ack: ack, ExpiresAt: noon}
	}
	word := func(status, detail string) *relay.Ack { return &relay.Ack{Status: status, Detail: detail, At: noon} }
	answer := &relay.Message{ID: "msg_2", Conversation: "conv_1", CreatedAt: noon}
	elsewhere := &relay.Message{ID: "msg_2", Conversation: "conv_2", CreatedAt: noon}
	later := noon.Add(time.Hour)
	// A pending message of which everything holds that can.
	all := relay.Situation{Message: message(relay.Delivered, word("processing", "half done")), Answer: answer, RecipientGone: true, Online: true, LastSeen: noon, Ahead: 2,
		Until: later, Since: noon, PushedAt: noon, Sockets: 2}
	with := func(change func(*relay.Situation)) *relay.Situation {
		s := all
		change(&s)
		return &s
	}
	quiet := func(s *relay.Situation) { // nothing holds any more but where the recipient is
		s.Message, s.Answer, s.RecipientGone, s.Until, s.PushedAt = message(relay.Queued, nil), nil, false, time.Time{}, time.Time{}
	}
	for _, c := range []struct {
		of    *relay.Situation
		code  relay.VerdictCode
		since time.Time
		says  []string
	}{
		{&all, relay.VerdictRecipientGone, time.Time{}, []string{"bob^demo", "no valid key"}},
		{with(func(s *relay.Situation) { s.Message = message(relay.Expired, word("processing", "")) }), relay.VerdictExpired, noon, []string{"12:00:00"}},
		{with(func(s *relay.Situation) { s.Message = message(relay.Acknowledged, word("failed", "no seats")) }), relay.VerdictFailed, noon, []string{"failed", "(no seats)"}},
		{with(func(s *relay.Situation) { s.Message = message(relay.Acknowledged, word("rejected", "")) }), relay.VerdictRejected, noon, []string{"rejected at"}},
		{with(func(s *relay.Situation) { s.RecipientGone = false }), relay.VerdictAnswered, noon, []string{"with msg_2."}},
		{with(func(s *relay.Situation) { s.RecipientGone, s.Answer = false, elsewhere }), relay.VerdictAnswered, noon, []string{"in the conversation conv_2"}},
		{with(func(s *relay.Situation) { s.Message, s.Answer = message(relay.Acknowledged, word("seen", "")), nil }), relay.VerdictAcknowledged, noon, []string{"as seen", "no answer"}},
		{with(func(s *relay.Situation) { s.RecipientGone, s.Answer = false, nil }), relay.VerdictWorking, noon, []string{"since", "processing (half done)"}},
		{with(func(s *relay.Situation) {
			s.RecipientGone, s.Answer, s.Message = false, nil, message(relay.Delivered, word("deferred", "too busy"))
		}), relay.VerdictDeferred, noon, []string{"until 2026-11-20T13:00", "(too busy)"}},
		{with(func(s *relay.Situation) { // the word is of the attempt before
			s.RecipientGone, s.Answer, s.Claimed, s.Begun = false, nil, true, noon.Add(time.Second)
		}), relay.VerdictClaimed, noon, []string{"A worker of"}},
		{with(func(s *relay.Situation) { s.RecipientGone, s.Answer, s.Claimed = false, nil, true }), relay.VerdictWorking, noon, []string{"since", "processing (half done)"}},
		{with(func(s *relay.Situation) { quiet(s); s.Until, s.Claimed, s.Worker, s.PushedAt = later, true, "w1", noon }), relay.VerdictClaimed, noon, []string{`“w1”`, "13:00"}},
		{with(func(s *relay.Situation) { quiet(s); s.Until, s.Claimed = later, true }), relay.VerdictClaimed, noon, []string{"A worker of"}},
		{with(func(s *relay.Situation) { quiet(s); s.PushedAt = noon }), relay.VerdictPushed, noon, []string{"2 sockets"}},
		{with(func(s *relay.Situation) { quiet(s) }), relay.VerdictBehind, time.Time{}, []string{"2 messages before it"}},
		{with(func(s *relay.Situation) { quiet(s); s.Online, s.Ahead = false, 1 }), relay.VerdictAway, noon, []string{"was last seen at", "1 earlier message is also waiting"}},
		{with(func(s *relay.Situation) { quiet(s); s.Online, s.LastSeen = false, time.Time{} }), relay.VerdictNeverConnected, time.Time{}, []string{"never"}},
		{with(func(s *relay.Situation) { quiet(s); s.Hidden = true }), relay.VerdictWaiting, time.Time{}, []string{"has not acknowledged"}},
	} {
		v := relay.Decide(c.of)
		if v.Code != c.code || !v.Since.Equal(c.since) || !strings.HasSuffix(v.Text, ".") {
			t.Errorf("%+v: %+v", c, v)
		}
		for _, part := range c.says {
			if !strings.Contains(v.Text, part) {
				t.Errorf("%s: %q lacks %q", c.code, v.Text, part)
			}
		}
	}
}

// Why a message expired is told by the farthest that it came.
func TestWhyAMessageExpired(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m := relay.Message{To: "bob^demo", State: relay.Expired, ExpiresAt: noon}
	said := m
	said.Ack = &relay.Ack{Status: "processing", Detail: "half done", At: noon}
	for want, s := range map[string]relay.Situation{
		"bob^demo reported processing (half done) at 2026-11-20T12:00:00.000Z, and nothing since": {Message: &said, HadAt: noon, PushedAt: noon},
		"bob^demo got the message at 2026-11-20T12:00:00.000Z, and reported nothing":              {Message: &m, HadAt: noon, PushedAt: noon},
		"the message was written to 2 sockets of bob^demo, last at 2026-11-20T12:00:00.000Z":      {Message: &m, PushedAt: noon, Sockets: 2},
		"no delivery is recorded, and bob^demo is connected now":                                  {Message: &m, Online: true, LastSeen: noon},
		"no delivery is recorded, and bob^demo was last seen at 2026-11-20T12:00:00.000Z":         {Message: &m, LastSeen: noon},
		"bob^demo has never made a request":                                                       {Message: &m},
		"":                                                                                        {Message: &m, Hidden: true},
	} {
		if got := relay.WhyExpired(&s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		end := map[bool]string{true: "acknowledged it.", false: want + "."}[want == ""]
		if text := relay.Decide(&s).Text; !strings.HasSuffix(text, end) {
			t.Errorf("the verdict is %q, and does not end with %q", text, end)
		}
	}
}
