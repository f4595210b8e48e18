package console_test

import (
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// wantLevel checks how bad a page says that it is.
func (s *story) wantLevel(path, level string) {
	s.t.Helper()
	if _, page := s.get(s.enter(), path); !strings.Contains(page, `class="verdict `+level+`"`) {
		s.t.Errorf("%s is not %s: %s", path, level, words(page))
	}
}

// A message that was pushed a moment ago is not called ignored, however old it is: Now and its own
// page are amber and say when. Whether its recipient is still there, they say, too.
func TestAFreshPushIsNotIgnored(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	socket := s.mustConnect(s.serve(), s.bob, "", 1)
	visitor, page := s.enter(), "/message/"+string(m.ID)
	s.await(visitor, "/", `1 message has waited 20 min for bob\^demo, which was sent it (just now|at `+clock+`), is connected`)
	s.await(visitor, page, `bob\^demo was sent the message (just now|at `+clock+`), is connected, and has not acknowledged it\.`)
	s.wantLevel("/", "warn")
	s.wantLevel(page, "warn")
	socket.Close()
	s.await(visitor, page, `bob\^demo was sent the message (just now|at `+clock+`), has not acknowledged it, and is not connected now; it was last seen at`)
	s.await(visitor, "/", `bob\^demo ?not connected, last seen `+clock) // its key's last use is not noted yet
	s.wantLevel(page, "warn")
}

// Of a client that crashes again and again, each push is fresh. The first one counts.
func TestAPushAgainDoesNotHideTheFirst(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	m := s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	s.Pushed(s.bob.Number, time.Now().Add(-19*time.Minute), []relay.Position{m.Position})
	s.Pushed(s.bob.Number, time.Now(), []relay.Position{m.Position})
	page := "/message/" + string(m.ID)
	s.await(s.enter(), page, `bob\^demo was sent the message (just now|at `+clock+`), has not acknowledged it, and is not connected now`)
	s.wantLevel("/", "bad")
	s.wantLevel(page, "bad")
}

// Only what is answered or acknowledged is green: what waits is not, though it is young and its
// Mecha has never been there, or has deferred it, or has answered without an acknowledgement.
func TestWhatWaitsIsNotGreen(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	young := s.mustSend(time.Second, s.alice, "carol^demo", `{}`)
	s.await(s.enter(), "/", `Nothing waits longer than 10 min`)
	s.wantLevel("/", "warn")
	if _, page := s.get(s.enter(), "/"); !strings.Contains(page, `class="mark warn"`) {
		t.Error("the mark of a Mecha that has never been there is not amber")
	}
	answered := s.mustSend(time.Minute, s.alice, "bob^demo", `{}`)
	s.mustSend(30*time.Second, s.bob, "alice^demo", `{}`, func(m *relay.SendMessage) { m.InReplyTo, m.Conversation = answered.ID, answered.Conversation })
	s.await(s.enter(), "/message/"+string(answered.ID), `bob\^demo answered at .*, but has not acknowledged the message\.`)
	s.wantLevel("/message/"+string(answered.ID), "warn")
	s.wantLevel("/message/"+string(young.ID), "warn")
	s.mustAck(0, s.bob, answered, "completed", "")
	s.await(s.enter(), "/message/"+string(answered.ID), `State ?acknowledged`)
	s.wantLevel("/message/"+string(answered.ID), "good")
}

// Of several messages, the sentence tells of which one a worker holds.
func TestOneOfSeveralIsHeld(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	for range 4 {
		s.mustSend(20*time.Minute, s.alice, "bob^demo", `{}`)
	}
	s.nonce++
	if _, err := s.ClaimMessages(t.Context(), &relay.ClaimMessages{At: time.Now().Add(-19 * time.Minute), Key: s.bob.Number, Limit: 1, Lease: time.Hour, Worker: "mill-2", Nonce: s.nonce}); err != nil {
		t.Fatal(err)
	}
	s.await(s.enter(), "/", `4 messages wait longer than 10 min, the oldest for 20 min, all for bob\^demo, whose worker “mill-2” claimed the oldest at`)
	s.wantLevel("/", "bad")
}

// A conversation is as bad as the worst of its open messages, by the rule of the page of a message;
// if none is open, as bad as its last one.
func TestAConversationIsAsBadAsItsMessages(t *testing.T) {
	t.Parallel()
	s := mustBegin(t, true)
	in := func(c relay.ConversationID) func(*relay.SendMessage) {
		return func(m *relay.SendMessage) { m.Conversation = c }
	}
	past := 20 * time.Minute // no message is older than the one before it
	send := func(c relay.ConversationID) *relay.Message {
		past -= time.Second
		return s.mustSend(past, s.alice, "bob^demo", `{}`, in(c))
	}
	send("old")
	s.mustAck(past, s.bob, send("done"), "completed", "")
	s.mustAck(past, s.bob, send("failed"), "failed", "")
	s.mustAck(past, s.bob, send("failed-before"), "failed", "")
	s.mustAck(past, s.bob, send("failed-before"), "completed", "")
	putOff := send("put-off")
	s.nonce++
	if _, err := s.Acknowledge(&relay.Acknowledge{At: time.Now().Add(-19 * time.Minute), Key: s.bob.Number, ID: putOff.ID, Status: relay.Deferred, RetryAfter: time.Hour, ClientTS: relay.FormatTime(time.Now()), Nonce: s.nonce}); err != nil {
		t.Fatal(err)
	}
	for range explained { // the oldest for each recipient is looked at first
		s.mustSend(5*time.Minute, s.alice, "bob^demo", `{}`, in("gone"))
	}
	s.mustSend(time.Second, s.alice, "carol^demo", `{}`, in("gone"))
	for range explained { // of the others it is known that they wait
		s.mustSend(time.Second, s.alice, "bob^demo", `{}`, in("many"))
	}
	s.mustSend(time.Second, s.alice, "bob^demo", `{}`, in("many"))
	s.mustSend(time.Second, s.alice, "bob^demo", `{}`, in("young"))
	if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: s.carol.ID}); err != nil {
		t.Fatal(err)
	}
	for name, level := range map[string]string{"done": "good", "young": "warn", "old": "bad", "failed": "warn", "failed-before": "warn", "put-off": "warn", "gone": "bad", "many": "warn"} {
		s.wantLevel("/conversation/"+name, level)
	}
}

// explained is how many open messages of a conversation are looked at.
const explained = 6
