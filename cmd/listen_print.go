package cmd

import (
	"context"
	"fmt"

	"relay/db/relay"
)

// print waits until stdout takes the message, but no longer than until the second
// signal.
func (l *listener) print(e *envelope) error {
	out, text, err := l.stdout, []byte(nil), error(nil)
	if onScreen(out) && !l.json {
		out, text = under(out), l.spoken(e)
	} else if text, err = e.line(); err != nil {
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

// spoken returns a message for people to read: its time, sender, type, conversation
// and id on a line, and its payload below.
func (l *listener) spoken(e *envelope) []byte {
	at := relay.Visible(e.CreatedAt)
	if t, err := relay.ParseTime(e.CreatedAt); err == nil {
		at = atTime(t)
	}
	what := e.MessageType
	if e.Priority != "" && e.Priority != relay.DefaultPriority {
		what += ", " + e.Priority
	}
	text := fmt.Sprintf("%s  %s  %s  %s  %s\n%s", at, relay.Visible(e.From), relay.Visible(what), relay.Visible(e.ConversationID),
		paint{grey, e.MessageID}.on(l.colourful()), spoken(e.payload()))
	return []byte(text)
}
