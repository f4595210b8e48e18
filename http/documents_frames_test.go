package http_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/relay"
	"relay/http/apitest"
	"relay/http/documents"
)

// frameCodes notes the codes of the error frames that were seen.
type frameCodes struct {
	mu   sync.Mutex
	seen map[relay.Code]bool
}

// Every code that the document has for error frames is seen, in a situation that brings
// it about.
func TestEveryErrorFrameIsSeen(t *testing.T) {
	t.Parallel()
	f := &frameCodes{seen: map[relay.Code]bool{
		relay.ShuttingDown: true, // not to be had: the relay closes its sockets before its store
	}}
	t.Run("all", func(t *testing.T) {
		for name, scenario := range map[string]func(*testing.T, *frameCodes){
			"faults of the client": frameClientFaults, "messages that are refused": frameRefusedSends, "signatures that are required": frameRequiredSignatures, "keys that end": frameKeysThatEnd, "a full queue": frameFullQueue,
			"a broken file": frameBrokenFile, "a locked file": frameLockedFile, "a damaged file": frameDamagedFile, "a full disk": frameFullDisk,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scenario(t, f)
			})
		}
	})
	var doc struct {
		Components struct {
			Schemas struct {
				ErrorFrame struct {
					Properties struct{ Code struct{ Enum []relay.Code } }
				}
			}
		}
	}
	if err := json.Unmarshal(documents.AsyncAPI("test"), &doc); err != nil {
		t.Fatal(err)
	}
	described := doc.Components.Schemas.ErrorFrame.Properties.Code.Enum
	for _, code := range described {
		if !f.seen[code] {
			t.Errorf("described, and never seen: %s", code)
		}
	}
	for code := range f.seen {
		if !slices.Contains(described, code) {
			t.Errorf("seen, and not described: %s", code)
		}
	}
	t.Logf("%d codes", len(described))
}

// ears is a WebSocket of a Mecha. Each ack gets a frame.
type ears struct {
	*websocket.Conn
	m mecha
}

func (m mecha) mustHear() ears { return ears{m.mustListen("acks"), m} }

func (e ears) say(text string) {
	e.m.r.t.Helper()
	if err := e.Write(e.m.r.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		e.m.r.t.Fatal(err)
	}
}

func (e ears) ack(id, status string) {
	e.m.r.t.Helper()
	e.say(fmt.Sprintf(`{"type":"ack","message_id":%q,"status":%q,"client_ts":"2026-11-20T08:00:00Z"}`, id, status))
}

// hear reads the next frame and holds it against the document. It gives the code of an
// error, "" of another frame, and closed if the relay has closed the connection instead.
func (f *frameCodes) hear(e ears) (code relay.Code, closed bool) {
	t := e.m.r.t
	t.Helper()
	_, text, err := e.Read(t.Context())
	if websocket.CloseStatus(err) != -1 {
		return "", true
	}
	if err != nil {
		t.Fatal(err)
	}
	if fault := apitest.CheckFrame(text); fault != "" {
		t.Errorf("%s: %s", text, fault)
	}
	var frame struct{ Code relay.Code }
	if err := json.Unmarshal(text, &frame); err != nil {
		t.Fatal(err)
	}
	if frame.Code != "" {
		f.see(frame.Code)
	}
	return frame.Code, false
}

func (f *frameCodes) see(code relay.Code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[code] = true
}

func (f *frameCodes) want(e ears, code relay.Code) {
	e.m.r.t.Helper()
	if got, closed := f.hear(e); closed || got != code {
		e.m.r.t.Errorf("got %q, closed: %t, want %s", got, closed, code)
	}
}

func frameClientFaults(t *testing.T, f *frameCodes) {
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	e := alice.mustHear()
	e.say(`{`)
	f.want(e, relay.InvalidJSON)
	e.say(`{"type":"hello"}`)
	f.want(e, relay.InvalidFrame)
	e.ack("msg_x", "a b")
	f.want(e, relay.InvalidRequest)
	e.say(`{"type":"ack","message_id":"msg_x","status":"a","client_ts":"now"}`)
	f.want(e, relay.InvalidTime)
	e.ack("msg_x", "completed")
	f.want(e, relay.MessageNotFound)
	e.ack(alice.mustSend(bob).MessageID, "completed")
	f.want(e, relay.RecipientOnly)

	e = bob.mustHear()
	ended, busy, brief := alice.mustSend(bob).MessageID, alice.mustSend(bob).MessageID, alice.mustSend(bob, `"ttl_seconds":1`).MessageID
	for range 3 { // the messages
		f.want(e, "")
	}
	bob.mustAck(ended, "completed")
	e.ack(ended, "failed")
	f.want(e, relay.AlreadyAcknowledged)
	for i := range 1000 {
		e.ack(busy, fmt.Sprint("word_", i))
		f.want(e, "")
	}
	e.ack(busy, "word")
	f.want(e, relay.TooManyAcks)
	r.clock.advance(time.Minute)
	for bob.record(brief).State != "expired" {
	}
	e.ack(brief, "completed")
	f.want(e, relay.MessageExpired)
}

// letter sends a message over the socket; fields are more members of the frame.
func (e ears) letter(message string, fields ...string) {
	e.m.r.t.Helper()
	e.say(`{"type":"send","ref":"1","message":` + message + strings.Join(append([]string{""}, fields...), ",") + `}`)
}

// frameRefusedSends has messages over sockets that the relay refuses.
func frameRefusedSends(t *testing.T, f *frameCodes) {
	r := mustServe(t, func(s *settings) { s.db.MaxPending, s.db.MaxBroadcast, s.api.MaxBody = 4, 1, 4<<10 })
	alice, bob, carol := r.mustIssue("alice^demo"), r.mustIssue("bob^demo"), r.mustIssue("carol^other")
	full, private := r.mustIssue("full^other"), r.mustIssue("private^other")
	private.do("PUT", profilePath("private^other"), `{"accept_from":[]}`).want(200)
	for range 4 {
		carol.mustSend(full)
	}
	other, only := carol.mustSend(carol), alice.mustSend(alice, `"max_messages":1`)
	e := alice.mustHear()
	now := `"timestamp":"` + relay.FormatTime(r.clock.Now()) + `"`
	for _, c := range []struct {
		code    relay.Code
		message string
		fields  []string
	}{
		{relay.MissingHeader, letter(bob), []string{now}},
		{relay.MalformedHeader, letter(bob), []string{now, `"nonce":"a b"`}},
		{relay.TimestampOutOfRange, letter(bob), []string{`"timestamp":"2020-01-01T00:00:00Z"`, `"nonce":"n1"`}},
		{relay.InvalidSignature, letter(bob), []string{now, `"nonce":"n1"`, `"signature":"` + strings.Repeat("A", 43) + `="`}},
		{"", letter(bob), []string{now, `"nonce":"n1"`}},
		{relay.NonceReused, letter(bob), []string{now, `"nonce":"n1"`}},
		{relay.InvalidAddress, `{"to":"bob","payload":{}}`, nil},
		{relay.InvalidIdempotencyKey, letter(bob), []string{`"idempotency_key":"\u0009"`}},
		{"", letter(bob), []string{`"idempotency_key":"k"`}},
		{relay.IdempotencyKeyReused, letter(bob, `"priority":"high"`), []string{`"idempotency_key":"k"`}},
		{relay.SenderMismatch, letter(bob, `"from":"bob^demo"`), nil},
		{relay.NotAParticipant, letter(bob, in(other.ConversationID)), nil},
		{relay.NotAParty, letter(bob, `"in_reply_to":"`+other.MessageID+`"`), nil},
		{relay.RecipientNotFound, `{"to":"nobody^demo","payload":{}}`, nil},
		{relay.ConversationNotFound, letter(bob, in("conv_x")), nil},
		{relay.ConversationFull, letter(alice, in(only.ConversationID)), nil},
		{relay.MailboxFull, letter(full), nil},
		{relay.NotAccepted, letter(private), nil},
		{relay.BroadcastNotAllowed, `{"to":"*^other","payload":{}}`, nil},
		{relay.PayloadTooLarge, letter(bob, `"x":"`+strings.Repeat("x", 4<<10)+`"`), nil},
	} {
		e.letter(c.message, c.fields...)
		f.want(e, c.code)
	}
	e = carol.mustHear()
	e.letter(`{"to":"*^other","payload":{}}`)
	f.want(e, relay.TooManyRecipients)
}

func frameRequiredSignatures(t *testing.T, f *frameCodes) {
	r := mustServe(t, func(s *settings) { s.api.RequireSignature = true })
	alice := r.mustIssue("alice^demo")
	e := alice.mustHear()
	e.letter(letter(alice))
	f.want(e, relay.SignatureRequired)
}

// frameKeysThatEnd has acks that were taken while the key was good, and are applied when it
// is not. The socket may be closed before the answer is sent: then another key tries.
func frameKeysThatEnd(t *testing.T, f *frameCodes) {
	r := mustServe(t)
	for code, end := range map[relay.Code]func(mecha){
		relay.KeyRevoked: func(m mecha) {
			go r.db.Revoke(&relay.RevokeKey{At: r.clock.Now(), ID: m.ID}) // if it fails, the code is another one
		},
		relay.KeyExpired: func(mecha) {
			r.clock.advance(2 * time.Hour)
			go r.db.Revoke(&relay.RevokeKey{At: r.clock.Now(), ID: "key_none"})
		},
	} {
		for closed := true; closed; {
			m := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.ExpiresAt = i.At.Add(time.Hour) })
			e := m.mustHear()
			goOn := r.mustStand()
			end(m)
			r.awaitQueued(1)
			e.ack("msg_x", "completed")
			r.awaitQueued(2)
			goOn()
			var got relay.Code
			if got, closed = f.hear(e); !closed && got != code {
				t.Errorf("got %s, want %s", got, code)
			}
		}
	}
}

// frameFullQueue has Mechas that flood the queue of the writes: each takes half of the
// places that are left, until there are none.
func frameFullQueue(t *testing.T, f *frameCodes) {
	r := mustServe(t)
	var all []mecha
	for i := range 15 {
		all = append(all, r.mustIssue(relay.Address(fmt.Sprintf("flood%d^demo", i))))
	}
	e := all[0].mustHear()
	goOn := r.mustStand()
	defer goOn()
	for i, m := range all {
		for refused := false; !refused; {
			a := &relay.Acknowledge{At: r.clock.Now(), Key: m.Number, ID: "msg_x", Status: "completed", ClientTS: "2026-11-20T08:00:00Z"}
			r.db.AcknowledgeThen(a, func(_ relay.AckOutcome, err error) {
				if c := relay.ErrorCode(err); c == relay.RateLimited || c == relay.Overloaded { // at once, and not by the writer
					refused = true
				}
			})
		}
		if i == 0 {
			e.ack("msg_x", "completed")
			f.want(e, relay.RateLimited)
		}
	}
	e.ack("msg_x", "completed")
	f.want(e, relay.Overloaded)
}

func frameBrokenFile(t *testing.T, f *frameCodes) {
	r := mustServe(t)
	e := r.mustIssue("alice^demo").mustHear()
	if _, err := r.file().Exec("ALTER TABLE mecha_key RENAME TO lost"); err != nil {
		t.Fatal(err)
	}
	e.ack("msg_x", "completed")
	f.want(e, relay.Internal)
}

func frameLockedFile(t *testing.T, f *frameCodes) {
	r := mustServe(t, waitsLess)
	e := r.mustIssue("alice^demo").mustHear()
	lock := r.file()
	if _, err := lock.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	e.ack("msg_x", "completed")
	f.want(e, relay.DatabaseLocked)
	if _, err := lock.Exec("ROLLBACK"); err != nil {
		t.Error(err)
	}
}

func frameDamagedFile(t *testing.T, f *frameCodes) {
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	r.mustDamage()
	e := alice.mustHear()
	alice.post(messages, letter(alice)).wantProblem(500, relay.StoreFailed)
	e.ack("msg_x", "completed")
	f.want(e, relay.StoreFailed)
}

func frameFullDisk(t *testing.T, f *frameCodes) {
	alice, ids := mustFillDisk(t)
	if ids == nil {
		f.see(relay.DiskFull) // no small file system can be mounted here
		return
	}
	e := alice.mustHear()
	detail := strings.Repeat("x", 1000)
	for _, id := range ids { // the log has some room left
		e.say(`{"type":"ack","message_id":"` + id + `","status":"completed","client_ts":"2026-11-20T08:00:00Z","detail":"` + detail + `"}`)
		if code, closed := f.hear(e); code == relay.DiskFull || closed {
			return
		}
	}
}
