package http

import (
	"net/http"

	"relay/db/look"
	"relay/db/relay"
)

// trace answers GET /api/v1/messages/{messageId}/trace: the life of a message, and why there
// is no answer to it (PROTOCOL §3, Trace). A sender is told nothing of the recipient's keys
// and workers.
func (s *Server) trace(c *call) (answer, error) {
	if err := s.reserve(c, traceRoom); err != nil {
		return answer{}, err
	}
	t, looked, err := s.config.DB.Trace(c.Context(), c.key.Mecha, c.messageID())
	s.chargeRows(c.key, looked, countPerRequest)
	if err != nil {
		return answer{}, err
	}
	s.chargeRows(c.key, len(t.Steps)*rowsPerStep, rowsPerRequest)
	own := c.key.Mecha.Number == t.Message.Recipient
	situation := t.Situation
	if situation.Online = s.config.Live.Online(t.Message.Recipient); !own {
		situation.Worker = ""
	}
	b := AppendRecord(appendName(nil, '{', "message"), t.Message)
	b = append(appendName(b, ',', "steps"), '[')
	for i, step := range steps(t) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendStep(b, step, own || step.What == look.StepAccepted)
	}
	b = append(b, ']')
	v := relay.Decide(&situation)
	b = appendField(appendName(b, ',', "verdict"), '{', "code", string(v.Code))
	b = appendField(b, ',', "text", v.Text)
	b = appendTime(b, ',', "since", v.Since)
	return answer{status: http.StatusOK, body: append(b, "}}\n"...)}, nil
}

// A tracedStep is a step, or several pushes one after the other.
type tracedStep struct {
	look.Step
	sockets int
	answer  relay.MessageID
}

// stepAnswered is the step of the answer, which is a message of its own.
const stepAnswered look.StepKind = "answered"

func steps(t *look.Trace) (list []tracedStep) {
	answer := t.Situation.Answer
	for _, s := range t.Steps {
		if answer != nil && answer.CreatedAt.Before(s.At) {
			list = append(list, tracedStep{Step: look.Step{At: answer.CreatedAt, What: stepAnswered}, answer: answer.ID})
			answer = nil
		}
		if n := len(list); s.What == look.StepPushed && n > 0 && list[n-1].What == look.StepPushed {
			list[n-1].sockets++
			continue
		}
		step := tracedStep{Step: s}
		if s.What == look.StepPushed {
			step.sockets = 1
		}
		list = append(list, step)
	}
	if answer != nil {
		list = append(list, tracedStep{Step: look.Step{At: answer.CreatedAt, What: stepAnswered}, answer: answer.ID})
	}
	return list
}

// appendStep appends a step. withKey: the caller may know which key and which worker it was.
func appendStep(b []byte, s tracedStep, withKey bool) []byte {
	b = appendTime(b, '{', "at", s.At)
	b = appendField(b, ',', "what", string(s.What))
	for _, f := range []struct{ name, value string }{{"status", s.Status}, {"client_ts", s.ClientTS}, {"detail", s.Detail},
		{"message_id", string(s.answer)}} {
		if f.value != "" {
			b = appendField(b, ',', f.name, f.value)
		}
	}
	if s.sockets > 0 {
		b = appendInt(b, ',', "sockets", s.sockets)
	}
	if !s.Until.IsZero() {
		b = appendTime(b, ',', "until", s.Until)
	}
	if withKey && s.Key != "" && s.sockets <= 1 {
		b = appendField(b, ',', "key_id", string(s.Key))
	}
	if withKey && s.Worker != "" {
		b = appendField(b, ',', "worker", s.Worker)
	}
	return append(b, '}')
}
