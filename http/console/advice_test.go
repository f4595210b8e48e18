package console_test

import (
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/http/console"
)

// mustClaim claims one message for a worker of bob, as long ago as past says. It reports whether there
// was one.
func (s *story) mustClaim(past time.Duration, worker string) bool {
	s.t.Helper()
	s.nonce++
	claimed, err := s.ClaimMessages(s.t.Context(), &relay.ClaimMessages{At: time.Now().Add(-past), Key: s.bob.Number, Limit: 1, Lease: time.Hour, Worker: worker, Nonce: s.nonce})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(claimed) == 1
}

// mustSendAndClaim sends a message for bob which expires a moment after a worker has claimed it. It
// does so on a new stage if the message has expired before: this machine may be too slow for a second.
func (s *story) mustSendAndClaim(sent, claimed time.Duration, worker string) *relay.Message {
	s.t.Helper()
	for _, life := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
		m := s.mustSend(sent, s.alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = time.Now().Add(life) })
		if s.mustClaim(claimed, worker) {
			return m
		}
		if left := time.Until(m.ExpiresAt); left > 0 {
			s.t.Fatalf("the message was not claimed %v before it expired", left)
		}
		*s = *mustBegin(s.t, true)
	}
	s.t.Fatal("the message had expired each time before it was claimed")
	return nil
}

// An expired message has a reason: how far it came. The advice says what to do before it is sent again.
func TestAnExpiryHasAReason(t *testing.T) {
	t.Parallel()
	soon := func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(5 * time.Minute) }
	for _, c := range []struct {
		name  string
		stage func(s *story) *relay.Message
		why   string
		next  string
	}{
		{"pushed", func(s *story) *relay.Message {
			m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`, soon)
			s.Pushed(s.bob.Number, time.Now().Add(-19*time.Minute), []relay.Position{m.Position})
			return m
		}, `the message was written to 1 socket of bob\^demo, last at ` + clock, `Look at what bob\^demo did with the message\. Then send`},
		{"claimed", func(s *story) *relay.Message {
			return s.mustSendAndClaim(20*time.Minute, 19*time.Minute, "mill-2")
		}, `bob\^demo got the message at ` + clock + `, and reported nothing`, `Look at what bob\^demo did with the message\. Then send`},
		{"last seen before", func(s *story) *relay.Message {
			s.mustSee(30*time.Minute, s.bob)
			return s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`, soon)
		}, `no delivery is recorded, and bob\^demo was last seen at ` + clock, `Start bob\^demo\. Then send`},
		{"connected now", func(s *story) *relay.Message {
			s.isOnline(s.bob)
			return s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`, soon)
		}, `no delivery is recorded, and bob\^demo is connected now`, `bob\^demo is connected now\. Then send`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := mustBegin(t, true)
			m := c.stage(s)
			visitor := s.enter()
			s.await(visitor, "/", `1 message (expired|was found to have expired) in the last hour, for bob\^demo: `+c.why+`\..*`+c.next)
			s.await(visitor, "/message/"+string(m.ID), `The message expired at `+clock+`, before bob\^demo acknowledged it: `+c.why+`\..*`+c.next+` the message again, if it still matters\.`)
			s.wantLevel("/", "warn")
			s.wantLevel("/message/"+string(m.ID), "warn")
		})
	}
}

// A message that a worker claimed and of which nothing was heard since is red after ten minutes, as an
// untouched one is; while requests of its Mecha come, it is amber.
func TestAClaimOfAWorkerThatIsUnheardOfIsRed(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustClaim(19*time.Minute, "mill-2")
	page := "/message/" + string(m.ID)
	s.wantLevel("/", "bad")
	s.wantLevel(page, "bad")
	s.mustSee(2*time.Minute, s.bob)
	s.wantLevel(page, "warn")
}

// Messages behind a full window are as bad as the oldest one, which fills it: red when that was sent
// ten minutes ago and nothing came of it.
func TestBehindAFullWindowIsAsBadAsTheOldest(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	first := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	last := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustConnect(s.serve(), s.bob, "sync_limit=1", 1)
	visitor, page := s.enter(), "/message/"+string(last.ID)
	s.await(visitor, page, `its window is full, so the relay has not sent it this message yet`)
	s.await(visitor, "/", `has not acknowledged 1 message that it was sent: its window is full`)
	s.wantLevel("/", "warn")
	s.wantLevel(page, "warn")
	s.Pushed(s.bob.Number, time.Now().Add(-19*time.Minute), []relay.Position{first.Position}) // an earlier connection
	s.await(visitor, "/message/"+string(first.ID), `pushed \+1 min`)
	s.wantLevel("/", "bad")
	s.wantLevel(page, "bad")
}

// A message that was sent long after the question, or after one that has an answer, is not taken for an
// answer in another conversation.
func TestNotEveryMessageMayBeAnAnswer(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	q := s.mustSend(50*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustAck(49*time.Minute, s.bob, q, "completed", "")
	s.mustSend(20*time.Minute, s.bob, "alice^demo", `{}`, func(m *relay.SendMessage) { m.Conversation = "late" })
	s.wantLevel("/message/"+string(q.ID), "good")
	answered := s.mustSend(25*time.Minute, s.carol, "bob^demo", `{}`)
	a := s.mustSend(24*time.Minute, s.bob, "carol^demo", `{}`, func(m *relay.SendMessage) { m.InReplyTo, m.Conversation = answered.ID, answered.Conversation })
	s.mustAck(24*time.Minute, s.bob, answered, "completed", "")
	s.mustAck(24*time.Minute, s.carol, a, "completed", "")
	s.mustSend(20*time.Minute, s.bob, "carol^demo", `{}`, func(m *relay.SendMessage) { m.Conversation = "other" })
	_, page := s.get(s.enter(), "/")
	if text := words(page); !strings.Contains(text, "2 messages wait longer than 10 min") || strings.Contains(text, "may be an answer") {
		t.Errorf("Now says %s", text)
	}
}

// The advice is set off, and a command in it is code. The key's revoker is named only if the audit log
// tells.
func TestACommandInAdviceIsCode(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(time.Minute, s.alice, "bob^demo", `{}`)
	if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: s.bob.ID}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/message/" + string(m.ID), "/mecha/bob%5Edemo"} {
		_, page := s.get(s.enter(), path)
		if !strings.Contains(page, `<p class="next"><bdi>Make a new key, give it to bob^demo, and start it with that:</bdi> <code>relay key create bob^demo</code></p>`) {
			t.Errorf("%s lacks the command: %s", path, page)
		}
		if strings.Contains(words(page), " by maria") || !strings.Contains(words(page), "was revoked at") {
			t.Errorf("%s says %s", path, words(page))
		}
	}
}

// The page of a message says, as Now does, that nobody serves the file.
func TestTheMessagePageNamesTheEndOfTheServer(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, false)
	m := s.mustSend(time.Minute, s.alice, "bob^demo", `{}`)
	if err := s.DB.Close(); err != nil {
		t.Fatal(err)
	}
	page := "/message/" + string(m.ID)
	s.await(s.enter(), page, `No server has the file open: nobody delivers\. .*bob\^demo.*Start the server: relay serve`)
	s.wantLevel(page, "bad")
}

// The words of the verdicts are explained on each page, and one value of an hour is drawn.
func TestTheWordsAreExplained(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	s.mustAck(19*time.Minute, s.bob, m, "completed", "")
	s.await(s.enter(), "/", `Time to ack ?1 min.*Words and colours.*window.*claimed.*amber`)
	_, page := s.get(s.enter(), "/")
	_, plot, _ := strings.Cut(page, "Time to ack")
	if plot, _, _ = strings.Cut(plot, "</figure>"); !strings.Contains(plot, `class="line" d="M`) || strings.Count(plot, "h4.1") != 1 {
		t.Errorf("the plot of one value is %s", plot)
	}
}

// A verdict of several messages is of the oldest. The words of a worker or a reason stay as they are.
func TestOnlyTheVerdictsOwnWordsNameTheOldest(t *testing.T) {
	for verdict, want := range map[string]string{
		"The message was written to 1 socket of bob^demo.":                        "The oldest message was written to 1 socket of bob^demo.",
		"bob^demo has put the message off until noon (the message is long).":      "bob^demo has put the oldest message off until noon (the message is long).",
		"The worker “reads the message” of bob^demo has claimed the message.":     "The worker “reads the message” of bob^demo has claimed the oldest message.",
		"bob^demo reported processing (the message is long), and nothing since.":  "",
		"bob^demo is connected, but has not been sent this message; 2 before it.": "",
	} {
		if want == "" {
			want = verdict
		}
		if got := console.OfOldest(verdict); got != want {
			t.Errorf("%q", got)
		}
	}
}

// Nobody is told to send an expired message again to a Mecha that was removed.
func TestAMessageForARemovedMechaIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = m.At.Add(5 * time.Minute) })
	if err := s.RemoveMecha(&relay.RemoveMecha{At: time.Now(), Address: "bob^demo"}); err != nil {
		t.Fatal(err)
	}
	visitor := s.enter()
	s.await(visitor, "/message/"+string(m.ID), `The message expired at `+clock)
	if _, page := s.get(visitor, "/message/"+string(m.ID)); strings.Contains(page, "Then send the message again") {
		t.Errorf("it advises what is in vain: %s", words(page))
	}
}
