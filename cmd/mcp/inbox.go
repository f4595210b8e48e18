package mcp

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"relay/db/relay"
)

const (
	wholePayload   = 20_000 // characters of the payload of a message that is read alone
	longestPayload = 100_000
	preview        = 400
	longestPreview = 4000
	maxMessages    = 50
)

// page is a page of the history.
type page struct {
	Messages []record `json:"messages"`
	More     bool     `json:"has_more"`
}

// inbox is the count of pending messages.
type inbox struct {
	Pending int `json:"pending"`
}

// checkInbox lists pending messages. It only reads.
func (d *server) checkInbox(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a struct {
		Limit    int    `json:"limit"`
		From     string `json:"from"`
		After    string `json:"after"`
		Wait     int    `json:"wait_seconds"`
		MaxChars int    `json:"max_chars"`
	}
	err := firstError(read(r, &a), whole("limit", &a.Limit, 10, maxMessages),
		whole("wait_seconds", &a.Wait, 0, longestWait), whole("max_chars", &a.MaxChars, preview, longestPreview))
	if err != nil {
		return nil, err
	}
	if _, err := relay.ParseAddress(a.From); a.From != "" && err != nil {
		return nil, invalid("from is not an address; one is name^crew")
	}
	mailbox, err := d.mailbox(ctx)
	if err != nil {
		return nil, err
	}
	q := url.Values{"state": {"pending"}, "direction": {"in"}, "include": {"payload"}, "limit": {strconv.Itoa(a.Limit)}}
	for name, value := range map[string]string{"peer": a.From, "since_message_id": a.After} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if a.Wait > 0 {
		q.Set("wait", strconv.Itoa(a.Wait))
	}
	var p page
	news := &request{method: "GET", path: mailbox + "/messages?" + q.Encode(), hold: time.Duration(a.Wait) * time.Second}
	if _, err := d.ask(ctx, news, &p); err != nil {
		return nil, err
	}
	var in inbox
	if err := d.get(ctx, mailbox+"/inbox", &in); err != nil {
		return nil, err
	}
	answer := struct {
		Pending  int       `json:"pending"`
		Note     string    `json:"note,omitempty"`
		Messages []message `json:"messages"`
		More     bool      `json:"more,omitempty"`
	}{Pending: in.Pending, Messages: []message{}, More: p.More}
	for i := range p.Messages {
		m, err := p.Messages[i].shown(0, a.MaxChars)
		if err != nil {
			return nil, err
		}
		answer.Note, answer.Messages = note, append(answer.Messages, m)
	}
	return answer, nil
}

// readMessage reads one message. Only its recipient gets the payload.
func (d *server) readMessage(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a struct {
		MessageID string `json:"message_id"`
		MaxChars  int    `json:"max_chars"`
		FromChar  int    `json:"from_char"`
	}
	err := firstError(read(r, &a), whole("max_chars", &a.MaxChars, wholePayload, longestPayload))
	if err == nil && a.FromChar < 0 {
		err = invalid("from_char must not be negative")
	}
	if err != nil {
		return nil, err
	}
	path, err := messagePath(a.MessageID)
	if err != nil {
		return nil, err
	}
	own, err := d.address(ctx, d.timeout)
	if err != nil {
		return nil, err
	}
	var rec record
	if err := d.get(ctx, path, &rec); err != nil {
		return nil, err
	}
	if rec.To == string(own) {
		if err := d.get(ctx, path+"/payload", &rec.Payload); err != nil {
			return nil, err
		}
	}
	m, err := rec.shown(a.FromChar, a.MaxChars)
	if err != nil {
		return nil, err
	}
	m.addState(&rec)
	answer := traced{any: struct {
		Note string `json:"note"`
		message
	}{note, m}}
	for field, value := range map[string]string{"traceparent": rec.Traceparent, "tracestate": rec.Tracestate} {
		if value != "" {
			if answer.trace == nil {
				answer.trace = mcp.Meta{}
			}
			answer.trace[field] = value
		}
	}
	return answer, nil
}

// acked is what became of one acknowledgement.
type acked struct {
	MessageID string `json:"message_id"`
	State     string `json:"state,omitempty"`
	Status    string `json:"status,omitempty"`
	Duplicate bool   `json:"duplicate,omitempty"`
	Error     *fault `json:"error,omitempty"`
}

// ackMessage acknowledges messages one after the other. It fails if none could be
// acknowledged.
func (d *server) ackMessage(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a struct {
		MessageIDs []string `json:"message_ids"`
		Status     string   `json:"status"`
		Detail     string   `json:"detail"`
		RetryAfter int      `json:"retry_after_seconds"`
	}
	switch err := read(r, &a); {
	case err != nil:
		return nil, err
	case len(a.MessageIDs) == 0 || len(a.MessageIDs) > maxMessages:
		return nil, invalid("message_ids must have 1 to %d ids", maxMessages)
	case a.RetryAfter < 0:
		return nil, invalid("retry_after_seconds must be above 0")
	}
	ack := struct {
		Status     string `json:"status"`
		ClientTS   string `json:"client_ts"`
		Detail     string `json:"detail,omitempty"`
		RetryAfter int    `json:"retry_after_seconds,omitempty"`
	}{a.Status, relay.FormatTime(time.Now()), a.Detail, a.RetryAfter}
	if ack.Status == "" {
		ack.Status = "completed"
	}
	body, err := json.Marshal(ack)
	if err != nil {
		return nil, err
	}
	results, done := []acked{}, 0
	var first error
	for _, id := range a.MessageIDs {
		one := acked{MessageID: id}
		path, err := messagePath(id)
		if err == nil {
			_, err = d.ask(ctx, &request{method: "POST", path: path + "/ack", body: body}, &one)
		}
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			one.Error = faultOf(err)
			if first == nil {
				first = err
			}
		default:
			done++
		}
		results = append(results, one)
	}
	if done == 0 && len(results) == 1 {
		return nil, first
	}
	answer := struct {
		Results []acked `json:"results"`
	}{results}
	if done == 0 {
		return nil, &faults{answer}
	}
	return answer, nil
}

// readConversation reads the latest messages of a conversation.
func (d *server) readConversation(ctx context.Context, r *mcp.CallToolRequest) (any, error) {
	var a struct {
		ConversationID string `json:"conversation_id"`
		Limit          int    `json:"limit"`
		Before         string `json:"before"`
		MaxChars       int    `json:"max_chars"`
	}
	err := firstError(read(r, &a), whole("limit", &a.Limit, 10, maxMessages),
		whole("max_chars", &a.MaxChars, 1000, longestPreview))
	if err == nil && a.ConversationID == "" {
		err = invalid("conversation_id is missing")
	}
	if err != nil {
		return nil, err
	}
	q := url.Values{"order": {"desc"}, "include": {"payload"}, "limit": {strconv.Itoa(a.Limit)}}
	if a.Before != "" {
		q.Set("before_message_id", a.Before)
	}
	var p page
	if err := d.get(ctx, "/api/v1/conversations/"+url.PathEscape(a.ConversationID)+"/messages?"+q.Encode(),
		&p); err != nil {
		return nil, err
	}
	answer := struct {
		Note     string    `json:"note"`
		Earlier  bool      `json:"earlier,omitempty"` // there are more, before these
		Messages []message `json:"messages"`
	}{note, p.More, []message{}}
	for i := len(p.Messages) - 1; i >= 0; i-- {
		m, err := p.Messages[i].shown(0, a.MaxChars)
		if err != nil {
			return nil, err
		}
		m.addState(&p.Messages[i])
		m.ConversationID = ""
		answer.Messages = append(answer.Messages, m)
	}
	return answer, nil
}

// faults is the error of a call that did several things, none with success.
type faults struct{ answer any }

func (f *faults) Error() string { return "nothing was done" }

// firstError returns the first error of a list.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
