package ws_test

import (
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"relay/db/relay"
	"relay/db/scratch/wire"
	"relay/http"
	"relay/http/apitest"
	"relay/http/documents"
)

// All tests of this package hold what they read against the documents.
func init() {
	apitest.Describe(func() (open, async []byte) {
		return documents.OpenAPI(http.Routes(), "test"), documents.AsyncAPI("test")
	})
}

// described has what the document says of frames and close codes.
type described struct {
	Channels struct {
		Socket struct {
			Messages map[string]any
			Codes    map[string]string `json:"x-close-codes"`
		}
	}
}

// The relay sends each kind of frame that the document names, as it is described there,
// and closes with each of its codes; there are no others. What this test reads is held
// against the document like what all tests of this package read (client.Read, raw.frame).
func TestFramesAndCloseCodesAreThoseOfTheDocument(t *testing.T) {
	wire.Bubble(t, func(t *testing.T) {
		var doc described
		if err := json.Unmarshal(documents.AsyncAPI("test"), &doc); err != nil {
			t.Fatal(err)
		}
		r := mustServe(t)
		kinds := r.everyFrame()
		if got, want := slices.Sorted(maps.Keys(doc.Channels.Socket.Messages)), slices.Sorted(maps.Keys(kinds)); !slices.Equal(got, want) {
			t.Errorf("the document has frames %v, the relay %v", got, want)
		}
		codes := r.everyClose()
		if got, want := slices.Sorted(maps.Keys(doc.Channels.Socket.Codes)), slices.Sorted(maps.Keys(codes)); !slices.Equal(got, want) {
			t.Errorf("the document has close codes %v, the relay %v", got, want)
		}
		t.Logf("%d kinds of frames, %d close codes: all seen, none undescribed", len(kinds), len(codes))
	})
}

// everyFrame has the relay send each kind of frame, and gives the kinds with those of clients.
func (r *testRelay) everyFrame() map[string]bool {
	r.t.Helper()
	alice, bob := r.mustPair()
	sender, c := r.mustDial(alice, "events=receipts&sync_limit=0"), r.mustDial(bob, "events=acks,sync")
	kinds := map[string]bool{"ack": true, "send": true}
	expect := func(c *client, kind string) {
		r.t.Helper()
		c.expect(kind)
		kinds[kind] = true
	}
	expect(c, "sync")
	expect(c, "sync")
	for _, correlation := range []string{"", "c1"} {
		id := r.mustSend(alice, "bob^test", `{"n":1}`, func(m *relay.SendMessage) { m.CorrelationID = correlation })
		expect(c, "message")
		c.ack(id, "Completed")
		expect(c, "ack_ok")
		expect(sender, "receipt")
		c.ack(id, "failed")
		c.expectError(relay.AlreadyAcknowledged, id)
	}
	sender.send(sendOf("r1", "bob^test", 0, 0, 0))
	expect(sender, "sent")
	expect(c, "message")
	for _, text := range []string{`{`, `[]`, `{"type":"hello"}`, `{"type":"ack"}`, `{"type":"ack","message_id":"msg_x","status":"a b","client_ts":"` + clientTS + `"}`,
		`{"type":"ack","message_id":"msg_x","status":"a","client_ts":"now"}`, `{"type":"ack","message_id":"msg_x","status":"a","client_ts":"` + clientTS + `"}`} {
		c.send(text)
		expect(c, "error")
	}
	return kinds
}

// everyClose has the relay close with each of its codes. It ends the relay.
func (r *testRelay) everyClose() map[string]bool {
	r.t.Helper()
	codes := map[string]bool{}
	expect := func(c *raw, code int) {
		r.t.Helper()
		if body := c.expectFrame(opClose); body[:2] != closeBody(code, "") {
			r.t.Errorf("close %q, want %d", body, code)
		}
		codes[strconv.Itoa(code)] = true
	}
	carol := r.mustIssue("carol^test")
	for code, text := range map[int]string{
		1000: masked(fin|opClose, closeBody(1000, "")), 1002: masked(fin|3, "x"), 1007: masked(fin|opText, "\xff"),
		1009: masked(fin|opText, strings.Repeat("x", 64<<10+1)),
	} {
		c := r.mustUpgrade(carol, "")
		c.mustWrite(text)
		expect(c, code)
	}
	c, last := r.mustUpgrade(carol, ""), r.mustUpgrade(r.mustIssue("dave^test"), "sync_limit=0")
	if err := r.Revoke(&relay.RevokeKey{At: r.now(), ID: carol.ID}); err != nil {
		r.t.Fatal(err)
	}
	expect(c, 1008)
	file, err := sql.Open("sqlite", "file:"+r.path)
	if err == nil {
		file.SetMaxOpenConns(1)
		_, err = file.Exec("PRAGMA busy_timeout = 60000; ALTER TABLE message RENAME TO lost")
		file.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	expect(r.mustUpgrade(r.mustIssue("erin^test"), ""), 1013)
	r.stop()
	expect(last, 1001)
	return codes
}
