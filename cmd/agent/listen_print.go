package agent

import (
	"context"
	"fmt"

	"relay/cmd/internal/display"
	"relay/cmd/internal/show"
	"relay/db/relay"
	"relay/http/client"
)

// print waits until stdout has taken the message, or until the second signal.
func (l *listener) print(m *client.Message) error {
	out, text, err := l.Stdout, []byte(nil), error(nil)
	if show.OnScreen(out) && !l.JSON {
		out, text = show.Under(out), l.spoken(m)
	} else if text, err = line(m); err != nil {
		return err
	}
	printed := make(chan error, 1)
	go func() {
		_, err := out.Write(text)
		printed <- err
	}()
	select {
	case err := <-printed:
		return err
	case <-l.alive.Done():
		return context.Cause(l.alive)
	}
}

// spoken returns a message for a terminal: its time, sender, type, conversation and id on a line, and its
// payload below.
func (l *listener) spoken(m *client.Message) []byte {
	what := m.Type
	if m.Priority != "" && m.Priority != relay.DefaultPriority {
		what += ", " + m.Priority
	}
	text := fmt.Sprintf("%s  %s  %s  %s  %s\n%s", display.At(m.SentAt), relay.Visible(m.Sender), relay.Visible(what),
		relay.Visible(m.ConversationID), show.Grey.Paint(m.ID).On(l.Stdout), display.Payload(m.Payload))
	return []byte(text)
}
