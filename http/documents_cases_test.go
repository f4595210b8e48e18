package http_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// driveWrongRequests has the refusals of what a request says.
func driveWrongRequests(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, spare := r.alice()
	message := spare.mustSend(spare)
	here := messagePath(message.MessageID)
	for _, c := range []struct {
		operation, path, body string
		status                int
		code                  relay.Code
		change                change
	}{
		{opSend, messages, `{`, 400, relay.InvalidJSON, all()},
		{opSend, messages, `{"to":"bob","payload":{}}`, 400, relay.InvalidAddress, all()},
		{opSend, messages, letter(alice, `"expires_at":"2020-01-01T00:00:00Z"`), 400, relay.InvalidTime, all()},
		{opSend, messages, letter(alice), 400, relay.InvalidIdempotencyKey, idempotent("")},
		{opSend, messages, letter(alice, `"from":"bob^demo"`), 403, relay.SenderMismatch, all()},
		{opSend, messages, `{"to":"alcie^demo","payload":{}}`, 404, relay.RecipientNotFound, all()},
		{opSend, messages, letter(alice, in("conv_x")), 404, relay.ConversationNotFound, all()},
		{opMessage, messagePath("msg_x"), "", 404, relay.MessageNotFound, all()},
		{opPayload, messagePath("msg_x") + "/payload", "", 404, relay.MessageNotFound, all()},
		{opTrace, messagePath("msg_x") + "/trace", "", 404, relay.MessageNotFound, all()},
		{opAck, messagePath("msg_x") + "/ack", ackBody("completed"), 404, relay.MessageNotFound, all()},
		{opAck, here + "/ack", `{`, 400, relay.InvalidJSON, all()},
		{opAck, here + "/ack", `{"status":"completed","client_ts":"now"}`, 400, relay.InvalidTime, all()},
		{opDeliver, messagePath("msg_x") + "/deliver", "", 404, relay.MessageNotFound, all()},
		{opInbox, "/api/v1/mecha/alice/inbox", "", 400, relay.InvalidAddress, all()},
		{opClaim, "/api/v1/mecha/alice/claim", "", 400, relay.InvalidAddress, all()},
		{opClaim, claimPath(alice), `{`, 400, relay.InvalidJSON, all()},
		{opClaim, claimPath(alice), `{"limit":0}`, 400, relay.InvalidLimit, all()},
		{opSocket, "/api/v1/ws/mecha/alice", "", 400, relay.InvalidAddress, handshake},
		{opSocket, socketPath(alice) + "?sync_limit=-1", "", 400, relay.InvalidLimit, handshake},
		{opSocket, socketPath(alice) + "?since_message_id=msg_x", "", 404, relay.CursorNotFound, handshake},
		{opSocket, socketPath(alice), "", 403, relay.OriginNotAllowed, all(handshake, with("Origin", "https://elsewhere.test"))},
		{opSocket, socketPath(alice), "", 426, relay.UpgradeRequired, all()},
		{opSocket, socketPath(alice) + "?ticket=tk_x", "", 401, relay.InvalidTicket, handshake},
		{opTicket, "/api/v1/mecha/alice/ticket", "", 400, relay.InvalidAddress, all()},
		{opConversation, "/api/v1/conversations/conv_x/messages", "", 404, relay.ConversationNotFound, all()},
		{opProfile, "/api/v1/mecha/alice/profile", "", 400, relay.InvalidAddress, all()},
		{opProfile, profilePath("nobody^demo"), "", 404, relay.MechaNotFound, all()},
		{opPutProfile, "/api/v1/mecha/alice/profile", `{}`, 400, relay.InvalidAddress, all()},
		{opPutProfile, profilePath("alice^demo"), `{`, 400, relay.InvalidJSON, all()},
		{opSearch, searches, `{`, 400, relay.InvalidJSON, all()},
		{opSearch, searches, `{"query":"x","limit":0}`, 400, relay.InvalidLimit, all()},
		{opSearch, searches, `{"filter":{"updated_since":"now"}}`, 400, relay.InvalidTime, all()},
		{opResult, searches + "/srch_x", "", 404, relay.SearchNotFound, all()},
	} {
		d.do(alice, c.operation, c.path, c.body, c.status, c.code, c.change)
	}
	for operation, path := range map[string]string{opHistory: historyPath(alice), opConversation: "/api/v1/conversations/" + message.ConversationID + "/messages"} {
		d.do(alice, operation, path+"?peer=bob", "", 400, relay.InvalidAddress)
		d.do(alice, operation, path+"?limit=0", "", 400, relay.InvalidLimit)
		d.do(alice, operation, path+"?since=now", "", 400, relay.InvalidTime)
		d.do(alice, operation, path+"?since_message_id=msg_x", "", 404, relay.CursorNotFound)
	}
	d.do(alice, opSend, messages, letter(alice, `"in_reply_to":"msg_x"`), 404, relay.MessageNotFound)
	spare.sendOnce("k", letter(alice)).want(201)
	d.do(alice, opSend, messages, letter(alice, `"priority":"high"`), 422, relay.IdempotencyKeyReused, idempotent("k"))
}

// driveStrangers has the refusals of what is not the caller's.
func driveStrangers(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	message := alice.mustSend(alice)
	search := alice.mustFind(`{"query":"nobody"}`)
	for _, c := range []struct {
		operation, path, body string
		code                  relay.Code
	}{
		{opSend, messages, letter(bob, in(message.ConversationID)), relay.NotAParticipant},
		{opSend, messages, letter(bob, `"in_reply_to":"`+message.MessageID+`"`), relay.NotAParty},
		{opMessage, messagePath(message.MessageID), "", relay.NotAParty},
		{opTrace, messagePath(message.MessageID) + "/trace", "", relay.NotAParty},
		{opPayload, messagePath(message.MessageID) + "/payload", "", relay.RecipientOnly},
		{opAck, messagePath(message.MessageID) + "/ack", ackBody("completed"), relay.RecipientOnly},
		{opDeliver, messagePath(message.MessageID) + "/deliver", "", relay.RecipientOnly},
		{opHistory, historyPath(alice), "", relay.NotYourMecha},
		{opInbox, inboxPath(alice), "", relay.NotYourMecha},
		{opClaim, claimPath(alice), "", relay.NotYourMecha},
		{opSocket, socketPath(alice), "", relay.NotYourMecha},
		{opTicket, ticketPath(alice), "", relay.NotYourMecha},
		{opConversation, "/api/v1/conversations/" + message.ConversationID + "/messages", "", relay.NotAParticipant},
		{opPutProfile, profilePath("alice^demo"), `{}`, relay.NotYourMecha},
		{opResult, searches + "/" + search.RequestID, "", relay.NotYourSearch},
	} {
		d.do(bob, c.operation, c.path, c.body, 403, c.code)
	}
}

// driveCrews has the refusals of messages to a crew, and of those that are not accepted.
func driveCrews(t *testing.T, d *drive) {
	r := mustServe(t, broadcasts(1))
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	bob.mustProfile(`{"accept_from":["carol^demo"]}`)
	d.do(alice, opSend, messages, letter(bob), 403, relay.NotAccepted)
	d.do(alice, opSend, messages, toCrew("other"), 403, relay.BroadcastNotAllowed)
	r.mustIssue("carol^demo")
	d.do(alice, opSend, messages, toCrew("demo"), 422, relay.TooManyRecipients)
}

// driveTimes has the refusals of what has come too late.
func driveTimes(t *testing.T, d *drive) {
	r := mustServe(t)
	alice, _ := r.alice()
	message, search := alice.mustSend(alice, `"ttl_seconds":1`), alice.mustFind(`{"query":"nobody"}`)
	r.clock.advance(2 * time.Hour)
	d.until(t, opDeliver, func() (*call, reply) {
		c := alice.prepare("POST", messagePath(message.MessageID)+"/deliver", "")
		return c, r.mustDo(c)
	}, relay.MessageExpired)
	d.do(alice, opAck, messagePath(message.MessageID)+"/ack", ackBody("completed"), 409, relay.MessageExpired)
	d.do(alice, opResult, searches+"/"+search.RequestID, "", 410, relay.SearchExpired)
}

// driveStates has the refusals of what has happened already, and of what is full.
func driveStates(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.db.MaxPending = 2 })
	alice, _ := r.alice()
	ended, busy := messagePath(alice.mustSend(alice).MessageID)+"/ack", messagePath(alice.mustSend(alice).MessageID)+"/ack"
	d.do(alice, opSend, messages, letter(alice), 429, relay.MailboxFull)
	alice.post(ended, ackBody("completed")).want(200)
	only := alice.mustSend(alice, `"max_messages":1`)
	alice.mustAck(only.MessageID, "completed")
	d.do(alice, opSend, messages, letter(alice, in(only.ConversationID)), 429, relay.ConversationFull)
	d.do(alice, opAck, ended, ackBody("failed"), 409, relay.AlreadyAcknowledged)
	for i := range 1000 {
		alice.post(busy, ackBody(fmt.Sprint("word_", i))).want(200)
	}
	d.do(alice, opAck, busy, ackBody("word"), 409, relay.TooManyAcks)
}

// driveSockets has the limits of sockets and long-polls: of a Mecha, and of all.
func driveSockets(t *testing.T, d *drive) {
	r := mustServe(t, func(s *settings) { s.hub.MaxSocketsPerMecha, s.hub.MaxSockets = 1, 2 })
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^demo")
	conversation := "/api/v1/conversations/none/messages?state=expired&wait=1"
	for _, m := range []mecha{alice, carol} {
		m.mustSend(m, in("none"))
	}
	one, two := alice.mustWait("state=expired"), bob.mustWait("")
	for m, status := range map[mecha]int{alice: 429, carol: 503} {
		d.do(m, opHistory, historyPath(m)+"?state=expired&wait=1", "", status, relay.TooManySockets)
		d.do(m, opConversation, conversation, "", status, relay.TooManySockets)
		d.do(m, opClaim, claimPath(m), `{"limit":9}`, 200, "")
		d.do(m, opClaim, claimPath(m), `{"wait":1}`, status, relay.TooManySockets)
		d.do(m, opSocket, socketPath(m), "", status, relay.TooManySockets, handshake)
	}
	r.hub.Close(t.Context())
	<-one
	<-two
}

// driveARemovedMecha has a profile that is put, and its Mecha removed, in one transaction:
// when the answer is made, nobody has that profile.
func driveARemovedMecha(t *testing.T, d *drive) {
	r := mustServe(t)
	c := r.mustIssue("alice^demo").prepare("PUT", profilePath("alice^demo"), `{}`)
	goOn := r.mustStand()
	answer, removed := make(chan reply, 1), make(chan error, 1)
	go func() { answer <- r.mustDo(c) }()
	r.awaitQueued(1)
	go func() {
		removed <- r.db.RemoveMecha(&relay.RemoveMecha{At: r.clock.Now(), Address: "alice^demo"})
	}()
	r.awaitQueued(2)
	goOn()
	a := <-answer
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	a.wantProblem(404, relay.MechaNotFound)
	d.hold(opPutProfile, c, a)
}

// driveAFullDisk serves on a small file system and fills it.
func driveAFullDisk(t *testing.T, d *drive) {
	short := mustServe(t, noRoom).mustIssue("alice^demo")
	d.do(short, opSend, messages, letter(short), 507, relay.DiskFull)
	alice, ids := mustFillDisk(t)
	if ids == nil {
		for _, operation := range writes[1:] {
			d.lack(outcome(operation, 507, string(relay.DiskFull)))
		}
		return
	}
	profile := `{"details":"` + strings.Repeat("x", 15_000) + `"}`
	full := map[string]bool{}
	for _, id := range ids { // the log has some room left
		for operation, c := range map[string]*call{
			opPutProfile: alice.prepare("PUT", profilePath("alice^demo"), profile),
			opDeliver:    alice.prepare("POST", messagePath(id)+"/deliver", ""),
			opAck:        alice.prepare("POST", messagePath(id)+"/ack", ackBody("completed")),
			opClaim:      alice.prepare("POST", claimPath(alice), `{"lease_seconds":3600}`),
		} {
			if a := alice.r.mustDo(c); a.status == 507 {
				full[operation] = true
				d.hold(operation, c, a)
			}
		}
		if len(full) == 4 {
			break
		}
	}
	if len(full) < 4 {
		t.Errorf("only these found the disk full: %v", full)
	}
}

// mustFillDisk returns a Mecha of a relay on a small file system that is full, and the
// messages in its mailbox; none if no such file system can be mounted here.
func mustFillDisk(t *testing.T) (alice mecha, ids []string) {
	t.Helper()
	dir := mountSmall(t)
	if dir == "" {
		t.Log("no small file system can be mounted here")
		return mecha{}, nil
	}
	r := mustServe(t, func(s *settings) { s.db.Path = filepath.Join(dir, "relay.db") })
	alice = r.mustIssue("alice^demo")
	for range 200 {
		ids = append(ids, alice.mustSend(alice).MessageID)
	}
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(filler.Name()) }) // before the relay stops
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	filler.Close()
	return alice, ids
}
