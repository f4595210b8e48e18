package console_test

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
	"relay/http/console/operator"
)

// An operator sends as a Mecha of their own, expires messages and revokes keys. Each act is
// noted once, with what it did; what is refused is not noted.
func TestWhatAnOperatorDoesIsNoted(t *testing.T) {
	t.Parallel()
	s := mustStore(t, true)
	alice, bob := s.mustIssue("alice^demo", ""), s.mustIssue("bob^demo", "")
	o := operator.New(s.DB, maria, "operator^demo")
	began := time.Now()

	body := []byte(`{"to":"bob^demo","correlation_id":"msg_old","payload":{ "n": 1.0 }}`)
	id, err := o.Send(body, "once")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := o.Send(body, "once"); err != nil || again != id {
		t.Errorf("sent again, it is %s, %v", again, err)
	}
	m, err := s.Message(t.Context(), bob.Mecha.Number, id)
	if err != nil || m.From != "operator^demo" || m.CorrelationID != "msg_old" {
		t.Fatalf("%+v, %v", m, err)
	}
	if payload, err := s.Payload(t.Context(), bob.Mecha.Number, id); err != nil || string(payload) != `{ "n": 1.0 }` {
		t.Errorf("%s, %v", payload, err)
	}
	for body, want := range map[string]relay.Code{
		`{"to":"bop^demo","payload":{}}`: relay.RecipientNotFound, `{"to":"bob^demo","payload":[]}`: relay.InvalidRequest, `{`: relay.InvalidJSON,
		`{"to":"bob^demo","payload":{},"from":"alice^demo"}`: relay.SenderMismatch,
	} {
		if _, err := o.Send([]byte(body), body); relay.ErrorCode(err) != want {
			t.Errorf("%s: %v, want %s", body, err, want)
		}
	}

	waits, done := s.mustSend(0, alice, "bob^demo", `{}`), s.mustSend(0, alice, "bob^demo", `{}`)
	s.mustAck(0, bob, done, "completed", "")
	if err := o.Expire(waits.ID); err != nil {
		t.Fatal(err)
	}
	if m, err = s.Message(t.Context(), alice.Mecha.Number, waits.ID); err != nil || m.State != relay.Expired || m.ExpiresAt.Before(began.Truncate(time.Millisecond)) {
		t.Errorf("%+v, %v", m, err)
	}
	file, err := sql.Open("sqlite", s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	n := 0
	err = file.QueryRow("SELECT count(*) FROM receipt r JOIN message m ON m.receipt = r.position WHERE r.state = 3 AND m.state = 3 AND m.open = 0 AND r.detail = 'an operator let it expire'").Scan(&n)
	if err != nil || n != 1 {
		t.Errorf("%d messages have the receipt of their expiry; %v", n, err)
	}
	for id, want := range map[relay.MessageID]relay.Code{waits.ID: relay.MessageExpired, done.ID: relay.AlreadyAcknowledged, "msg_none": relay.MessageNotFound} {
		if err := o.Expire(id); relay.ErrorCode(err) != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}

	if err := o.Revoke(bob.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Key(t.Context(), bob.Text); relay.ErrorCode(err) != relay.KeyRevoked {
		t.Errorf("the revoked key gives %v", err)
	}
	if err := o.Revoke(bob.ID); err != nil { // which changes nothing, and is not noted
		t.Error(err)
	}
	if err := o.Revoke("key_none"); relay.ErrorCode(err) != relay.UnknownKey {
		t.Error(err)
	}
	second, err := operator.New(s.DB, maria, "operator^demo").Send([]byte(`{"to":"alice^demo","payload":{"n":2}}`), "later") // of a later start
	if err != nil {
		t.Error(err)
	}
	// The operator's own key may end as well. The next message gets a new one.
	keys, err := s.Keys(t.Context(), "operator^demo")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%+v, %v", keys, err)
	}
	if err := s.Revoke(&relay.RevokeKey{At: time.Now(), ID: keys[0].ID}); err != nil {
		t.Fatal(err)
	}
	last, err := o.Send([]byte(`{"to":"alice^demo","payload":{}}`), "twice")
	if err != nil {
		t.Fatal(err)
	}
	in, err := browse.Inspect(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	acts, err := in.Acts(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range acts {
		if n.By == maria {
			got = append(got, strings.Join([]string{n.What, string(n.Mecha), n.Detail}, " "))
		}
	}
	want := []string{"key_issued operator^demo label “console”", "message_sent bob^demo " + string(id) + ", correlation id “msg_old”",
		"message_expired  " + string(waits.ID), "key_revoked bob^demo ", "message_sent alice^demo " + string(second), "key_issued operator^demo ", "message_sent alice^demo " + string(last)}
	if len(got) != len(want) {
		t.Fatalf("the audit log has %q", got)
	}
	for i := range got {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("act %d is %q, want %q", i, got[i], want[i])
		}
	}
}

// What an operator sends is no sign that its Mecha was there, whether the index tables have the
// message or not. What the Mecha itself sends is one at once.
func TestWhatAnOperatorSendsIsNoSignOfItsMecha(t *testing.T) {
	for _, serve := range []bool{false, true} { // false: the index tables have each message at once
		s := mustStore(t, serve)
		alice := s.mustIssue("alice^demo", "")
		o := operator.New(s.DB, maria, "operator^demo")
		sent, err := o.Send([]byte(`{"to":"alice^demo","payload":{}}`), "once")
		if err != nil {
			t.Fatal(err)
		}
		file, err := browse.Inspect(s.path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		in := survey.Inspector{Inspector: file}
		m := s.mustSend(0, alice, "operator^demo", `{}`)
		want := func(seen bool) {
			t.Helper()
			state, err := in.Mecha("operator^demo", time.Now())
			all := map[string]time.Time{"Mecha": state.Box.LastSeen}
			if err == nil {
				var known []survey.Known
				known, _, err = in.Mechas(survey.MechaQuery{Text: "operator", Limit: 9})
				all["Mechas"] = known[0].LastSeen
			}
			if err == nil {
				var listed []survey.Listed
				listed, err = in.Listed([]relay.MechaNumber{state.Number})
				all["Listed"] = listed[0].LastSeen
			}
			if err == nil {
				var trace *look.Trace
				trace, err = in.Why(t.Context(), m.ID)
				all["Why"] = trace.Situation.LastSeen
			}
			if err == nil {
				var o survey.Overview
				o, err = in.Overview(t.Context(), time.Now())
				for _, b := range o.Boxes {
					if b.Mecha == "operator^demo" {
						all["Overview"] = b.LastSeen
					}
				}
			}
			if err != nil || len(all) != 5 {
				t.Fatal(all, err)
			}
			for of, at := range all {
				if at.IsZero() == seen {
					t.Errorf("serve %v: %s tells that it was there at %v", serve, of, at)
				}
			}
		}
		want(false)
		own := s.mustIssue("operator^demo", "")
		s.mustSend(0, own, "alice^demo", `{}`)
		want(true)
		if m, err := in.Message(sent); err != nil || m.From != "operator^demo" {
			t.Error(m, err)
		}
	}
}
