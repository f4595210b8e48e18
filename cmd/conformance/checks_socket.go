package conformance

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"relay/db/relay"
)

func checkPush(s *session) error {
	e, err := s.listenNow()
	if err != nil {
		return err
	}
	defer e.close()
	const payload = `{"text":"Grüezi","n":[1,{"a":null}]}`
	m, err := s.send(s.first, s.second, payload, "")
	if err != nil {
		return err
	}
	h, err := e.message(m.MessageID)
	if err != nil {
		return err
	}
	for field, pair := range map[string][2]string{"from": {h.From, string(s.first.Address)},
		"to": {h.To, string(s.second.Address)}, "conversation_id": {h.ConversationID, m.ConversationID},
		"message_type": {h.MessageType, "conformance"}} {
		if pair[0] != pair[1] {
			return fmt.Errorf("%s is %q in the envelope, not %q", field, pair[0], pair[1])
		}
	}
	text, err := h.payload()
	if err != nil {
		return err
	}
	var got, want any
	if json.Unmarshal(text, &got) != nil || json.Unmarshal([]byte(payload), &want) != nil ||
		!reflect.DeepEqual(got, want) {
		return fmt.Errorf("payload_base64 is %s, not %s", relay.Visible(string(text)), payload)
	}
	return isTime("created_at", h.CreatedAt)
}

func checkPushKinds(s *session) error {
	mine, err := s.listen(s.first, "")
	if err != nil {
		return err
	}
	defer mine.close()
	theirs, err := s.listenNow()
	if err != nil {
		return err
	}
	defer theirs.close()
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	first, err := theirs.next("a frame", func(h *heard) bool { return h.Type != "message" || h.MessageID == m.MessageID })
	if err != nil {
		return err
	}
	if err := theirs.ack(m.MessageID, "completed"); err != nil {
		return err
	}
	for _, h := range slices.Concat([]heard{*first}, mine.rest(0, nil), theirs.rest(0, nil)) {
		if h.Type != "message" {
			return fmt.Errorf("a frame of type %q came, which nobody asked for", h.Type)
		}
	}
	return nil
}

func checkAckFrame(s *session) error {
	e, err := s.listenNow()
	if err != nil {
		return err
	}
	defer e.close()
	for range 3 {
		m, err := s.send(s.first, s.second, `{}`, "")
		if err != nil {
			return err
		}
		if _, err = e.message(m.MessageID); err != nil {
			return err
		}
		if err = e.ack(m.MessageID, "completed"); err != nil {
			return err
		}
	}
	return nil
}

// after opens the socket of the second Mecha behind a message, and returns what comes. Of the other
// messages, so many should.
func (s *session) after(cursor sent, query string, want int, of []sent) (all []heard, err error) {
	e, err := s.listen(s.second, "since_message_id="+cursor.MessageID+query)
	if err != nil {
		return nil, err
	}
	defer e.close()
	return e.rest(want, of), nil
}

func checkSync(s *session) error {
	all, err := s.few(4)
	if err != nil {
		return err
	}
	came, err := s.after(all[1], "", 2, all[2:])
	if err != nil {
		return err
	}
	if before, after := heardOf(came, all[:1]), heardOf(came, all[2:]); before != 0 || after != 2 {
		return fmt.Errorf("after the second of 4 messages, %d from before it came, and %d of the 2 after it", before, after)
	}
	return nil
}

func checkSyncLimit(s *session) error {
	all, err := s.few(5)
	if err != nil {
		return err
	}
	came, err := s.after(all[0], "&sync_limit=2", 2, all[1:])
	if err != nil {
		return err
	}
	if n := heardOf(came, all[1:]); n != 2 {
		return fmt.Errorf("with sync_limit=2, %d of 4 messages came, of which none was acknowledged", n)
	}
	return nil
}

func checkSyncDefault(s *session) error {
	cursor, all, err := s.many()
	if err != nil {
		return err
	}
	came, err := s.after(cursor, "", 200, all)
	if err != nil {
		return err
	}
	if n := heardOf(came, all); n != 200 {
		return fmt.Errorf("without sync_limit, %d of %d messages came, of which none was acknowledged", n, len(all))
	}
	return nil
}
