// Package display is how rings show messages to a person: their payload, the colour of their state,
// the time of what happened; a line that says what a command is doing; and whether anybody reads. It
// prints to the streams that it is given, by package show. It is a library of rings.
package display

import (
	"time"

	"relay/cmd/internal/show"
)

// At writes a time for people, to the millisecond, in UTC.
func At(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05.000Z")
}

// StateColour lets messages that wait or have failed stand out.
func StateColour(state, status string) show.Colour {
	switch {
	case status == "failed" || status == "rejected" || state == "overdue" || state == "conversation_full":
		return show.Red
	case state == "queued" || state == "accepted":
		return show.Yellow
	case state == "delivered" || state == "progress" || state == "pushed":
		return show.Blue
	case state == "acknowledged":
		return show.Green
	}
	return show.Grey
}
