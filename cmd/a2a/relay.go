package a2a

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"relay/db/relay"
	"relay/http/client"
)

// get asks the relay. While it is away or overloaded, it is asked again until the door's
// patience is over.
func (d *Door) get(ctx context.Context, path string, out any) error {
	end, b := time.Now().Add(d.Patience), client.Backoff{Most: 2 * time.Second}
	for {
		err := d.Client.Call(ctx, "GET", path, nil, out)
		if err == nil || ctx.Err() != nil || !client.Temporary(err) {
			return err
		}
		if pause := b.Pause(err); time.Now().Add(pause).After(end) || !sleep(ctx, pause) {
			return err
		}
	}
}

// faultOf says what an error of the relay means for a client.
func faultOf(err error) *fault {
	var f *fault
	var refused *client.Refusal
	switch {
	case errors.As(err, &f):
		return f
	case !errors.As(err, &refused):
		return &fault{Code: codeInternal, Message: "the relay behind this door does not answer; try again later"}
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
		return faultf(codeInternal, "DOOR_UNAUTHORIZED", "the relay does not accept the key of this door")
	}
	return faultf(codeInternal, reason, "the relay refuses for now: %s", refused.Error())
}

// isMessageID tells whether a text can be the id of a message, and so one step of a path.
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

// longestThread is how many messages after its first one a task is looked for in.
const longestThread = 10_000

// load reads a task that the door has given to mecha. The question is read before what came
// after it, so an answer that was sent before the last acknowledgement is never missed. The
// error is a *fault if there is no such task.
func (d *Door) load(ctx context.Context, mecha relay.Address, id string) (*load, error) {
	if !isMessageID(id) {
		return nil, noTask(id)
	}
	var t struct {
		Message record
		Verdict struct{ Text string }
	}
	err := d.get(ctx, "/api/v1/messages/"+id+"/trace", &t)
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
	rest, err := d.records(ctx, "/api/v1/conversations/"+url.PathEscape(q.ConversationID)+"/messages",
		url.Values{"since_message_id": {id}, "peer": {string(mecha)}, "include": {"payload"}}, longestThread)
	if err != nil && !client.Refused(err, relay.ConversationNotFound) {
		return nil, err
	}
	return &load{find(threads(append([]*record{q}, rest...), d.Own, mecha), id), t.Verdict.Text}, nil
}

// records reads the pages of a history, at most so many records.
func (d *Door) records(ctx context.Context, path string, q url.Values, most int) (all []*record, err error) {
	cursor := "since_message_id"
	if q.Get("order") == "desc" {
		cursor = "before_message_id"
	}
	for len(all) < most {
		q.Set("limit", strconv.Itoa(min(most-len(all), 1000)))
		var p struct {
			Messages []*record
			More     bool   `json:"has_more"`
			Next     string `json:"next_cursor"`
		}
		if err := d.get(ctx, path+"?"+q.Encode(), &p); err != nil {
			return nil, err
		}
		all = append(all, p.Messages...)
		if !p.More {
			break
		}
		q.Set(cursor, p.Next)
	}
	return all, nil
}

// lookAgain is how long a wait goes without a bell.
const lookAgain = 5 * time.Second

// follow reads a task again and again, whenever something may have happened to it, and shows
// it to each. It ends when each returns false, with ctx, with the door, or with an error
// that time does not heal; while the relay is away, it goes on. It calls idle after each
// wait, at least every lookAgain, and ends when that returns false.
func (d *Door) follow(ctx context.Context, mecha relay.Address, id, conversation string, each func(*load) bool, idle func() bool) error {
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
		again := time.NewTimer(lookAgain)
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
