package ws_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"relay/db/relay"
	"relay/db/scratch/wire"
)

func TestTheEnvelopeIsTheInterfaces(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	c := r.mustDial(bob, "")
	payload := "{ \"n\" : 1.00,\t\"é\": \"\\u00e9\\\"<\" , \"e\":1E2 }"
	id := r.mustSend(alice, "bob^test", payload, func(m *relay.SendMessage) {
		m.Type, m.Priority, m.Conversation, m.CorrelationID = "task/new", "urgent", "trip:1", "a \"b\" \u2028 é"
	})

	_, text, err := c.Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]string // all are strings
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	m, err := r.Message(ctx, bob.Mecha.Number, id)
	if err != nil {
		t.Fatal(err)
	}
	if got := (frame{Payload: fields["payload_base64"]}).payload(t); got != payload {
		t.Errorf("payload is %q, want %q", got, payload)
	}
	delete(fields, "payload_base64")
	want := map[string]string{
		"type": "message", "from": "alice^test", "to": "bob^test", "message_id": string(id), "conversation_id": "trip:1",
		"message_type": "task/new", "priority": "urgent", "correlation_id": "a \"b\" \u2028 é", "created_at": relay.FormatTime(m.CreatedAt),
	}
	if !maps.Equal(fields, want) {
		t.Errorf("envelope %v\nwant     %v", fields, want)
	}
}

func TestAnEnvelopeWithoutCorrelationIDHasNone(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSend(alice, "bob^test", `{}`)
	_, text, err := r.mustDial(bob, "").Read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]string
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	want := []string{"conversation_id", "created_at", "from", "message_id", "message_type", "payload_base64", "priority", "to", "type"}
	expectSame(t, slices.Sorted(maps.Keys(fields)), want)
	if fields["message_type"] != "message" || fields["priority"] != "normal" {
		t.Errorf("defaults are %v", fields)
	}
}

func TestPayloadsOfEveryLengthArriveExactly(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	live := r.mustDial(bob, "")
	var want []string
	// Around the three forms of a frame's length, and more than one write.
	for _, n := range []int{0, 1, 2, 100, 120, 130, 48_700, 48_800, 48_900, 49_000, 65_536, 300_000, 1 << 20} {
		text := make([]byte, n)
		for i := range text {
			text[i] = 'a' + byte(i%26)
		}
		want = append(want, `{"t":"`+string(text)+`"}`)
		r.mustSend(alice, "bob^test", want[len(want)-1])
	}
	late := r.mustDial(bob, "")
	for _, p := range want {
		for name, c := range map[string]*client{"live": live, "late": late} {
			if got := c.expect("message").payload(t); got != p {
				t.Fatalf("%s: got %d bytes, want %d", name, len(got), len(p))
			}
		}
	}
}

func TestWithoutACursorTheStreamStartsAtTheOldestPending(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	var ids []relay.MessageID
	for range 8 {
		ids = append(ids, r.mustSend(alice, "bob^test", `{}`))
	}
	for _, i := range []int{0, 1, 4} {
		r.mustAck(bob, ids[i], "completed")
	}
	r.mustAck(bob, ids[5], "processing") // still pending

	c := r.mustDial(bob, "")
	c.expectMessage(ids[2], ids[3], ids[5], ids[6], ids[7])
	c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
}

func TestMessagesAcknowledgedBeforeTheirTurnAreLeftOut(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	var ids []relay.MessageID
	for range 6 {
		ids = append(ids, r.mustSend(alice, "bob^test", `{}`))
	}
	c := r.mustDial(bob, "sync_limit=2")
	c.expectMessage(ids[0], ids[1])
	r.mustAck(bob, ids[2], "completed")
	r.mustAck(bob, ids[4], "failed")
	c.ack(ids[0], "completed")
	c.ack(ids[1], "completed")
	c.expectMessage(ids[3], ids[5])
	c.ack(ids[3], "received") // room for one more
	c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
}

func TestACursorResendsTheAcknowledgedButNotTheExpired(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	ends := r.soon()
	expiring := func(m *relay.SendMessage) { m.ExpiresAt = ends }
	a := r.mustSend(alice, "bob^test", `{}`)
	b := r.mustSend(alice, "bob^test", `{}`)
	gone := r.mustSend(alice, "bob^test", `{}`, expiring)
	d := r.mustSend(alice, "bob^test", `{}`)
	saved := r.mustSend(alice, "bob^test", `{}`, expiring)
	r.mustAck(bob, b, "completed")
	r.mustAck(bob, saved, "completed") // acknowledged in time: it cannot expire
	r.advance(time.Minute)
	r.expectState(bob, gone, relay.Expired)

	c := r.mustDial(bob, "since_message_id="+string(a))
	c.expectMessage(b, d, saved)
	c.expectNothing()

	c = r.mustDial(bob, "since_message_id="+string(gone)) // a cursor is a position: an expired message will do
	c.expectMessage(d, saved)
	c = r.mustDial(bob, "since_message_id="+string(saved))
	c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
}

func TestAMessageOfOthersIsACursorToo(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSend(alice, "bob^test", `{}`)
	other := r.mustSend(bob, "alice^test", `{}`)
	id := r.mustSend(alice, "bob^test", `{}`)
	r.mustDial(bob, "since_message_id="+string(other)).expectMessage(id)
}

func TestRefusedQueries(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		r := mustServe(t)
		alice, bob := r.mustPair()
		id := string(r.mustSend(alice, "bob^test", `{}`))
		forged := id[:len(id)-1] + map[bool]string{true: "0", false: "1"}[id[len(id)-1] != '0']
		for _, query := range []string{"nonsense", forged, "msg_", "MSG" + id[3:], id + "0"} {
			r.expectRefused(bob, "since_message_id="+query, 404, relay.CursorNotFound)
		}
		for _, query := range []string{
			"sync_limit=-1", "sync_limit=ten", "sync_limit=1.5", "sync_limit=%2B5", "sync_limit=1e3", "sync_limit=0x10", "sync_limit=%20",
			"sync_limit=0&since_message_id=" + id,
		} {
			r.expectRefused(bob, query, 400, relay.InvalidLimit)
		}
		r.expectRefused(bob, "sync_limit=%zz", 400, relay.InvalidRequest)
		r.mustDial(bob, "sync_limit=&since_message_id=&events=").expectMessage(relay.MessageID(id)) // empty values count as absent
		// None of them has left anything open.
		r.stop()
	})
}

func TestSyncLimitZeroIsLiveOnly(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSend(alice, "bob^test", `{}`)
	for _, query := range []string{"sync_limit=0", "sync_limit=0&since_message_id=", "sync_limit=000"} {
		c := r.mustDial(bob, query)
		c.expectNothing()
		c.expectMessage(r.mustSend(alice, "bob^test", `{}`))
	}
}

// A window of more than 1000 is one of 1000: so many come, then nothing until an acknowledgement.
func TestSyncLimitIsAtMostAThousand(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 1001)
	ids := r.received(bob)
	for _, limit := range []string{"1001", "99999999999999999999999999"} {
		c := r.mustDial(bob, "sync_limit="+limit)
		c.expectMessage(ids[:1000]...)
		c.expectNothing()
		c.ack(ids[0], "received")
		c.expectMessage(ids[1000])
	}
}

func TestSyncLimitIsTwoHundredByDefault(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	r.mustSendMany(alice, "bob^test", 201)
	c := r.mustDial(bob, "")
	c.expectMessage(r.received(bob)[:200]...)
	c.expectNothing()
}

func TestOthersMessagesDoNotArrive(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	carol := r.mustIssue("carol^test")
	toBob, toCarol := r.mustDial(bob, ""), r.mustDial(carol, "")
	forCarol := r.mustSend(bob, "carol^test", `{}`)
	forBob := r.mustSend(alice, "bob^test", `{}`)
	toBob.expectMessage(forBob)
	toCarol.expectMessage(forCarol)
	toBob.expectNothing()
	toCarol.expectNothing()
	toSelf := r.mustSend(bob, "bob^test", `{}`)
	toBob.expectMessage(toSelf)
	toBob.expectNothing()
}
