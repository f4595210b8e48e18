package relay

import (
	"slices"
	"time"
)

var ackFields = []string{"type", "message_id", "status", "client_ts", "detail", "retry_after_seconds"}

// Read reads Status, ClientTS and Detail from the JSON body of a request and
// validates them (PROTOCOL §3, Ack). Errors: InvalidJSON, and those of Validate.
func (a *Acknowledge) Read(body []byte) error {
	if _, err := a.read(body, ackFields[2:]); err != nil {
		return err
	}
	return a.Validate()
}

// ReadFrame is Read for a WebSocket frame (PROTOCOL §4, Frames), which also has its
// type and the message's id. If the frame is valid JSON and has an id, ID is set
// even when ReadFrame returns an error. It can return InvalidFrame, too.
func (a *Acknowledge) ReadFrame(frame []byte) error {
	f, err := a.read(frame, ackFields)
	if ErrorCode(err) != InvalidJSON {
		a.ID = f.id
	}
	switch {
	case err != nil:
		return err
	case f.kind != "ack":
		return Errorf(InvalidFrame, `the relay takes frames of type "ack"; this one is %s`, Quote(f.kind))
	case f.id == "":
		return FieldErrorf(InvalidFrame, "message_id", "is required")
	}
	return a.Validate()
}

type ackFrame struct {
	kind string
	id   MessageID
}

// read reads the fields in known and ignores others.
func (a *Acknowledge) read(body []byte, known []string) (f ackFrame, err error) {
	var wrong error // the first faulty field; reported at the end, so that all other fields are read
	err = ReadObject(body, known, func(name string, value []byte) error {
		if !slices.Contains(known, name) {
			return nil
		}
		var err error
		switch name {
		case "type":
			err = readText(name, value, &f.kind)
		case "message_id":
			err = readText(name, value, &f.id)
		case "status":
			err = readText(name, value, &a.Status)
		case "client_ts":
			err = readText(name, value, &a.ClientTS)
		case "detail":
			err = readText(name, value, &a.Detail)
		case "retry_after_seconds":
			var seconds int64
			err = readWhole(name, value, "seconds ", int64(maxDeferral/time.Second), &seconds)
			a.RetryAfter = time.Duration(seconds) * time.Second
		}
		if wrong == nil {
			wrong = err
		}
		return nil
	})
	if err == nil {
		err = wrong
	}
	return f, err
}
