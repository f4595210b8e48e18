package a2a

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"relay/db/relay"
)

// A stream is an answer of Server-Sent Events (§9.4.2): first the task, then what changes.

const (
	writeTime = 10 * time.Second // that one event may take
	pingTime  = 15 * time.Second // between signs of life
)

// stream writes the events of one task.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	id      json.RawMessage // of the request
	last    time.Time       // of the last write
	shown   map[string]bool // the artifacts
	status  string          // that was told last
	gone    bool            // the client does not read any more
}

func newStream(w http.ResponseWriter, id json.RawMessage) *stream {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy would collect the events
	return &stream{w: w, control: http.NewResponseController(w), id: id, shown: map[string]bool{}}
}

func (s *stream) write(text string) bool {
	s.last = time.Now()
	_ = s.control.SetWriteDeadline(s.last.Add(writeTime)) // every server's connection has one
	_, err := s.w.Write([]byte(text))
	if err == nil {
		err = s.control.Flush()
	}
	s.gone = s.gone || err != nil
	return !s.gone
}

func (s *stream) event(result any, f *fault) bool {
	return s.write("data: " + string(answer(s.id, result, f)) + "\n\n")
}

// show writes what is new in the task. It is false if the client has gone.
func (s *stream) show(t *task) bool {
	now := string(t.Status.State)
	if t.Status.Message != nil {
		now += " " + t.Status.Message.MessageID
	}
	first := s.status == ""
	changed := now != s.status
	s.status = now
	for _, a := range t.Artifacts {
		if !first && !s.shown[a.ArtifactID] {
			s.event(update{Artifact: &artifactUpdate{t.ID, t.ContextID, a, true}}, nil)
		}
		s.shown[a.ArtifactID] = true
	}
	switch {
	case first:
		s.event(update{Task: t}, nil)
	case changed:
		s.event(update{Status: &statusUpdate{t.ID, t.ContextID, t.Status}}, nil)
	}
	return !s.gone
}

// idle writes a comment if nothing else was written for a while.
func (s *stream) idle() bool {
	return time.Since(s.last) < pingTime || s.write(": the task continues\n\n")
}

// follow streams a task until it has ended; with turn, also until it waits for the client.
func (s *stream) follow(ctx context.Context, d *Gateway, mecha relay.Address, a *asked, turn bool) {
	err := d.follow(ctx, mecha, a.id, a.conversation, func(t *load) bool {
		v := t.task(t.verdict, a.history)
		return s.show(v) && !v.Status.State.ended() && !(turn && v.Status.State.interrupted())
	}, s.idle)
	if err != nil && ctx.Err() == nil {
		s.event(nil, faultOf(err))
	}
}

// sendStreaming answers SendStreamingMessage (§3.1.2). An error comes before the stream has
// begun.
func (d *Gateway) sendStreaming(w http.ResponseWriter, r *http.Request, c call, mecha relay.Address) error {
	a, err := d.send(r.Context(), mecha, c.params)
	if err != nil {
		return err
	}
	newStream(w, c.id).follow(r.Context(), d, mecha, a, true)
	return nil
}

// subscribe answers SubscribeToTask (§3.1.6).
func (d *Gateway) subscribe(w http.ResponseWriter, r *http.Request, c call, mecha relay.Address) error {
	o := readObject("", c.params, "id")
	id := o.text("id", longestID, true)
	if o.fault != nil {
		return o.fault
	}
	t, err := d.load(r.Context(), mecha, id)
	if err != nil {
		return err
	}
	if m := t.meaning(); m.state.ended() {
		return faultf(codeUnsupported, "TASK_ENDED", "the task has ended as %s: GetTask has what came of it", m.state)
	}
	newStream(w, c.id).follow(r.Context(), d, mecha, &asked{id: id, conversation: t.conversation}, false)
	return nil
}
