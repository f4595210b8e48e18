package mcp

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/http/client"
)

const longestWait = 25 // seconds: clients give up on a call after 30

// sendArguments are the arguments of send_message.
type sendArguments struct {
	To             string          `json:"to"`
	Payload        json.RawMessage `json:"payload"`
	InReplyTo      string          `json:"in_reply_to"`
	ConversationID string          `json:"conversation_id"`
	MessageType    string          `json:"message_type"`
	TTL            int             `json:"ttl_seconds"`
	IdempotencyKey string          `json:"idempotency_key"`
	SearchID       string          `json:"search_id"`
	Wait           int             `json:"wait_reply_seconds"`
}

// outgoing is a message as POST /api/v1/messages takes it, but for its payload.
type outgoing struct {
	To             string `json:"to"`
	ConversationID string `json:"conversation_id,omitempty"`
	MessageType    string `json:"message_type,omitempty"`
	CorrelationID  string `json:"correlation_id,omitempty"`
	InReplyTo      string `json:"in_reply_to,omitempty"`
	TTL            int    `json:"ttl_seconds,omitempty"`
	SearchID       string `json:"search_id,omitempty"`
}

// sent is the 201.
type sent struct {
	MessageID      string   `json:"message_id"`
	MessageIDs     []string `json:"message_ids"`
	ConversationID string   `json:"conversation_id"`
	Recipient      *struct {
		Online   bool   `json:"online"`
		LastSeen string `json:"last_seen"`
		Pending  int    `json:"pending"`
	} `json:"recipient"`
	Reply *record `json:"reply"`
}

// sendAnswer is what send_message says.
type sendAnswer struct {
	MessageID      string   `json:"message_id"`
	MessageIDs     []string `json:"message_ids,omitempty"`
	ConversationID string   `json:"conversation_id"`
	Recipient      string   `json:"recipient,omitempty"`
	PendingBefore  int      `json:"pending_before,omitempty"`
	NoReply        string   `json:"no_reply,omitempty"` // why, in a sentence
	Note           string   `json:"note,omitempty"`
	Reply          *message `json:"reply,omitempty"`
}

// sendMessage sends a message once, however often it has to ask the relay, and waits for
// the answer.
func (d *server) sendMessage(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a sendArguments
	if err := read(r, &a); err != nil {
		return nil, err
	}
	body, err := d.compose(ctx, &a)
	if err != nil {
		return nil, err
	}
	header := http.Header{"Idempotency-Key": {a.IdempotencyKey}}
	bridge(r.Params.Meta, header)
	s, unknown, err := d.post(ctx, body, header, a.Wait)
	switch {
	case err != nil && unknown:
		return nil, unsure(err, a.IdempotencyKey)
	case err != nil:
		return nil, err
	}
	answer := &sendAnswer{MessageID: s.MessageID, MessageIDs: s.MessageIDs, ConversationID: s.ConversationID}
	if p := s.Recipient; p != nil {
		answer.Recipient, answer.PendingBefore = presence(p.Online, p.LastSeen), p.Pending
	}
	switch {
	case s.Reply != nil:
		m, err := s.Reply.shown(0, wholePayload)
		if err != nil {
			return nil, err
		}
		m.ConversationID, m.InReplyTo = "", ""
		answer.Note, answer.Reply = note, &m
	case a.Wait > 0:
		answer.Note, answer.NoReply = note, d.verdict(ctx, s.MessageID)
	}
	return answer, nil
}

// presence says whether a recipient listens.
func presence(online bool, lastSeen string) string {
	switch {
	case online:
		return "online"
	case lastSeen != "":
		return "away since " + lastSeen
	}
	return "never connected"
}

// compose checks the arguments, completes them, and makes the body of the request. The
// same arguments give the same bytes, so that a call that is repeated sends nothing twice.
func (d *server) compose(ctx context.Context, a *sendArguments) ([]byte, error) {
	a.Payload = bytes.TrimSpace(a.Payload)
	switch {
	case len(a.Payload) == 0:
		return nil, invalid("payload is missing; it is a JSON object")
	case a.Payload[0] != '{':
		return nil, invalid("payload must be a JSON object, as in {\"text\":\"hello\"}; it must not be in quotation marks")
	case a.To == "" && a.InReplyTo == "":
		return nil, invalid("to is missing: whom is the message for? (or in_reply_to, to answer a message)")
	case a.IdempotencyKey != "" && !isPlain(a.IdempotencyKey):
		return nil, invalid("idempotency_key must be printable ASCII")
	case a.TTL < 0:
		return nil, invalid("ttl_seconds must be above 0")
	}
	if err := whole("wait_reply_seconds", &a.Wait, 0, longestWait); err != nil {
		return nil, err
	}
	m := outgoing{To: a.To, ConversationID: a.ConversationID, MessageType: a.MessageType, InReplyTo: a.InReplyTo,
		TTL: a.TTL, SearchID: a.SearchID}
	if a.InReplyTo != "" {
		if err := d.addressReply(ctx, &m); err != nil {
			return nil, err
		}
	}
	if a.IdempotencyKey == "" {
		a.IdempotencyKey = rand.Text()
	}
	head, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	// As it came: json.Marshal would respell it.
	return append(append(append(head[:len(head)-1], `,"payload":`...), a.Payload...), '}'), nil
}

// addressReply sends an answer to the sender of the message that it answers, with the
// correlation_id of that message.
func (d *server) addressReply(ctx context.Context, m *outgoing) error {
	path, err := messagePath(m.InReplyTo)
	if err != nil {
		return err
	}
	own, err := d.address(ctx, d.timeout)
	if err != nil {
		return err
	}
	var question record
	if err := d.get(ctx, path, &question); err != nil {
		return err
	}
	if m.To == "" && question.From == string(own) {
		m.To = question.To // it follows up on its own message
	} else if m.To == "" {
		m.To = question.From
	}
	m.CorrelationID = question.CorrelationID
	return nil
}

// post sends the message, and asks with the same request again until the answer to it is
// there or the time is over: such a request sends nothing, but the relay holds it. unknown:
// the message may have been sent although there is an error.
func (d *server) post(
	ctx context.Context, body []byte, header http.Header, wait int,
) (s sent, unknown bool, err error) {
	end := time.Now().Add(time.Duration(wait) * time.Second)
	giveUp := end.Add(d.timeout)
	b := client.Backoff{Most: 2 * time.Second}
	for {
		left := max(0, int(time.Until(end).Round(time.Second)/time.Second))
		if wait > 0 {
			header.Set("Prefer", "wait="+strconv.Itoa(left))
		}
		var latest sent
		hold := time.Duration(left) * time.Second
		send := &request{"POST", "/api/v1/messages", body, header, hold}
		answer, err := d.try(ctx, client.Left(d.timeout, giveUp.Add(-hold)), send, &latest)
		if err == nil {
			s = latest
		}
		isSent, held := s.MessageID != "", answer.Get("Preference-Applied") != ""
		unknown = unknown || err != nil && !client.NothingDone(err)
		pause := b.Pause(err)
		switch {
		case ctx.Err() != nil:
			return s, unknown, ctx.Err()
		case isSent && (s.Reply != nil || held || left == 0 || d.timeout == 0):
			return s, false, nil
		case !isSent && (!client.Temporary(err) || d.timeout == 0 || time.Now().Add(pause).After(giveUp)):
			return s, unknown, err
		}
		select { // the relay did not answer, or could not hold the request
		case <-time.After(pause):
		case <-ctx.Done():
			return s, unknown, ctx.Err()
		}
	}
}

// unsure adds to the error of a send that the message may have been sent anyway.
func unsure(err error, key string) error {
	f := *faultOf(err)
	f.IdempotencyKey = key
	f.WhatToDo = "Whether the message was sent is not known. Call again with the same arguments and this " +
		"idempotency_key: that sends it now, or finds that it was sent."
	return &f
}

// bridge hands the trace of a call on to the message (W3C Trace Context; the field names in _meta follow the
// protocol's convention).
func bridge(meta mcp.Meta, header http.Header) {
	for field, name := range map[string]string{"traceparent": "Traceparent", "tracestate": "Tracestate"} {
		if value, ok := meta[field].(string); ok && isPlain(value) {
			header.Set(name, value)
		}
	}
}

// isPlain reports whether a text can be the value of such a header.
func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= 512
}

// verdict says why there is no answer to a message.
func (d *server) verdict(ctx context.Context, id string) string {
	var t trace
	if path, err := messagePath(id); err != nil || d.get(ctx, path+"/trace", &t) != nil {
		return "There is no answer yet. message_status says why."
	}
	return t.Verdict.Text
}
