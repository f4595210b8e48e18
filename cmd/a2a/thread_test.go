package a2a

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const (
	door  = "gateway^acme"
	mecha = "planner^acme"
)

// story makes records of lines. "q" is a question of the gateway, "r" an answer to the newest
// message of the gateway, or to what follows as in "r>2"; a word after it is the type. "ack W"
// is a word about the newest message of the gateway. Each line is a second later.
func story(t *testing.T, lines string) (all []*record) {
	t.Helper()
	at := func(i int) string { return fmt.Sprintf("2026-11-23T08:00:%02d.000Z", i) }
	var question *record
	for i, line := range strings.Split(lines, ", ") {
		what, rest, _ := strings.Cut(line, " ")
		kind, to, named := strings.Cut(what, ">")
		r := &record{MessageID: fmt.Sprint("msg_", i), ConversationID: "conv_1", CreatedAt: at(i), State: "queued", MessageType: rest, Payload: json.RawMessage(fmt.Sprintf(`{"text":"%d"}`, i))}
		if named {
			r.InReplyTo = "msg_" + to
		}
		switch kind {
		case "q":
			r.From, r.To, question = door, mecha, r
			r.CorrelationID = "id-" + fmt.Sprint(i)
		case "r":
			r.From, r.To = mecha, door
			if !named {
				r.InReplyTo = question.MessageID
			}
		case "loose": // names nothing but the correlation_id
			r.From, r.To, r.CorrelationID = mecha, door, question.CorrelationID
		case "other":
			r.From, r.To, r.InReplyTo = "other^acme", door, question.MessageID
		case "ack":
			question.Ack = &struct {
				Status string `json:"status"`
				At     string `json:"at"`
				Detail string `json:"detail"`
			}{rest, at(i), "because " + rest}
			question.State, question.DeliveredAt = "acknowledged", at(i)
			if rest == "processing" || rest == "deferred" || rest == "received" {
				question.State = "delivered"
			} else {
				question.AcknowledgedAt = at(i)
			}
			continue
		case "expires":
			question.State, question.ExpiresAt = "expired", at(i)
			continue
		default:
			t.Fatal(line)
		}
		all = append(all, r)
	}
	return all
}

// A thread gives the state of the task, when it began, and which messages are artifacts.
func TestStatesFollowAcksAndAnswers(t *testing.T) {
	for lines, want := range map[string]string{
		"q":                                       "SUBMITTED 0 []",
		"q, ack received":                         "SUBMITTED 1 []",
		"q, ack processing":                       "WORKING 1 []",
		"q, ack deferred":                         "WORKING 1 []",
		"q, r":                                    "WORKING 0 [1]",
		"q, r, ack completed":                     "COMPLETED 2 [1]",
		"q, loose, ack completed":                 "COMPLETED 2 [1]",
		"q, other, ack completed":                 "COMPLETED 2 []",
		"q, ack completed":                        "COMPLETED 1 []",
		"q, ack completed, r":                     "COMPLETED 1 [2]",
		"q, r, r, ack completed":                  "COMPLETED 3 [1 2]",
		"q, ack done":                             "WORKING 1 []",
		"q, r, ack done":                          "COMPLETED 2 [1]",
		"q, ack failed":                           "FAILED 1 []",
		"q, r, ack failed":                        "FAILED 2 [1]",
		"q, ack rejected":                         "REJECTED 1 []",
		"q, ack canceled":                         "CANCELED 1 []",
		"q, expires":                              "FAILED 1 []",
		"q, ack input_required":                   "INPUT_REQUIRED 1 []",
		"q, ack auth_required":                    "AUTH_REQUIRED 1 []",
		"q, r input_required":                     "INPUT_REQUIRED 1 []",
		"q, r auth_required, ack completed":       "AUTH_REQUIRED 1 []",
		"q, r input_required, ack completed":      "INPUT_REQUIRED 1 []",
		"q, r input_required, ack failed":         "FAILED 2 []",
		"q, ack completed, r input_required":      "COMPLETED 1 [2]",
		"q, r input_required, r, ack completed":   "COMPLETED 3 [2]",
		"q, r input_required, ack completed, q>1": "SUBMITTED 3 []",
		"q, r input_required, ack completed, q>1, ack processing": "WORKING 4 []",
		"q, r input_required, q>1, r, ack completed":              "COMPLETED 4 [3]",
		"q, q>0, r, ack completed":                                "COMPLETED 3 [2]",
		"q, r, ack completed, q>1, r, ack failed":                 "COMPLETED 2 [1]", // said too late
		"q, q>0 cancel":                                              "CANCELED 1 []",
		"q, q>0 cancel, r, ack completed":                            "CANCELED 1 []",
		"q, r, q>0 cancel, r":                                        "CANCELED 2 [1]",
		"q, ack completed, q>0 cancel":                               "COMPLETED 1 []",
		"q, ack failed, q>0 cancel, ack canceled":                    "FAILED 1 []",
		"q, r input_required, ack completed, q>1 cancel, ack done":   "CANCELED 3 []",
		"q, r input_required, ack completed, q>1, r auth_required":   "AUTH_REQUIRED 4 []",
		"q, r input_required, ack input_required, q>1, ack rejected": "REJECTED 4 []",
	} {
		all := threads(story(t, lines), door, mecha)
		if len(all) != 1 {
			t.Errorf("%s: %d threads", lines, len(all))
			continue
		}
		m := all[0].meaning()
		var answers []string
		for _, r := range m.answers {
			answers = append(answers, strings.TrimPrefix(r.MessageID, "msg_"))
		}
		got := fmt.Sprintf("%s %s %v", strings.TrimPrefix(string(m.state), "TASK_STATE_"), strings.TrimPrefix(strings.TrimSuffix(m.at, ".000Z")[17:], "0"), answers)
		if got != want {
			t.Errorf("%s: %s, want %s", lines, got, want)
		}
	}
}

// Two tasks of one conversation do not mix, and messages of no task are left out.
func TestThreadsOfAConversation(t *testing.T) {
	records := story(t, "q, q, r>0, r>1, loose, r>2, q>99, q cancel")
	all := threads(records, door, mecha)
	got := ""
	for _, one := range all {
		for _, r := range one.records {
			got += " " + strings.TrimPrefix(r.MessageID, "msg_")
		}
		got += ";"
	}
	// loose has the correlation_id of the last question, which is not a task of its own.
	if got != " 0 2 5; 1 3 4;" {
		t.Error(got)
	}
	if v := all[0].task("away", nil); len(v.Artifacts) != 2 || v.Status.State != working || string(v.Status.Message.Parts[0]) != `{"text":"away"}` {
		t.Errorf("%s", marshal(v))
	}
}

// The Mecha's question is in the status and in the history, which the client may shorten.
func TestAQuestionOfTheMecha(t *testing.T) {
	one := threads(story(t, "q, r input_required, ack completed, q>1, r input_required"), door, mecha)[0]
	zero, most := 0, 1
	for history, want := range map[*int]int{nil: 2, &zero: 0, &most: 1} {
		v := one.task("", history)
		if len(v.History) != want || want > 0 && v.History[want-1].MessageID != "msg_4" || v.Status.Message.MessageID != "msg_4" || string(v.Status.Message.Parts[0]) != `{"text":"4"}` || len(v.Artifacts) != 0 {
			t.Errorf("%s", marshal(v))
		}
	}
}
