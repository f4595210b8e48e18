package client

import (
	"errors"
	"fmt"
	"io"
	"time"

	"relay/db/relay"
)

// Event is what happens to a listener, for logs. Which fields it has depends on What.
type Event struct {
	What    EventKind
	Message *Message
	Address relay.Address // of the Mecha; "" if it is not known yet
	Polling bool          // no WebSocket can be had, and the listener asks again and again
	Worker  string        // the name under which messages are claimed
	Status  string        // that could not be acknowledged
	Err     error
	Pause   time.Duration // until the next attempt
}

// EventKind says what an Event is.
type EventKind int

// The kinds of events.
const (
	// Connected: a connection is open; with Worker, claiming begins; with Polling, asking.
	Connected EventKind = iota + 1
	// Waiting: the relay cannot be reached, or refuses for now (Err). The next attempt is
	// after Pause.
	Waiting
	// HandlerFailed: the handler of Message has failed, and the sender is told what Err says.
	HandlerFailed
	// AckLate: Message is not acknowledged after three seconds, because of Err; the listener
	// tries on.
	AckLate
	// ReplyLate: the answer to Message is not sent after three seconds, because of Err; the
	// listener tries on.
	ReplyLate
	// GivenUp: the lease of Message is lost, and the context of its handler has ended with Err.
	GivenUp
	// NotAcknowledged: Message could not be acknowledged as Status, because of Err.
	NotAcknowledged
	// LeftPending: while the listener ends, a message stays pending; Err says which and why.
	// Message is set if its handler has not returned.
	LeftPending
)

// String returns one line for people.
func (e Event) String() string {
	switch e.What {
	case Connected:
		if e.Worker != "" {
			return fmt.Sprintf("listening as %s, claiming as the worker %s", e.Address, e.Worker)
		}
		if e.Polling {
			return fmt.Sprintf("listening as %s, without a WebSocket: something on the way does not let one through", e.Address)
		}
		return fmt.Sprintf("listening as %s", e.Address)
	case Waiting:
		err := e.Err
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("the connection is lost")
		}
		return fmt.Sprintf("%v; trying again in %v", err, e.Pause.Round(10*time.Millisecond))
	case HandlerFailed:
		return fmt.Sprintf("%s failed: %v", e.Message.ID, e.Err)
	case AckLate:
		return fmt.Sprintf("%s is not acknowledged yet: %v; trying on", e.Message.ID, e.Err)
	case ReplyLate:
		return fmt.Sprintf("the answer to %s is not sent yet: %v; trying on", e.Message.ID, e.Err)
	case GivenUp:
		return fmt.Sprintf("%s is given up: %v", e.Message.ID, e.Err)
	case NotAcknowledged:
		return fmt.Sprintf("%s is not acknowledged as %s: %v", e.Message.ID, e.Status, e.Err)
	}
	return fmt.Sprint(e.Err)
}
