package conformance

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"relay/db/relay"
)

// beyondChecks want what the page "protocol" adds to the interface document. They fail no
// server: one that knows only the interface has none of it.
var beyondChecks = []Check{
	{Name: "whoami", Section: "protocol §2", Beyond: true, run: checkWhoami,
		Must: "Tell a client whose key it has, and whether signatures are required."},
	{Name: "nonce-once", Section: "protocol §2", Beyond: true, run: checkNonceOnce,
		Must: "Take a nonce once for a key, over all endpoints and the handshake."},
	{Name: "timestamp-range", Section: "protocol §2", Beyond: true, run: checkTimestampRange,
		Must: "Refuse a timestamp that is far off."},
	{Name: "request-signature", Section: "protocol §2", Beyond: true, run: checkRequestSignature,
		Must: "Verify X-Request-Signature, which covers the method and the path, whenever it is there."},
	{Name: "idempotency", Section: "protocol §3", Beyond: true, run: checkIdempotency,
		Must: "Answer a retry with the same Idempotency-Key with the first 201; refuse the key with another body."},
	{Name: "payload-bytes", Section: "protocol §3", Beyond: true, run: checkPayloadBytes,
		Must: "Give the payload out byte for byte as it was sent."},
	{Name: "strict-json", Section: "protocol §3", Beyond: true, run: checkStrict,
		Must: "Refuse a message with a field that stands twice, or in other letter case, or with text after it."},
	{Name: "sender", Section: "protocol §3", Beyond: true, run: checkSender,
		Must: "Refuse a message whose from is another Mecha."},
	{Name: "recipient", Section: "protocol §3", Beyond: true, run: checkRecipient,
		Must: "Refuse a message to an address that is not registered."},
	{Name: "ack-rules", Section: "protocol §3", Beyond: true, run: checkAckRules,
		Must: "Take the same final ack again, refuse another one, and refuse that of the sender."},
	{Name: "record", Section: "protocol §3", Beyond: true, run: checkRecord,
		Must: "Show the state and the ack of a message in its record."},
	{Name: "history", Section: "protocol §3", Beyond: true, run: checkHistory,
		Must: "Answer a history with {messages, has_more, next_cursor, limit}, to its Mecha alone, and 404 for a cursor " +
			"that never was."},
	{Name: "reply", Section: "protocol §3", Beyond: true, run: checkReply,
		Must: "Put an answer with in_reply_to into the conversation of its question, and give it to a sender who waits " +
			"(Prefer: wait)."},
	{Name: "claim", Section: "protocol §3", Beyond: true, run: checkClaim,
		Must: "Give a pending message to one worker at a time."},
	{Name: "socket-events", Section: "protocol §4", Beyond: true, run: checkEvents,
		Must: "Confirm acks, and send receipts, to a client that has asked for it by events."},
	{Name: "socket-send", Section: "protocol §4", Beyond: true, run: checkSocketSend,
		Must: "Take messages over the socket, and answer each with sent or error."},
	{Name: "socket-faults", Section: "protocol §4", Beyond: true, run: checkSocketFaults,
		Must: "Answer a frame that cannot be read with an error, and leave the socket open."},
	{Name: "problems", Section: "protocol §6", Beyond: true, run: checkProblems,
		Must: "Answer a refusal with application/problem+json and a code."},
}

func encode(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func checkWhoami(s *session) error {
	var who struct {
		MechaID  relay.Address `json:"mecha_id"`
		Required *bool         `json:"signature_required"`
	}
	err := s.object(&who, s.first, "GET", "/api/v1/whoami", "")
	if err == nil && (who.MechaID != s.first.Address || who.Required == nil) {
		err = fmt.Errorf("whoami says mecha_id %q, or has no signature_required", who.MechaID)
	}
	return err
}

func checkNonceOnce(s *session) error {
	nonce := "once-" + rand.Text()
	timestamp := now()
	fixed := func(h http.Header) {
		h.Set("X-Nonce", nonce)
		h.Set("X-Signature", encode(relay.Sign(s.first.secret(), nil, nonce, timestamp)))
		h.Set("X-Request-Timestamp", timestamp)
	}
	if err := s.succeeds(s.first, "GET", s.first.history("limit=1"), "", fixed); err != nil {
		return err
	}
	if err := s.refusedAs(http.StatusUnauthorized, relay.NonceReused, s.first, "GET", s.first.history("limit=2"), "",
		fixed); err != nil {
		return err
	}
	return s.noSocket("with a nonce that was used", s.first, fixed)
}

func checkTimestampRange(s *session) error {
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		r, err := s.doAt(s.first, time.Now().Add(off).UTC().Format(time.RFC3339), "GET", s.first.history("limit=1"), "")
		if err != nil {
			return err
		}
		if r.status != http.StatusUnauthorized {
			return fmt.Errorf("a timestamp that is off by %v is not refused with 401: %v", off, r)
		}
	}
	return nil
}

func checkRequestSignature(s *session) error {
	path := s.first.history("limit=1")
	signed := func(path string) change {
		return func(h http.Header) {
			sum := relay.SignRequest(s.first.secret(), "GET", path, nil, h.Get("X-Nonce"), h.Get("X-Request-Timestamp"))
			h.Set("X-Request-Signature", encode(sum))
		}
	}
	if err := s.succeeds(s.first, "GET", path, "", signed(path)); err != nil {
		return err
	}
	return s.refused("a request signature of another path", s.first, "GET", path, "", signed("/api/v1/whoami"))
}

func checkIdempotency(s *session) error {
	body, key := s.message(s.first, s.second, `{}`, ""), with("Idempotency-Key", "conformance-"+rand.Text())
	one, err := s.sendBody(s.first, s.second, body, key)
	if err != nil {
		return err
	}
	r, err := s.do(s.first, "POST", messagesPath, body, key)
	if err != nil {
		return err
	}
	var two sent
	if r.status != http.StatusCreated || json.Unmarshal(r.body, &two) != nil || two.MessageID != one.MessageID ||
		r.header.Get("Idempotent-Replayed") != "true" {
		return fmt.Errorf("the retry is not answered with the first 201 (%s): %v", one.MessageID, r)
	}
	return s.refusedAs(http.StatusUnprocessableEntity, relay.IdempotencyKeyReused, s.first, "POST",
		messagesPath, s.message(s.first, s.second, `{"other":1}`, ""), key)
}

func checkPayloadBytes(s *session) error {
	const payload = `{ "price": 180.00, "b":1,"a":"\u00e4", "e":1e2 }`
	m, err := s.send(s.first, s.second, payload, "")
	if err != nil {
		return err
	}
	r, err := s.do(s.second, "GET", messagesPath+"/"+m.MessageID+"/payload", "")
	if err == nil && string(r.body) != payload {
		err = fmt.Errorf("the payload %s was given out as %v", payload, r)
	}
	return err
}

func checkStrict(s *session) error {
	good := s.message(s.first, s.second, `{}`, "")
	for what, body := range map[string]string{
		"a field that stands twice":    strings.Replace(good, `{`, `{"to":"x^y",`, 1),
		"a field in capital letters":   strings.Replace(good, `{`, `{"TO":"x^y",`, 1),
		"text after the message":       good + `{}`,
		"text that is not valid UTF-8": strings.Replace(good, `{}`, "{\"a\":\"\xff\"}", 1),
	} {
		r, err := s.do(s.first, "POST", messagesPath, body)
		if err != nil {
			return err
		}
		if r.status != http.StatusBadRequest {
			return fmt.Errorf("%s is not refused with 400: %v", what, r)
		}
	}
	return nil
}

func checkSender(s *session) error {
	return s.refusedAs(http.StatusForbidden, relay.SenderMismatch, s.first, "POST",
		messagesPath, s.message(s.second, s.second, `{}`, ""))
}

func checkRecipient(s *session) error {
	body := fmt.Sprintf(`{"to":"nobody-%s^conformance","payload":{}}`, strings.ToLower(rand.Text()))
	return s.refusedAs(http.StatusNotFound, relay.RecipientNotFound, s.first, "POST", messagesPath, body)
}

func checkAckRules(s *session) error {
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	path := messagesPath + "/" + m.MessageID + "/ack"
	if err := s.refused("the ack of the sender", s.first, "POST", path, s.ackBody("completed")); err != nil {
		return err
	}
	for _, again := range []bool{false, true} {
		var answer struct {
			State     string
			Duplicate *bool
		}
		if err := s.object(&answer, s.second, "POST", path, s.ackBody("completed")); err != nil {
			return err
		}
		if answer.State != relay.Acknowledged.String() || answer.Duplicate == nil || *answer.Duplicate != again {
			return fmt.Errorf("an ack is not answered with state acknowledged and duplicate %v, but with state %q",
				again, answer.State)
		}
	}
	return s.refusedAs(http.StatusConflict, relay.AlreadyAcknowledged, s.second, "POST", path, s.ackBody("failed"))
}

func checkRecord(s *session) error {
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	states := []string{relay.Queued.String(), relay.Delivered.String(), relay.Acknowledged.String()}
	for i, step := range []string{"", "/deliver", "/ack"} {
		if step != "" {
			if err := s.succeeds(s.second, "POST", messagesPath+"/"+m.MessageID+step, s.ackBody("completed")); err != nil {
				return err
			}
		}
		var record struct{ State string }
		if err := s.object(&record, s.first, "GET", messagesPath+"/"+m.MessageID, ""); err != nil {
			return err
		}
		if record.State != states[i] {
			return fmt.Errorf("the state is %q, not %q", record.State, states[i])
		}
	}
	return nil
}

func checkHistory(s *session) error {
	all, err := s.few(2)
	if err != nil {
		return err
	}
	var page struct {
		Messages []sent
		HasMore  *bool   `json:"has_more"`
		Next     *string `json:"next_cursor"`
		Limit    int
	}
	if err := s.object(&page, s.second, "GET", s.second.history("limit=1&since_message_id="+all[0].MessageID),
		""); err != nil {
		return err
	}
	if len(page.Messages) != 1 || page.Messages[0].MessageID != all[1].MessageID || page.HasMore == nil ||
		page.Next == nil || *page.Next != all[1].MessageID || page.Limit != 1 {
		return fmt.Errorf("a page of one message is not {messages, has_more, next_cursor, limit}")
	}
	if err := s.refused("the history of another Mecha", s.first, "GET", s.second.history(""), ""); err != nil {
		return err
	}
	return s.refusedAs(http.StatusNotFound, relay.CursorNotFound, s.first, "GET",
		s.first.history("since_message_id=msg_00000000000000000000000000"), "")
}

func checkReply(s *session) error {
	type waited struct {
		sent
		Reply *struct {
			MessageID string `json:"message_id"`
			InReplyTo string `json:"in_reply_to"`
		}
	}
	asked := make(chan error, 1)
	var answer waited
	e, err := s.listen(s.second, "sync_limit=0")
	if err != nil {
		return err
	}
	defer e.close()
	body := s.message(s.first, s.second, `{"question":true}`, "")
	go func() { asked <- s.object(&answer, s.first, "POST", messagesPath, body, with("Prefer", "wait=10")) }()
	q, err := e.next("the question", func(h *heard) bool { return h.Type == "message" })
	if err != nil {
		return errors.Join(err, <-asked)
	}
	m, err := s.send(s.second, s.first, `{"answer":true}`, fmt.Sprintf(`,"in_reply_to":%q`, q.MessageID))
	if failed := <-asked; err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	s.sent = append(s.sent, sent{MessageID: q.MessageID, to: s.second})
	if m.ConversationID != q.ConversationID {
		return fmt.Errorf("the answer is in conversation %s, the question in %s", m.ConversationID, q.ConversationID)
	}
	if answer.Reply == nil || answer.Reply.MessageID != m.MessageID || answer.Reply.InReplyTo != q.MessageID {
		return fmt.Errorf("the sender that waited did not get the answer %s", m.MessageID)
	}
	return nil
}

func checkClaim(s *session) error {
	s.tidy() // so that nothing else is pending
	s.sent, s.crowd = nil, nil
	m, err := s.send(s.first, s.second, `{"job":1}`, "")
	if err != nil {
		return err
	}
	for i, want := range []bool{true, false} {
		var page struct{ Messages []sent }
		if err := s.object(&page, s.second, "POST", s.second.path()+"/claim",
			`{"limit":100,"lease_seconds":60}`); err != nil {
			return err
		}
		got := false
		for _, one := range page.Messages {
			s.sent = append(s.sent, sent{MessageID: one.MessageID, to: s.second})
			got = got || one.MessageID == m.MessageID
		}
		if got != want {
			return fmt.Errorf("claim %d has the message: %v, want %v", i+1, got, want)
		}
	}
	return nil
}

func checkEvents(s *session) error {
	mine, err := s.listen(s.first, "sync_limit=0&events=receipts")
	if err != nil {
		return err
	}
	defer mine.close()
	theirs, err := s.listen(s.second, "sync_limit=0&events=acks")
	if err != nil {
		return err
	}
	defer theirs.close()
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	if _, err := theirs.message(m.MessageID); err != nil {
		return err
	}
	if err := theirs.ack(m.MessageID, "completed"); err != nil {
		return err
	}
	if _, err := theirs.next("ack_ok", func(h *heard) bool {
		return h.Type == "ack_ok" && h.MessageID == m.MessageID
	}); err != nil {
		return err
	}
	_, err = mine.next("the receipt", func(h *heard) bool {
		return h.Type == "receipt" && h.MessageID == m.MessageID && h.State == relay.Acknowledged.String() &&
			h.Status == "completed"
	})
	return err
}

func checkSocketSend(s *session) error {
	e, err := s.listen(s.first, "sync_limit=0")
	if err != nil {
		return err
	}
	defer e.close()
	signed := func(ref, message string) []byte {
		timestamp, nonce := now(), rand.Text()
		sum := encode(relay.Sign(s.first.secret(), []byte(message), nonce, timestamp))
		return fmt.Appendf(nil, `{"type":"send","ref":%q,"message":%s,"nonce":%q,"timestamp":%q,"signature":%q}`,
			ref, message, nonce, timestamp, sum)
	}
	err = e.socket.SendText(signed("good", s.message(s.first, s.second, `{}`, "")),
		signed("bad", `{"to":"nobody","payload":{}}`))
	if err != nil {
		return err
	}
	h, err := e.next("sent", func(h *heard) bool { return h.Ref == "good" })
	if err != nil {
		return err
	}
	if h.Type != "sent" || h.MessageID == "" {
		return fmt.Errorf("a message over the socket is answered with %v", h.fields)
	}
	s.sent = append(s.sent, sent{MessageID: h.MessageID, to: s.second})
	return nil
}

func checkSocketFaults(s *session) error {
	e, err := s.listen(s.second, "sync_limit=0")
	if err != nil {
		return err
	}
	defer e.close()
	for _, text := range []string{`nonsense`, `{"type":"unknown"}`,
		`{"type":"ack","message_id":"msg_0","status":"completed","client_ts":"` + now() + `"}`} {
		if err := e.socket.SendText([]byte(text)); err != nil {
			return err
		}
		if _, err := e.next("error", func(h *heard) bool { return h.Type == "error" && h.Code != "" }); err != nil {
			return fmt.Errorf("after the frame %s: %w", text, err)
		}
	}
	m, err := s.send(s.first, s.second, `{}`, "")
	if err == nil {
		_, err = e.message(m.MessageID)
	}
	return err
}

func checkProblems(s *session) error {
	r, err := s.do(s.first, "GET", messagesPath+"/msg_unknown", "")
	if err != nil {
		return err
	}
	var problem struct{ Type, Title, Detail, Code string }
	if r.status != http.StatusNotFound || r.header.Get("Content-Type") != "application/problem+json" ||
		json.Unmarshal(r.body, &problem) != nil || problem.Code == "" || problem.Detail == "" {
		return fmt.Errorf("the refusal of an unknown message is not a problem document: %v (%s)",
			r, r.header.Get("Content-Type"))
	}
	if bytes.Contains(r.body, []byte(s.first.Key)) || r.header.Get("X-Request-Id") == "" {
		return errors.New("a refusal has no X-Request-Id, or repeats the key")
	}
	return nil
}
