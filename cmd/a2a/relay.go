package a2a

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// get asks the relay. While it is away or overloaded, it is asked again until the gateway's
// patience is over.
func (d *Gateway) get(ctx context.Context, path string, out any) error {
	return client.Retry(ctx, d.Timeout, func(ctx context.Context) error {
		return d.Client.Call(ctx, "GET", path, nil, out)
	})
}

// sendTimeout is the gateway's timeout as client.SendOptions have it.
func (d *Gateway) sendTimeout() time.Duration {
	if d.Timeout == 0 {
		return -1 // one attempt
	}
	return d.Timeout
}

// faultOf says what an error of the relay means for a client.
func faultOf(err error) *fault {
	var f *fault
	var refused *client.Refusal
	switch {
	case errors.As(err, &f):
		return f
	case !errors.As(err, &refused):
		return &fault{Code: codeInternal, Message: "the relay behind this gateway does not answer; try again later"}
	}
	reason := strings.ToUpper(string(refused.Code))
	switch refused.Code {
	case relay.PayloadTooLarge:
		return wrong("message", "is larger than the relay takes")
	case relay.InvalidRequest, relay.InvalidJSON:
		return wrong("message", "is not taken by the relay: %s", refused.Detail)
	case relay.IdempotencyKeyReused:
		return wrong("message.messageId", "was the id of another message")
	case relay.ConversationNotFound, relay.NotAParticipant:
		return wrong("message.contextId", "is not known")
	case relay.NotAccepted, relay.ConversationFull, relay.RecipientNotFound:
		return faultf(codeUnsupported, reason, "the relay refuses the message: %s", refused.Detail)
	}
	if refused.Status == http.StatusUnauthorized {
		return faultf(codeInternal, "DOOR_UNAUTHORIZED", "the relay does not accept the key of this gateway")
	}
	return faultf(codeInternal, reason, "the relay refuses for now: %s", refused.Error())
}

// isMessageID reports whether a text can be the id of a message, and so one step of a path.
func isMessageID(id string) bool {
	return strings.HasPrefix(id, "msg_") && len(id) <= 64 && !strings.ContainsFunc(id[4:], func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z')
	})
}

// load is a task as the relay has it now.
type load struct {
	*thread
	verdict string // why there is no answer yet
}

// A task is looked for in the first and in the last nearMessages of its context, beginning with its
// first message. In between, the traces show which message answers which, for maxTraced messages at
// most.
const (
	nearMessages = 5000
	maxTraced    = 100
)

// trace is the life of a message as the relay tells it.
type trace struct {
	Message record
	Verdict struct{ Text string }
	Steps   []struct {
		What      string
		MessageID string `json:"message_id"`
	}
}

// answer returns the id of the first answer to the message, or "".
func (t *trace) answer() string {
	for _, s := range t.Steps {
		if s.What == "answered" {
			return s.MessageID
		}
	}
	return ""
}

func (d *Gateway) trace(ctx context.Context, id string) (t *trace, err error) {
	t = &trace{}
	return t, d.get(ctx, "/api/v1/messages/"+id+"/trace", t)
}

// load reads a task that the gateway has given to mecha. The question is read before what came
// after it, so an answer that was sent before the last acknowledgement is never missed. The
// error is a *fault if there is no such task.
func (d *Gateway) load(ctx context.Context, mecha relay.Address, id string) (*load, error) {
	if !isMessageID(id) {
		return nil, noTask(id)
	}
	t, err := d.trace(ctx, id)
	if client.Refused(err, relay.MessageNotFound, relay.NotAParty) {
		return nil, noTask(id)
	}
	if err != nil {
		return nil, err
	}
	q := &t.Message
	if len(threads([]*record{q}, d.Own, mecha)) == 0 {
		return nil, noTask(id)
	}
	all, err := d.after(ctx, t, mecha)
	if err != nil && !client.Refused(err, relay.ConversationNotFound) {
		return nil, err
	}
	return &load{find(threads(append([]*record{q}, all...), d.Own, mecha), id), t.Verdict.Text}, nil
}

// after reads what came after a message in its conversation with mecha, in commit order, as far
// as Gateway.near and maxTraced allow.
func (d *Gateway) after(ctx context.Context, t *trace, mecha relay.Address) ([]*record, error) {
	path := "/api/v1/conversations/" + url.PathEscape(t.Message.ConversationID) + "/messages"
	query := func(name, value string) url.Values {
		return url.Values{"peer": {string(mecha)}, "include": {"payload"}, name: {value}}
	}
	all, more, err := d.records(ctx, path, query("since_message_id", t.Message.MessageID), d.near)
	if err != nil || !more {
		return all, err
	}
	last, _, err := d.records(ctx, path, query("order", "desc"), d.near)
	if err != nil {
		return nil, err
	}
	first, has := t.Message.MessageID, map[string]bool{}
	for _, r := range all {
		has[r.MessageID] = true
	}
	add := func(r *record) {
		if !has[r.MessageID] && r.MessageID > first {
			has[r.MessageID] = true
			all = append(all, r)
		}
	}
	for _, r := range last {
		add(r)
	}
	for range maxTraced {
		id := t.answer()
		if id == "" {
			break
		}
		if t, err = d.trace(ctx, id); err != nil {
			return nil, err
		}
		if !has[id] && t.Message.To == string(d.Own) {
			if err := d.get(ctx, "/api/v1/messages/"+id+"/payload", &t.Message.Payload); err != nil {
				return nil, err
			}
		}
		add(&t.Message)
	}
	// which is commit order
	slices.SortFunc(all, func(a, b *record) int { return strings.Compare(a.MessageID, b.MessageID) })
	return all, nil
}

// records reads the pages of a history, at most so many records. more: there are more.
func (d *Gateway) records(
	ctx context.Context, path string, q url.Values, limit int,
) (all []*record, more bool, err error) {
	cursor := "since_message_id"
	if q.Get("order") == "desc" {
		cursor = "before_message_id"
	}
	for len(all) < limit {
		q.Set("limit", strconv.Itoa(min(limit-len(all), 1000)))
		var p struct {
			Messages []*record
			More     bool   `json:"has_more"`
			Next     string `json:"next_cursor"`
		}
		if err := d.get(ctx, path+"?"+q.Encode(), &p); err != nil {
			return nil, false, err
		}
		all = append(all, p.Messages...)
		if !p.More {
			return all, false, nil
		}
		q.Set(cursor, p.Next)
	}
	return all, true, nil
}

// follow reads a task again and again, whenever something may have happened to it, and shows it to
// each. It ends when each returns false, with ctx, with the gateway, or with an error that time
// does not heal; while the relay is down, it continues. It calls idle after each wait, at least
// every Config.LookAgain, and ends when that returns false.
func (d *Gateway) follow(
	ctx context.Context, mecha relay.Address, id, conversation string, each func(*load) bool, idle func() bool,
) error {
	bell := d.bells.hang(id, conversation) // before the first look, so that nothing is missed
	defer bell.remove()
	for {
		now, err := d.load(ctx, mecha, id)
		switch {
		case err == nil:
			bell.tie(now.thread)
			if !each(now) {
				return nil
			}
		case errors.As(err, new(*fault)), !client.Temporary(err) && ctx.Err() == nil:
			return err
		}
		again := time.NewTimer(d.LookAgain)
		select {
		case <-bell.rung:
		case <-again.C:
		case <-ctx.Done():
		case <-d.life.Done():
		}
		again.Stop()
		if ctx.Err() != nil || d.life.Err() != nil || !idle() {
			return ctx.Err()
		}
	}
}
