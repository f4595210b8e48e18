package conformance

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// interfaceChecks want what the interface document says, and nothing more. Where it shows
// no body, a check looks only for what every form must have: a status, an id.
var interfaceChecks = []Check{
	{Name: "send", Section: "§4 Send Message", run: checkSend,
		Must: "Answer a send with 201 and message_id (msg_…), conversation_id (conv_…) and created_at (RFC 3339)."},
	{Name: "send-conversation", Section: "§2 Message", run: checkConversation,
		Must: "Put a message into the conversation that its conversation_id names."},
	{Name: "send-payload", Section: "§2 Message", run: checkPayload,
		Must: "Take any JSON object as payload: empty, nested, in any script."},
	{Name: "get-message", Section: "§4 Get Message", run: checkGet,
		Must: "Show a message to its sender and to its recipient."},
	{Name: "get-message-others", Section: "§5 rule 3", run: checkGetOthers,
		Must: "Show a message to nobody but its sender and its recipient."},
	{Name: "get-payload", Section: "§4 Get Payload", run: checkGetPayload,
		Must: "Give the payload to the recipient."},
	{Name: "get-payload-others", Section: "§5 rule 3", run: checkGetPayloadOthers,
		Must: "Give the payload to nobody but the recipient, not even to the sender."},
	{Name: "ack", Section: "§4 ACK Message", run: checkAck,
		Must: "Take an ack with status and client_ts from the recipient."},
	{Name: "deliver", Section: "§4 Mark Delivered", run: checkDeliver,
		Must: "Let the recipient mark a message as delivered."},
	{Name: "list", Section: "§4 List Mecha Messages", run: checkList,
		Must: "List a Mecha's messages, those that it sent and those that it received."},
	{Name: "list-time", Section: "§4 List Mecha Messages", run: checkListTime,
		Must: "Filter by since and until."},
	{Name: "list-cursor", Section: "§4 List Mecha Messages", run: checkListCursor,
		Must: "Go on after since_message_id: what comes after it is listed, and what came before it is not."},
	{Name: "list-limit", Section: "§4 List Mecha Messages", run: checkListLimit,
		Must: "List no more messages than limit says."},
	{Name: "list-default", Section: "§8 Limits", run: checkListDefault,
		Must: "List 100 messages if there is no limit, and up to 1000 if that is the limit."},
	{Name: "push", Section: "§6 Events", run: checkPush,
		Must: "Push a message to its recipient as it comes, with all fields of the envelope."},
	{Name: "push-kinds", Section: "§6 Events", run: checkPushKinds,
		Must: "Send no other event than message to a client that has not asked for it."},
	{Name: "ack-frame", Section: "§6 Events", run: checkAckFrame,
		Must: "Take an ack over the socket, and leave the socket open."},
	{Name: "sync", Section: "§4 Connect", run: checkSync,
		Must: "Send what came after since_message_id when a client connects, and nothing from before it."},
	{Name: "sync-limit", Section: "§4 Connect", run: checkSyncLimit,
		Must: "Send no more messages for synchronisation than sync_limit says."},
	{Name: "sync-default", Section: "§8 Limits", run: checkSyncDefault,
		Must: "Send 200 messages for synchronisation if there is no sync_limit."},
	{Name: "search", Section: "§4 Search", run: checkSearch,
		Must: "Take a search, and give its result by the request identifier."},
	{Name: "key-required", Section: "§5 Authentication", run: checkKey,
		Must: "Refuse a request without X-Mecha-Key, or with a key that is unknown."},
	{Name: "timestamp-required", Section: "§5 Authentication", run: checkTimestamp,
		Must: "Refuse a request without X-Request-Timestamp, or with one that is not RFC 3339."},
	{Name: "timestamp-forms", Section: "§5 Authentication", run: checkTimestampForms,
		Must: "Take a timestamp in every form of RFC 3339, and sign it as it was sent."},
	{Name: "nonce-required", Section: "§5 Authentication", run: checkNonce,
		Must: "Refuse a request without X-Nonce."},
	{Name: "signature", Section: "§5 Authentication", run: checkSignature,
		Must: "Take a request whose X-Signature is right: HMAC-SHA256 over body|nonce|timestamp, as sent."},
	{Name: "signature-wrong", Section: "§5 rule 2", run: checkSignatureWrong,
		Must: "Verify X-Signature whenever it is there, and refuse a request whose signature is wrong."},
	{Name: "signature-required", Section: "§5 rule 1", run: checkSignatureRequired,
		Must: "With REQUIRE_MESSAGE_SIGNATURE, refuse every request without X-Signature."},
	{Name: "handshake", Section: "§5 Authentication", run: checkHandshake,
		Must: "Ask the same headers of a WebSocket handshake as of a request."},
}

func checkSend(s *session) error {
	m, err := s.send(s.first, s.second, `{"text":"hello"}`, "")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(m.MessageID, "msg_") || len(m.MessageID) == len("msg_") {
		return fmt.Errorf("message_id is %q, not msg_…", m.MessageID)
	}
	if !strings.HasPrefix(m.ConversationID, "conv_") || len(m.ConversationID) == len("conv_") {
		return fmt.Errorf("conversation_id is %q, not conv_…", m.ConversationID)
	}
	return isTime("created_at", m.CreatedAt)
}

func isTime(field, value string) error {
	if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
		return fmt.Errorf("%s is %q, which is not RFC 3339", field, value)
	}
	return nil
}

func checkConversation(s *session) error {
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	again, err := s.send(s.second, s.first, `{}`, fmt.Sprintf(`,"conversation_id":%q`, m.ConversationID))
	if err == nil && again.ConversationID != m.ConversationID {
		err = fmt.Errorf("a message to conversation %s is in %s", m.ConversationID, again.ConversationID)
	}
	return err
}

// payloads are objects in which servers have been wrong.
var payloads = []string{`{}`, `{"text":"Grüezi 你好 🙂"}`, `{"a":{"b":[1,2.50,-3e2,null,true,{"c":[]}]}}`,
	`{"":"","a b":"\u0000\ud83d\ude42","|":"a|b"}`}

func checkPayload(s *session) error {
	for _, p := range payloads {
		if _, err := s.send(s.first, s.second, p, ""); err != nil {
			return fmt.Errorf("the payload %s: %w", p, err)
		}
	}
	return nil
}

func checkGet(s *session) error {
	m, err := s.send(s.first, s.second, `{}`, "")
	for _, as := range []*peer{s.first, s.second} {
		if err == nil {
			err = s.object(&struct{}{}, as, "GET", messagesPath+"/"+m.MessageID, "")
		}
	}
	return err
}

// note sends a message that the second Mecha has no part in.
func (s *session) note() (sent, error) {
	m, err := s.send(s.first, s.first, `{"private":true}`, "")
	if err != nil {
		return m, skipped("it takes a third Mecha: this server lets nobody write to itself")
	}
	return m, nil
}

func checkGetOthers(s *session) error {
	m, err := s.note()
	if err != nil {
		return err
	}
	return s.refused("a message of others", s.second, "GET", messagesPath+"/"+m.MessageID, "")
}

func checkGetPayload(s *session) error {
	m, err := s.send(s.first, s.second, `{"text":"hello"}`, "")
	if err != nil {
		return err
	}
	r, err := s.do(s.second, "GET", messagesPath+"/"+m.MessageID+"/payload", "")
	if err == nil && (r.status/100 != 2 || len(r.body) == 0) {
		err = fmt.Errorf("the recipient does not get the payload: %v", r)
	}
	return err
}

func checkGetPayloadOthers(s *session) error {
	m, err := s.send(s.first, s.second, `{"text":"hello"}`, "")
	if err != nil {
		return err
	}
	return s.refused("the payload, to the sender,", s.first, "GET", messagesPath+"/"+m.MessageID+"/payload", "")
}

func checkAck(s *session) error {
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	return s.succeeds(s.second, "POST", messagesPath+"/"+m.MessageID+"/ack", s.ackBody("completed"))
}

// succeeds wants an answer with 2xx.
func (s *session) succeeds(as *peer, method, path, body string, changes ...change) error {
	r, err := s.do(as, method, path, body, changes...)
	if err == nil && r.status/100 != 2 {
		err = fmt.Errorf("%s %s: %v", method, path, r)
	}
	return err
}

func checkDeliver(s *session) error {
	m, err := s.send(s.first, s.second, `{}`, "")
	if err != nil {
		return err
	}
	return s.succeeds(s.second, "POST", messagesPath+"/"+m.MessageID+"/deliver", "")
}

func checkList(s *session) error {
	all, err := s.few(3)
	if err != nil {
		return err
	}
	for _, as := range []*peer{s.first, s.second} {
		n, err := s.listed(as, "limit=1000&since="+url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)),
			all)
		if err != nil || n != len(all) {
			return fmt.Errorf("the list of %s has %d of 3 messages: %v", as.Address, n, err)
		}
	}
	return nil
}

func checkListTime(s *session) error {
	all, err := s.few(3)
	if err != nil {
		return err
	}
	at := func(d time.Duration) string { return url.QueryEscape(time.Now().Add(d).UTC().Format(time.RFC3339)) }
	for query, want := range map[string]int{
		"limit=1000&since=" + at(-time.Hour) + "&until=" + at(time.Hour): 3,
		"limit=1000&since=" + at(time.Hour):                              0,
		"limit=1000&until=" + at(-time.Hour):                             0,
	} {
		if n, err := s.listed(s.second, query, all); err != nil || n != want {
			return fmt.Errorf("with %s, the list has %d of the messages, not %d: %v", query, n, want, err)
		}
	}
	return nil
}

func checkListCursor(s *session) error {
	all, err := s.few(5)
	if err != nil {
		return err
	}
	query := "limit=1000&since_message_id=" + all[2].MessageID
	before, err := s.listed(s.second, query, all[:2])
	if err != nil {
		return err
	}
	after, err := s.listed(s.second, query, all[3:])
	if err == nil && (before != 0 || after != 2) {
		err = fmt.Errorf("after the third of 5 messages, the list has %d of the 2 before it, and %d of the 2 after it",
			before, after)
	}
	return err
}

// A page may name one message more, as the cursor for the next page.
func checkListLimit(s *session) error {
	all, err := s.few(5)
	if err != nil {
		return err
	}
	n, err := s.listed(s.second, "limit=2&since="+url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))+
		"&since_message_id="+all[0].MessageID, all[1:])
	if err == nil && (n < 2 || n > 3) {
		err = fmt.Errorf("with limit=2, the list has %d of 4 messages", n)
	}
	return err
}

func checkListDefault(s *session) error {
	cursor, all, err := s.many()
	if err != nil {
		return err
	}
	n, err := s.listed(s.second, "since_message_id="+cursor.MessageID, all)
	if err != nil || n < 100 || n > 101 {
		return fmt.Errorf("without a limit, the list has %d of %d messages: %v", n, len(all), err)
	}
	n, err = s.listed(s.second, "limit=1000&since_message_id="+cursor.MessageID, all)
	if err == nil && n != len(all) {
		err = fmt.Errorf("with limit=1000, the list has %d of %d messages", n, len(all))
	}
	return err
}

func checkSearch(s *session) error {
	var answer map[string]any
	if err := s.object(&answer, s.first, "POST", "/api/v1/search", `{"query":"conformance"}`); err != nil {
		return err
	}
	for _, name := range []string{"request_id", "requestId", "search_id", "id"} {
		if id, ok := answer[name].(string); ok && id != "" {
			return s.succeeds(s.first, "GET", "/api/v1/search/"+url.PathEscape(id), "")
		}
	}
	return fmt.Errorf("the answer to a search names no request identifier")
}
