package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"relay/db/relay"
	"relay/http/client"
)

// asked is a message of a client that is on the relay's disk, and how its task is wanted.
type asked struct {
	id, conversation string // of the task
	history          *int
	now              bool // do not wait for the end of the task
}

// send reads the parameters of SendMessage and SendStreamingMessage, and sends the message.
func (d *Gateway) send(ctx context.Context, mecha relay.Address, params json.RawMessage) (*asked, error) {
	o := readObject("", params, "message", "configuration")
	c := readObject("configuration", o.fields["configuration"], "historyLength", "returnImmediately",
		"taskPushNotificationConfig")
	a := &asked{history: c.whole("historyLength", 0, 1<<31-1), now: c.is("returnImmediately")}
	if _, given := c.fields["taskPushNotificationConfig"]; given {
		return nil, noPush()
	}
	if f := firstFault(o.fault, c.fault); f != nil {
		return nil, f
	}
	s, f := readSaid(o.fields["message"])
	if f != nil {
		return nil, f
	}
	payload, f := s.payload()
	if f != nil {
		return nil, f
	}
	m := client.SendOptions{ConversationID: s.context, CorrelationID: s.id, IdempotencyKey: key(mecha, s.id),
		Timeout: d.sendTimeout(), TTL: d.TTL}
	if s.task != "" {
		return a, d.resume(ctx, mecha, s, payload, m, a)
	}
	sent, err := d.Client.Send(ctx, string(mecha), payload, m)
	switch {
	case err == nil:
		a.id, a.conversation = sent.MessageID, sent.ConversationID
		return a, nil
	case !client.Refused(err, relay.IdempotencyKeyReused):
		return nil, unsent(err)
	}
	r, err := d.earlier(ctx, mecha, s, payload)
	if err != nil {
		return nil, err
	}
	a.id, a.conversation = r.MessageID, r.ConversationID
	return a, nil
}

// earlier finds the message that began a task by the same words of the client, but with other options of
// the gateway's own, as another --ttl, or before the client named the context that it got. It looks in
// the newest listedMessages with the Mecha. The error is a *fault if the task does not exist.
func (d *Gateway) earlier(ctx context.Context, mecha relay.Address, s *said, payload []byte) (*record, error) {
	q := url.Values{"peer": {string(mecha)}, "direction": {"out"}, "order": {"desc"}}
	if s.context != "" {
		q.Set("conversation_id", s.context)
	}
	newest, _, err := d.records(ctx, "/api/v1/mecha/"+url.PathEscape(string(d.Own))+"/messages", q, listedMessages)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(payload)
	for _, r := range newest {
		if r.InReplyTo == "" && r.CorrelationID == s.id && r.PayloadSHA256 == hex.EncodeToString(sum[:]) &&
			r.MessageType != typeCancel {
			return r, nil
		}
	}
	return nil, wrong("message.messageId", "was the id of another message")
}

// key is the Idempotency-Key of a client's message: sent again, it is the same task.
func key(mecha relay.Address, id string) string {
	sum := sha256.Sum256([]byte(string(mecha) + "\x00" + id))
	return "a2a-" + hex.EncodeToString(sum[:])
}

// unsent says what the error of a send means. If it is not known whether the message was
// sent, the client is told how to find out.
func unsent(err error) *fault {
	f := faultOf(err)
	var failed *client.SendError
	if errors.As(err, &failed) && failed.Unknown {
		f = faultf(codeInternal, "OUTCOME_UNKNOWN",
			"the relay behind this gateway did not answer, and may have the message: send it again with the same messageId")
	}
	return f
}

// goOn sends a message that belongs to a task which exists. It answers what the task has
// come to, so it differs from try to try; therefore the relay is asked whether it is there.
func (d *Gateway) resume(
	ctx context.Context, mecha relay.Address, s *said, payload []byte, m client.SendOptions, a *asked,
) error {
	t, err := d.load(ctx, mecha, s.task)
	if err != nil {
		return err
	}
	a.id, a.conversation = t.id, t.conversation
	if s.context != "" && s.context != t.conversation {
		return wrong("message.contextId", "is not that of the task")
	}
	if said, err := t.hasSaid(string(d.Own), s.id, payload); said {
		return err
	}
	now := t.meaning()
	if now.state.ended() {
		return faultf(codeUnsupported, "TASK_ENDED",
			"the task has ended; send a message without taskId, in its context, to begin another one")
	}
	m.ConversationID, m.InReplyTo = t.conversation, now.newest.MessageID
	_, err = d.Client.Send(ctx, string(mecha), payload, m)
	if client.Refused(err, relay.IdempotencyKeyReused) { // another try was faster
		if t, err := d.load(ctx, mecha, s.task); err == nil {
			if said, err := t.hasSaid(string(d.Own), s.id, payload); said {
				return err
			}
		}
	}
	if err != nil {
		return unsent(err)
	}
	return nil
}

// hasSaid reports whether the client's message with this id is in the thread. The error is a
// *fault if it had other content.
func (t *thread) hasSaid(own, id string, payload []byte) (bool, error) {
	sum := sha256.Sum256(payload)
	for _, r := range t.records {
		if r.From == own && r.CorrelationID == id && r.MessageType != typeCancel {
			if r.PayloadSHA256 != hex.EncodeToString(sum[:]) {
				return true, wrong("message.messageId", "was the id of another message")
			}
			return true, nil
		}
	}
	return false, nil
}

// sendMessage answers SendMessage (§3.1.1): with the task when it has ended, when it waits
// for the client, or when the gateway has waited long enough; without waiting if it must not wait.
func (d *Gateway) sendMessage(
	ctx context.Context, mecha relay.Address, params json.RawMessage, waits bool,
) (any, error) {
	a, err := d.send(ctx, mecha, params)
	if err != nil {
		return nil, err
	}
	a.now = a.now || !waits
	// The message is stored: from here on, an answer tells of it, even if the relay goes away.
	result := &task{ID: a.id, ContextID: a.conversation, Status: status{State: submitted}, Artifacts: []artifact{}}
	waiting, cancel := context.WithTimeout(ctx, d.Wait)
	defer cancel()
	err = d.follow(waiting, mecha, a.id, a.conversation, func(t *load) bool {
		result = t.task(t.verdict, a.history)
		return !a.now && !result.Status.State.ended() && !result.Status.State.interrupted()
	}, func() bool { return !a.now })
	if err != nil && ctx.Err() == nil && waiting.Err() == nil {
		return nil, err
	}
	return struct {
		Task *task `json:"task"`
	}{result}, nil
}

// getTask answers GetTask (§3.1.3).
func (d *Gateway) getTask(ctx context.Context, mecha relay.Address, params json.RawMessage) (any, error) {
	o := readObject("", params, "id", "historyLength")
	id, history := o.text("id", longestID, true), o.whole("historyLength", 0, 1<<31-1)
	if o.fault != nil {
		return nil, o.fault
	}
	t, err := d.load(ctx, mecha, id)
	if err != nil {
		return nil, err
	}
	return t.task(t.verdict, history), nil
}

// cancelTask answers CancelTask (§3.1.5). It tells the Mecha by a message, which the task
// names; what the Mecha makes of it, the client does not wait for.
func (d *Gateway) cancelTask(ctx context.Context, mecha relay.Address, params json.RawMessage) (any, error) {
	o := readObject("", params, "id")
	id := o.text("id", longestID, true)
	if o.fault != nil {
		return nil, o.fault
	}
	t, err := d.load(ctx, mecha, id)
	if err != nil {
		return nil, err
	}
	if m := t.meaning(); !m.state.ended() {
		_, err := d.Client.Send(ctx, string(mecha), marshal(map[string]string{"cancel": id}), client.SendOptions{
			Type: typeCancel, InReplyTo: id, ConversationID: t.conversation, CorrelationID: id,
			IdempotencyKey: "a2a-cancel-" + id, Timeout: d.sendTimeout(),
		})
		if client.Refused(err, relay.NotAccepted, relay.ConversationFull) {
			return nil, faultf(codeNotCancelable, "TASK_NOT_CANCELABLE", "the Mecha cannot be told: %s", faultOf(err).Message)
		}
		if err != nil {
			return nil, unsent(err)
		}
		if t, err = d.load(ctx, mecha, id); err != nil {
			return nil, err
		}
	}
	if m := t.meaning(); m.state != canceled {
		return nil, faultf(codeNotCancelable, "TASK_NOT_CANCELABLE", "the task has ended as %s", m.state)
	}
	return t.task(t.verdict, nil), nil
}

// The newest messages with a Mecha of which ListTasks makes its list.
const listedMessages = 5000

// listTasks answers ListTasks (§3.1.4).
func (d *Gateway) listTasks(ctx context.Context, mecha relay.Address, params json.RawMessage) (any, error) {
	o := readObject("", params, "contextId", "status", "pageSize", "pageToken", "historyLength", "statusTimestampAfter",
		"includeArtifacts")
	conversation, only, after := o.text("contextId", 128, false), state(o.text("status", 64, false)),
		o.text("statusTimestampAfter", 64, false)
	size, history, artifacts := o.whole("pageSize", 1, 100), o.whole("historyLength", 0, 1<<31-1), o.is("includeArtifacts")
	token := o.text("pageToken", 128, false)
	begin, ok := placeOf(token)
	if token != "" && !ok {
		o.failed("pageToken", "is none of this gateway")
	}
	if only != "" && only != "TASK_STATE_UNSPECIFIED" && !slices.Contains(states, only) {
		o.failed("status", "must be one of %v", states)
	}
	if after != "" {
		at, err := relay.ParseTime(after)
		if err != nil {
			o.failed("statusTimestampAfter", "must be a time, as in 2026-11-22T08:00:00Z")
		}
		after = relay.FormatTime(at)
	}
	if o.fault != nil {
		return nil, o.fault
	}
	q := url.Values{"peer": {string(mecha)}, "order": {"desc"}}
	if conversation != "" {
		q.Set("conversation_id", conversation)
	}
	newest, _, err := d.records(ctx, "/api/v1/mecha/"+url.PathEscape(string(d.Own))+"/messages", q, listedMessages)
	if err != nil {
		return nil, err
	}
	slices.Reverse(newest)
	type listed struct {
		*thread
		place string // in the list, which is in descending order: the time of its state, and its id
	}
	all := []listed{}
	for _, t := range threads(newest, d.Own, mecha) {
		m := t.meaning()
		if (only == "" || only == "TASK_STATE_UNSPECIFIED" || only == m.state) && m.at >= after {
			all = append(all, listed{t, m.at + " " + t.id})
		}
	}
	slices.SortFunc(all, func(a, b listed) int { return strings.Compare(b.place, a.place) })
	list := taskList{Tasks: []*task{}, PageSize: 50, TotalSize: len(all)}
	if size != nil {
		list.PageSize = *size
	}
	for i, t := range all {
		if token != "" && t.place >= begin {
			continue
		}
		if len(list.Tasks) == list.PageSize {
			list.NextPageToken = tokenOf(all[i-1].place)
			break
		}
		one, err := d.listed(ctx, t.thread, artifacts, history)
		if err != nil {
			return nil, err
		}
		list.Tasks = append(list.Tasks, one)
	}
	return list, nil
}

// tokenOf makes the pageToken of the page after a place in the list; placeOf reads it.
func tokenOf(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

func placeOf(token string) (place string, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	at, id, _ := strings.Cut(string(text), " ")
	_, noTime := relay.ParseTime(at)
	return string(text), err == nil && noTime == nil && isMessageID(id)
}

// listed makes a task of a list, and reads the payloads that it needs.
func (d *Gateway) listed(ctx context.Context, t *thread, artifacts bool, history *int) (*task, error) {
	m := t.meaning()
	needed := m.history
	if artifacts {
		needed = append(slices.Clone(needed), m.answers...)
	}
	for _, r := range needed {
		if err := d.get(ctx, "/api/v1/messages/"+r.MessageID+"/payload", &r.Payload); err != nil {
			return nil, err
		}
	}
	v := t.task("", history)
	if !artifacts {
		v.Artifacts = nil
	}
	return v, nil
}

func noPush() *fault {
	return faultf(codeNoPush, "PUSH_NOTIFICATION_NOT_SUPPORTED",
		"this gateway has no push notifications: ask with GetTask, or follow the task with SubscribeToTask")
}

func firstFault(all ...*fault) *fault {
	for _, f := range all {
		if f != nil {
			return f
		}
	}
	return nil
}
