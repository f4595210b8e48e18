package ws_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// The same words over the socket and over HTTP get the same answer.
func TestAcknowledgementsFollowTheSameRulesAsHTTP(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustDial(bob, "sync_limit=0&events=acks")
	overHTTP := func(id relay.MessageID, fields string) (code string) {
		t.Helper()
		req, _ := http.NewRequest("POST", "http://"+r.addr+"/api/v1/messages/"+string(id)+"/ack", strings.NewReader("{"+fields+"}"))
		req.Header = headers(bob)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode == 200 {
			return "ok"
		}
		_, rest, _ := strings.Cut(string(body), `"code":"`)
		code, _, _ = strings.Cut(rest, `"`)
		return code
	}
	overSocket := func(id relay.MessageID, fields string) string {
		t.Helper()
		c.send(fmt.Sprintf(`{"type":"ack","message_id":%q,%s}`, id, fields))
		f, err := c.next()
		if err != nil || f.MessageID != id && !strings.HasSuffix(f.sentence(), "must be a string") { // these may come without the id
			t.Fatalf("got %+v, %v", f, err)
		}
		if f.Type == "ack_ok" {
			return "ok"
		}
		return string(f.Code)
	}
	ts := `"client_ts":"2026-11-20T08:00:00+01:00"`
	for _, words := range []string{
		`"status":"completed",` + ts,
		`"status":"COMPLETED","detail":"d",` + ts,
		`"status":"my_word_1","extra":[1],` + ts,
		`"status":"completed"`,
		`"status":"completed","client_ts":null`,
		`"status":"completed","client_ts":5`,
		`"status":"completed","client_ts":"tomorrow"`,
		`"status":"completed","client_ts":"2026-11-20T8:00:00Z"`,
		ts,
		`"status":"",` + ts,
		`"status":7,` + ts,
		`"status":"not a word",` + ts,
		`"status":"1st",` + ts,
		`"status":"` + strings.Repeat("a", 32) + `",` + ts,
		`"status":"` + strings.Repeat("a", 33) + `",` + ts,
		`"status":"completed","detail":"` + strings.Repeat("d", 1024) + `",` + ts,
		`"status":"completed","detail":"` + strings.Repeat("d", 1025) + `",` + ts,
	} {
		one, two := r.mustSend(alice, "bob^test", `{}`), r.mustSend(alice, "bob^test", `{}`)
		c.expectMessage(one, two)
		if byHTTP, bySocket := overHTTP(one, words), overSocket(two, words); byHTTP != bySocket {
			t.Errorf("%.80s: HTTP says %s, the socket %s", words, byHTTP, bySocket)
		}
		a, err := r.Message(ctx, bob.Mecha.Number, one)
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Message(ctx, bob.Mecha.Number, two)
		if err != nil {
			t.Fatal(err)
		}
		if a.State != b.State || (a.Ack == nil) != (b.Ack == nil) ||
			a.Ack != nil && (a.Ack.Status != b.Ack.Status || a.Ack.ClientTS != b.Ack.ClientTS || a.Ack.Detail != b.Ack.Detail) {
			t.Errorf("%.80s: HTTP made it %+v %+v, the socket %+v %+v", words, a.State, a.Ack, b.State, b.Ack)
		}
	}
}

func TestFramesThatAreRefusedLeaveTheConnection(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustDial(bob, "")
	for _, text := range []string{"", "{", "not JSON", `{"type":"ack"} {}`, `{"type":"ack","type":"ack"}`, `{"Type":"ack"}`, `[]`, `null`, `"ack"`,
		`{"type":"ack","x":"\ud800"}`, `{"type":"ack","message_id":"a","MESSAGE_ID":"b"}`,
		`{"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`} {
		c.send(text)
		c.expectError(relay.InvalidJSON, "")
	}
	for _, text := range []string{"{}", `{"type":"message"}`, `{"type":"ACK"}`, `{"type":null}`, `{"type":"ack"}`, `{"type":"ack","message_id":""}`, `{"type":"ack","message_id":null}`} {
		c.send(text)
		c.expectError(relay.InvalidFrame, "")
	}

	id := r.mustSend(alice, "bob^test", `{}`)
	c.expectMessage(id)
	forged := relay.MessageID("msg_" + strings.Repeat("0", 26))
	for _, unknown := range []relay.MessageID{"nonsense", forged, relay.MessageID(strings.ToUpper(string(id)))} {
		c.ack(unknown, "completed")
		c.expectError(relay.MessageNotFound, unknown)
	}
	c.send(`{"type":"ack","message_id":"` + string(id) + `"}`)
	c.expectError(relay.InvalidRequest, id)
	c.send(`{"type":"ack","message_id":"` + string(id) + `","status":"completed"}`)
	c.expectError(relay.InvalidTime, id)

	fromBob := r.mustSend(bob, "alice^test", `{}`)
	c.ack(fromBob, "completed") // the sender is not the recipient
	c.expectError(relay.RecipientOnly, fromBob)

	gone := r.mustSend(alice, "bob^test", `{}`, func(m *relay.SendMessage) { m.ExpiresAt = r.soon() })
	c.expectMessage(gone)
	r.advance(time.Minute)
	r.expectState(bob, gone, relay.Expired)
	c.ack(gone, "completed")
	c.expectError(relay.MessageExpired, gone)

	c.ack(id, "completed")
	c.ack(id, "rejected")
	c.expectError(relay.AlreadyAcknowledged, id)
	m, err := r.Message(ctx, bob.Mecha.Number, id)
	if err != nil || m.Ack == nil || m.Ack.Status != "completed" {
		t.Fatalf("%+v, %v", m, err)
	}
}

// The error for a message id that is very long, or not nice, is still a frame.
func TestErrorsNameTheMessageAsItWasNamed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	c := r.mustDial(bob, "")
	for _, id := range []string{"\"quoted\"", "\u2028é\x7f", strings.Repeat("long", 10_000)} {
		c.send(ackOf(strings.ReplaceAll(id, `"`, `\"`)))
		c.expectError(relay.MessageNotFound, relay.MessageID(id))
	}
}

// Thousands of acknowledgements without a pause, on one connection: each is
// applied, and answered in order.
func TestAFloodOfAcknowledgements(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	const n = 1000 // more than may be under way at once
	r.mustSendMany(alice, "bob^test", n)
	ids := r.received(bob)
	c := r.mustDial(bob, "sync_limit=0&events=acks")
	go func() {
		for range 3 {
			for _, id := range ids {
				c.ack(id, "completed")
			}
		}
	}()
	for range 3 {
		for _, id := range ids {
			if f := c.expect("ack_ok"); f.MessageID != id {
				t.Fatalf("got %+v, want %s", f, id)
			}
		}
	}
	c.expectNothing()
}
