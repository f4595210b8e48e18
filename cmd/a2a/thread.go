package a2a

import (
	"encoding/json"
	"slices"
	"strings"

	"relay/db/relay"
)

// A task is a thread of messages in one conversation, between the gateway's Mecha and another one:
// the question, whose id is the task's, and what names it or its successors by in_reply_to. This
// file says what a thread means as a task; it knows nothing but records.

// record is a message as the API has it (PROTOCOL §3, Get Message).
type record struct {
	MessageID      string `json:"message_id"`
	ConversationID string `json:"conversation_id"`
	From           string `json:"from"`
	To             string `json:"to"`
	MessageType    string `json:"message_type"`
	CorrelationID  string `json:"correlation_id"`
	InReplyTo      string `json:"in_reply_to"`
	State          string `json:"state"`
	CreatedAt      string `json:"created_at"`
	DeliveredAt    string `json:"delivered_at"`
	AcknowledgedAt string `json:"acknowledged_at"`
	ExpiresAt      string `json:"expires_at"`
	PayloadSHA256  string `json:"payload_sha256"`
	Ack            *struct {
		Status string `json:"status"`
		At     string `json:"at"`
		Detail string `json:"detail"`
	} `json:"ack"`
	Payload json.RawMessage `json:"payload"` // nil: it was not read
}

// word is the recipient's latest acknowledgement, or "".
func (r *record) word() string {
	if r.Ack == nil {
		return ""
	}
	return r.Ack.Status
}

func (r *record) detail() string {
	if r.Ack == nil {
		return ""
	}
	return r.Ack.Detail
}

// The message types by which a Mecha and the gateway say more than an answer says.
const (
	typeInput  = "input_required" // the Mecha wants to know more
	typeAuth   = "auth_required"  // the Mecha wants to be authorised
	typeCancel = "cancel"         // the client wants no answer any more
)

// thread is the messages of a task, in the order in which the relay has committed them.
type thread struct {
	id, conversation string
	records          []*record
}

// threads sorts records, in commit order, into the tasks that own has given to mecha. A
// message whose question is not among the records is left out.
func threads(records []*record, own, mecha relay.Address) (all []*thread) {
	of := map[string]*thread{} // by the message id of each record
	for _, r := range records {
		asks, answers := r.From == string(own) && r.To == string(mecha), r.From == string(mecha) && r.To == string(own)
		t := of[r.InReplyTo]
		switch {
		case asks && r.InReplyTo == "" && r.MessageType != typeCancel:
			t = &thread{id: r.MessageID, conversation: r.ConversationID}
			all = append(all, t)
		case !asks && !answers:
			continue
		case answers && r.InReplyTo == "" && r.CorrelationID != "":
			t = latest(all, r)
		}
		if t == nil {
			continue
		}
		t.records = append(t.records, r)
		of[r.MessageID] = t
	}
	return all
}

// latest returns the newest thread that a message means which names no other one: by the
// rule of the relay, the conversation and the correlation_id must be the same.
func latest(all []*thread, answer *record) *thread {
	for _, t := range slices.Backward(all) {
		for _, r := range t.records {
			if r.ConversationID == answer.ConversationID && r.CorrelationID == answer.CorrelationID && r.From == answer.To {
				return t
			}
		}
	}
	return nil
}

// meaning is what a thread says of its task.
type meaning struct {
	state   state
	at      string    // when it came to be in this state
	text    string    // why; may be empty
	asks    *record   // the Mecha's question, of which the task waits for the answer; may be nil
	answers []*record // the artifacts
	history []*record // what the Mecha has asked
	newest  *record   // what the next message of the client answers
}

// meaning reads the thread from its beginning. A task that has ended stays as it is, whatever comes
// later, but for answers to it, which are always shown.
func (t *thread) meaning() *meaning {
	m := &meaning{newest: t.records[0]}
	question, answered := t.records[0], false // the client's newest message
	for _, r := range t.records[1:] {
		if r.From == question.From {
			m.outcome(question, answered)
			switch {
			case m.state.ended() && m.at <= r.CreatedAt: // the client has said this too late
				return m
			case r.MessageType == typeCancel:
				m.state, m.at, m.text, m.asks = canceled, r.CreatedAt, "the client has canceled the task", nil
				return m
			}
			question, answered, m.newest, m.asks = r, false, r, nil
			continue
		}
		m.newest = r
		if (r.MessageType == typeInput || r.MessageType == typeAuth) &&
			!(final(question) && r.CreatedAt > question.AcknowledgedAt) {
			m.asks = r
			m.history = append(m.history, r)
			continue
		}
		answered, m.asks = true, nil
		m.answers = append(m.answers, r)
	}
	m.outcome(question, answered)
	return m
}

// final reports whether the Mecha has said its last word about a message.
func final(r *record) bool {
	return slices.Contains([]string{"completed", "failed", "rejected", "canceled"}, r.word())
}

// outcome says what the client's newest message has come to. answered tells that the Mecha has sent
// an answer after it. Times are the relay's, which have one form, so they are compared as text.
func (m *meaning) outcome(question *record, answered bool) {
	m.text = question.detail()
	m.at = question.CreatedAt
	if question.Ack != nil {
		m.at = question.Ack.At
	} else if question.DeliveredAt != "" {
		m.at = question.DeliveredAt
	}
	word := question.word()
	switch {
	case question.State == relay.Expired.String():
		m.state, m.at, m.text = failed, question.ExpiresAt, "the message expired before it was acknowledged"
	case word == "failed":
		m.state = failed
	case word == "rejected":
		m.state = rejected
	case word == "canceled":
		m.state = canceled
	case m.asks != nil && m.asks.MessageType == typeAuth:
		m.state, m.at = authRequired, m.asks.CreatedAt
	case m.asks != nil:
		m.state, m.at = inputRequired, m.asks.CreatedAt
	case word == typeInput:
		m.state = inputRequired
	case word == typeAuth:
		m.state = authRequired
	case word == "completed", answered && question.State == relay.Acknowledged.String():
		m.state = completed
	case answered, word == relay.Processing, word == relay.Deferred, question.State == relay.Acknowledged.String():
		m.state = working
	default:
		m.state = submitted
	}
}

// find returns the thread of a task among others; or nil.
func find(all []*thread, id string) *thread {
	i := slices.IndexFunc(all, func(t *thread) bool { return t.id == id })
	if i < 0 {
		return nil
	}
	return all[i]
}

// task makes the object of the protocol. verdict is the relay's, why there is no answer yet;
// it may be empty. The payloads of the answers, and of the Mecha's question, must have been
// read. history is how many messages it has at most; nil: all.
func (t *thread) task(verdict string, history *int) *task {
	m := t.meaning()
	v := &task{ID: t.id, ContextID: t.conversation, Status: status{State: m.state, Timestamp: m.at},
		Artifacts: []artifact{}}
	for _, r := range m.answers {
		v.Artifacts = append(v.Artifacts, artifact{r.MessageID, partsOf(r.Payload)})
	}
	if m.text == "" && !m.state.ended() {
		m.text = verdict
	}
	switch {
	case m.asks != nil:
		v.Status.Message = t.says(m.asks.MessageID, partsOf(m.asks.Payload))
	case m.text != "":
		v.Status.Message = t.says(t.id+"."+strings.ToLower(strings.TrimPrefix(string(m.state), "TASK_STATE_")),
			[]part{textPart(m.text)})
	}
	if history != nil {
		m.history = m.history[max(0, len(m.history)-*history):]
	}
	for _, r := range m.history {
		v.History = append(v.History, *t.says(r.MessageID, partsOf(r.Payload)))
	}
	return v
}

func (t *thread) says(id string, parts []part) *agentMessage {
	return &agentMessage{MessageID: id, ContextID: t.conversation, TaskID: t.id, Role: roleAgent, Parts: parts}
}
