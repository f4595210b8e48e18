package db

import (
	"errors"
	"slices"

	"relay/db/strict"
)

var ackFields = []string{"type", "message_id", "status", "client_ts", "detail"}

// Read takes the words of an acknowledgement from the JSON body of a request
// and validates them: InvalidJSON, or what Validate says.
func (a *Acknowledge) Read(body []byte) error {
	_, err := a.read(body, ackFields[2:])
	if err != nil {
		return err
	}
	return a.Validate()
}

// ReadFrame is Read for a WebSocket frame, which names its type and the message
// as well. a.ID is set if the frame has one and is JSON.
func (a *Acknowledge) ReadFrame(frame []byte) error {
	f, err := a.read(frame, ackFields)
	if ErrorCode(err) != InvalidJSON {
		a.ID = MessageID(f.id)
	}
	switch {
	case err != nil:
		return err
	case f.kind != "ack":
		return Errorf(InvalidFrame, `the relay takes frames of type "ack"; this one is %s`, quote(f.kind))
	case f.id == "":
		return FieldErrorf(InvalidFrame, "message_id", "is required")
	}
	return a.Validate()
}

type ackFrame struct{ kind, id string }

// read takes the fields in known; others are ignored.
func (a *Acknowledge) read(body []byte, known []string) (f ackFrame, err error) {
	var wrong error // reported at the end: the other fields are wanted all the same
	err = strict.ReadObject(body, known, func(name string, value []byte) error {
		var to *string
		switch name {
		case "type":
			to = &f.kind
		case "message_id":
			to = &f.id
		case "status":
			to = &a.Status
		case "client_ts":
			to = &a.ClientTS
		case "detail":
			to = &a.Detail
		}
		if to == nil || !slices.Contains(known, name) || strict.IsNull(value) {
			return nil
		}
		text, ok := strict.String(value)
		if !ok && wrong == nil {
			wrong = FieldErrorf(InvalidRequest, name, "must be a string")
		}
		*to = text
		return nil
	})
	var syntax *strict.SyntaxError
	if errors.As(err, &syntax) {
		err = Errorf(InvalidJSON, "%s", syntax.Error())
	}
	if err == nil {
		err = wrong
	}
	return f, err
}
