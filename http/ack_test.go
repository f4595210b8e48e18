package http_test

import (
	"strings"
	"testing"
	"time"

	"relay/db/relay"
)

// Each line is one request and what it makes of the message: the words of the
// recipient in a row, the state after each, and whether it was a repetition.
func TestTheLifeOfAMessage(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	type step struct {
		word      string // "deliver", or the status of an ack
		status    int
		state     string
		duplicate bool
	}
	for name, steps := range map[string][]step{
		"deliver twice":      {{"deliver", 200, "delivered", false}, {"deliver", 200, "delivered", false}},
		"deliver, then ack":  {{"deliver", 200, "delivered", false}, {"completed", 200, "acknowledged", false}},
		"an ack delivers":    {{"completed", 200, "acknowledged", false}, {"deliver", 200, "acknowledged", false}},
		"progress":           {{"received", 200, "delivered", false}, {"processing", 200, "delivered", false}, {"completed", 200, "acknowledged", false}},
		"progress twice":     {{"processing", 200, "delivered", false}, {"processing", 200, "delivered", true}},
		"completed twice":    {{"completed", 200, "acknowledged", false}, {"completed", 200, "acknowledged", true}, {"COMPLETED", 200, "acknowledged", true}},
		"failed twice":       {{"failed", 200, "acknowledged", false}, {"failed", 200, "acknowledged", true}},
		"rejected twice":     {{"rejected", 200, "acknowledged", false}, {"rejected", 200, "acknowledged", true}},
		"completed, failed":  {{"completed", 200, "acknowledged", false}, {"failed", 409, "acknowledged", false}, {"completed", 200, "acknowledged", true}},
		"failed, completed":  {{"failed", 200, "acknowledged", false}, {"completed", 409, "acknowledged", false}},
		"rejected, received": {{"rejected", 200, "acknowledged", false}, {"received", 409, "acknowledged", false}, {"seen", 409, "acknowledged", false}},
		"words of one's own": {{"seen", 200, "acknowledged", false}, {"seen", 200, "acknowledged", true}, {"filed_2", 200, "acknowledged", false}, {"failed", 200, "acknowledged", false}},
		"never back":         {{"seen", 200, "acknowledged", false}, {"processing", 200, "acknowledged", false}, {"deliver", 200, "acknowledged", false}},
	} {
		t.Run(name, func(t *testing.T) {
			alice, bob := alice.in(t), bob.in(t)
			id := alice.mustSend(bob).MessageID
			word := ""
			for _, s := range steps {
				r.clock.advance(time.Second)
				var a reply
				switch {
				case s.word == "deliver":
					a = bob.mustDeliver(id).wantField("message_id", `"`+id+`"`).wantField("state", `"`+s.state+`"`)
				case s.status == 409:
					bob.post(messagePath(id)+"/ack", ackBody(s.word)).wantProblem(409, relay.AlreadyAcknowledged)
				default:
					word = strings.ToLower(s.word)
					a = bob.mustAck(id, s.word).wantField("message_id", `"`+id+`"`).wantField("state", `"`+s.state+`"`).
						wantField("status", `"`+word+`"`).wantField("client_ts", `"2026-11-20T08:00:00Z"`)
					if got := a.field("duplicate") == "true"; got != s.duplicate {
						t.Errorf("%s: %s", s.word, a.body)
					}
					if at := a.field("acknowledged_at"); (at == "null") != (s.state != "acknowledged") {
						t.Errorf("%s: %s", s.word, a.body)
					}
				}
				got := alice.record(id)
				if got.State != s.state || got.DeliveredAt == nil || (got.AcknowledgedAt == nil) != (s.state != "acknowledged") {
					t.Errorf("after %s: %+v", s.word, got)
				}
				if (got.Ack == nil) != (word == "") || got.Ack != nil && got.Ack.Status != word {
					t.Errorf("after %s the latest word is %+v, want %s", s.word, got.Ack, word)
				}
			}
		})
	}
}

func TestTimesOfAMessage(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	id := alice.mustSend(bob).MessageID
	r.clock.advance(time.Second)
	bob.mustDeliver(id).wantField("delivered_at", `"2026-11-20T08:00:01.000Z"`)
	r.clock.advance(time.Second)
	bob.mustDeliver(id).wantField("delivered_at", `"2026-11-20T08:00:01.000Z"`)
	bob.post(messagePath(id)+"/deliver", `{"anything":1}`).want(200)
	body := `{"status":"Completed","client_ts":"2020-01-01T00:00:00.5+01:00","detail":"why é","more":true}`
	bob.post(messagePath(id)+"/ack", body).want(200).wantField("acknowledged_at", `"2026-11-20T08:00:02.000Z"`)
	r.clock.advance(time.Second)
	bob.post(messagePath(id)+"/ack", ackBody("completed")).want(200).wantField("acknowledged_at", `"2026-11-20T08:00:02.000Z"`).
		wantField("client_ts", `"2020-01-01T00:00:00.5+01:00"`) // the first one stands
	got := alice.record(id)
	if *got.DeliveredAt != "2026-11-20T08:00:01.000Z" || *got.AcknowledgedAt != "2026-11-20T08:00:02.000Z" ||
		got.Ack.ClientTS != "2020-01-01T00:00:00.5+01:00" || got.Ack.At != "2026-11-20T08:00:02.000Z" || *got.Ack.Detail != "why é" {
		t.Errorf("%+v, ack %+v", got, got.Ack)
	}
}

func TestAckRules(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	id := alice.mustSend(bob).MessageID
	const ts = `"client_ts":"2026-11-20T08:00:00Z"`
	x := strings.Repeat
	for body, row := range map[string]struct {
		field string
		code  relay.Code
	}{
		`{` + ts + `}`:                                                 {"status", relay.InvalidRequest},
		`{"status":"",` + ts + `}`:                                     {"status", relay.InvalidRequest},
		`{"status":null,` + ts + `}`:                                   {"status", relay.InvalidRequest},
		`{"status":1,` + ts + `}`:                                      {"status", relay.InvalidRequest},
		`{"status":"1st",` + ts + `}`:                                  {"status", relay.InvalidRequest},
		`{"status":"_x",` + ts + `}`:                                   {"status", relay.InvalidRequest},
		`{"status":"all done",` + ts + `}`:                             {"status", relay.InvalidRequest},
		`{"status":"done-ish",` + ts + `}`:                             {"status", relay.InvalidRequest},
		`{"status":"` + x("s", 33) + `",` + ts + `}`:                   {"status", relay.InvalidRequest},
		`{"status":"fertig_ü",` + ts + `}`:                             {"status", relay.InvalidRequest},
		`{"status":"wor\u212a",` + ts + `}`:                            {"status", relay.InvalidRequest}, // the Kelvin sign is not a K
		`{"status":"fa\u0130led",` + ts + `}`:                          {"status", relay.InvalidRequest}, // nor İ an I
		`{"status":"done"}`:                                            {"client_ts", relay.InvalidTime},
		`{"status":"done","client_ts":""}`:                             {"client_ts", relay.InvalidTime},
		`{"status":"done","client_ts":"now"}`:                          {"client_ts", relay.InvalidTime},
		`{"status":"done","client_ts":"2026-11-20T08:00:00,5Z"}`:       {"client_ts", relay.InvalidTime},
		`{"status":"done","client_ts":"2026-11-20T8:00:00Z"}`:          {"client_ts", relay.InvalidTime},
		`{"status":"done","client_ts":1795161660}`:                     {"client_ts", relay.InvalidRequest},
		`{"status":"done",` + ts + `,"detail":{}}`:                     {"detail", relay.InvalidRequest},
		`{"status":"done",` + ts + `,"detail":"` + x("d", 1025) + `"}`: {"detail", relay.InvalidRequest},
	} {
		bob.post(messagePath(id)+"/ack", body).wantFault(400, row.code, row.field)
	}
	if got := bob.record(id); got.State != "queued" {
		t.Errorf("a refused ack made the state %s", got.State)
	}
	for _, body := range []string{
		`{"status":"` + x("S", 32) + `",` + ts + `}`,
		`{"status":"a_1","client_ts":"1999-12-31t23:59:60z"}`,
		`{"status":"done",` + ts + `,"detail":"` + x("d", 1024) + `","message_id":7,"type":null}`,
		`{"status":"done",` + ts + `,"detail":null}`,
		`{"status":"done",` + ts + `,"detail":""}`,
	} {
		bob.post(messagePath(id)+"/ack", body).want(200)
	}
	if got := bob.record(id); got.Ack.Status != "done" || got.Ack.Detail != nil {
		t.Errorf("%+v", got.Ack)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	queued := alice.mustSend(bob, `"ttl_seconds":60`).MessageID
	delivered := alice.mustSend(bob, `"expires_at":"2026-11-20T09:01:00.000+01:00"`).MessageID
	done := alice.mustSend(bob, `"ttl_seconds":60`).MessageID
	lasting := alice.mustSend(bob).MessageID
	bob.mustDeliver(delivered)
	bob.mustAck(done, "completed")

	wantStates := func(want ...string) {
		t.Helper()
		for _, m := range []mecha{alice, bob} {
			for i, id := range []string{queued, delivered, done, lasting} {
				if got := m.record(id).State; got != want[i] {
					t.Errorf("message %d is %s, want %s", i, got, want[i])
				}
				p := m.history("state=" + want[i])
				if ids := strings.Join(p.ids(), " "); !strings.Contains(ids, id) {
					t.Errorf("history of what is %s lacks message %d", want[i], i)
				}
			}
		}
	}
	r.clock.advance(time.Minute - time.Millisecond)
	wantStates("queued", "delivered", "acknowledged", "queued")
	bob.get(inboxPath(bob)).want(200).wantField("pending", "3")
	if got := *bob.record(delivered).ExpiresAt; got != "2026-11-20T08:01:00.000Z" {
		t.Errorf("expires_at is %s", got)
	}

	r.clock.advance(time.Millisecond) // at once, whether or not the store has come round to it
	wantStates("expired", "expired", "acknowledged", "queued")
	bob.get(inboxPath(bob)).want(200).wantField("pending", "1").wantField("oldest_message_id", `"`+lasting+`"`)
	if p := bob.history("state=pending"); len(p.Messages) != 1 {
		t.Errorf("%d are pending", len(p.Messages))
	}
	for _, id := range []string{queued, delivered} {
		bob.post(messagePath(id)+"/ack", ackBody("completed")).wantProblem(409, relay.MessageExpired)
		bob.post(messagePath(id)+"/deliver", "").wantProblem(409, relay.MessageExpired)
		bob.get(messagePath(id) + "/payload").want(200)
	}
	bob.post(messagePath(done)+"/ack", ackBody("completed")).want(200).wantField("duplicate", "true")
	bob.post(messagePath(done)+"/ack", ackBody("failed")).wantProblem(409, relay.AlreadyAcknowledged)

	alice.mustSend(bob) // a commit: the expiry now is in the file
	r.mustRestart()
	alice.r, bob.r = r, r
	wantStates("expired", "expired", "acknowledged", "queued")
	r.clock.advance(-time.Hour) // expired is expired, whatever the clock does
	wantStates("expired", "expired", "acknowledged", "queued")
}
