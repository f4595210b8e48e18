package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// ask makes a request of the API and reads the answer into out. If the relay does not
// answer or is overloaded, it asks again until the server's timeout passed, unless it is
// told to wait for longer than that. A request that writes must be one that may come
// twice.
func (d *server) ask(ctx context.Context, r *request, out any) (http.Header, error) {
	return d.askFor(ctx, d.timeout, r, out)
}

// request is one of the API. The relay may hold its answer for hold.
type request struct {
	method, path string
	body         []byte
	header       http.Header
	hold         time.Duration
}

// try makes a request once. It has left and client.AttemptSlack, so that a relay which takes requests
// and does not answer holds up no call; see client.Attempt. With a header, the relay has done it.
func (d *server) try(ctx context.Context, left time.Duration, r *request, out any) (http.Header, error) {
	ctx, cancel := client.Attempt(ctx, left, r.hold)
	defer cancel()
	resp, err := d.api.Do(ctx, r.method, r.path, r.body, r.header)
	if err == nil {
		err = resp.Err()
	}
	if err != nil {
		return nil, err
	}
	return resp.Header, json.Unmarshal(resp.Body, out)
}

// askFor is ask with a timeout of its own.
func (d *server) askFor(ctx context.Context, patience time.Duration, r *request, out any) (http.Header, error) {
	end, b := time.Now().Add(patience), client.Backoff{Most: 2 * time.Second}
	for {
		header, err := d.try(ctx, client.Left(patience, end), r, out)
		if header != nil {
			return header, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		pause := b.Pause(err)
		if !client.Temporary(err) || time.Now().Add(pause).After(end) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *server) get(ctx context.Context, path string, out any) error {
	_, err := d.ask(ctx, &request{method: "GET", path: path}, out)
	return err
}

// address is the Mecha's own. It is asked once.
func (d *server) address(ctx context.Context, patience time.Duration) (relay.Address, error) {
	if own := d.known(); own != "" {
		return own, nil
	}
	var who struct {
		MechaID relay.Address `json:"mecha_id"`
	}
	if _, err := d.askFor(ctx, patience, &request{method: "GET", path: "/api/v1/whoami"}, &who); err != nil {
		return "", err
	}
	d.mu.Lock()
	d.own = who.MechaID
	d.mu.Unlock()
	return who.MechaID, nil
}

// known is the Mecha's own address, "" if the relay has not said it yet.
func (d *server) known() relay.Address {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.own
}

// mailbox is the path of the Mecha's own.
func (d *server) mailbox(ctx context.Context) (string, error) {
	own, err := d.address(ctx, d.timeout)
	return "/api/v1/mecha/" + url.PathEscape(string(own)), err
}

// messagePath is the path of a message. An id that would be more than one step of it is
// none.
func messagePath(id string) (string, error) {
	notInIDs := func(c rune) bool {
		return c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	}
	switch {
	case id == "":
		return "", invalid("message_id is missing")
	case strings.ContainsFunc(id, notInIDs):
		return "", refused(&client.Refusal{Status: http.StatusNotFound, Code: relay.MessageNotFound,
			Detail: "this is not a message_id"})
	}
	return "/api/v1/messages/" + id, nil
}

// record is a message as the API has it.
type record struct {
	MessageID      string          `json:"message_id"`
	ConversationID string          `json:"conversation_id"`
	From           string          `json:"from"`
	To             string          `json:"to"`
	MessageType    string          `json:"message_type"`
	Priority       string          `json:"priority"`
	CorrelationID  string          `json:"correlation_id"`
	InReplyTo      string          `json:"in_reply_to"`
	State          string          `json:"state"`
	CreatedAt      string          `json:"created_at"`
	ExpiresAt      string          `json:"expires_at"`
	Signed         bool            `json:"signed"`
	Traceparent    string          `json:"traceparent"`
	Tracestate     string          `json:"tracestate"`
	Payload        json.RawMessage `json:"payload"`
	Ack            *struct {
		Status string `json:"status"`
		Detail string `json:"detail"`
	} `json:"ack"`
}

// message is a message in an answer. Fields that say nothing are left out.
type message struct {
	MessageID      string `json:"message_id"`
	From           string `json:"from"`
	To             string `json:"to,omitempty"`
	At             string `json:"at"`
	ConversationID string `json:"conversation_id,omitempty"`
	MessageType    string `json:"message_type,omitempty"`
	Priority       string `json:"priority,omitempty"`
	InReplyTo      string `json:"in_reply_to,omitempty"`
	ExpiresAt      string `json:"expires_at,omitempty"`
	State          string `json:"state,omitempty"`
	Ack            string `json:"ack,omitempty"`
	Detail         string `json:"detail,omitempty"`
	Signed         bool   `json:"signed"`
	payload
}

// shown is a record as an answer has it: to, state and ack are for the caller to add.
func (r *record) shown(from, limit int) (m message, err error) {
	m = message{MessageID: r.MessageID, From: r.From, At: r.CreatedAt, ConversationID: r.ConversationID,
		InReplyTo: r.InReplyTo, ExpiresAt: r.ExpiresAt, Signed: r.Signed}
	if r.MessageType != relay.DefaultType {
		m.MessageType = r.MessageType
	}
	if r.Priority != "normal" {
		m.Priority = r.Priority
	}
	m.payload, err = cut(r.Payload, from, limit)
	return m, err
}

// addState adds to a message who it is for and what became of it.
func (m *message) addState(r *record) {
	m.To, m.State = r.To, r.State
	if r.Ack != nil {
		m.Ack, m.Detail = r.Ack.Status, r.Ack.Detail
	}
}
