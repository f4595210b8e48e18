package relay

import (
	"unicode/utf8"

	"relay/db/strict"
)

// The types of the frames that a client sends (PROTOCOL §4, Frames).
const (
	FrameAck  = "ack"
	FrameSend = "send"
)

const maxRef = 64 // characters of a client's name for a frame

// Frame is a frame of a client (PROTOCOL §4, Frames).
type Frame struct {
	Type string
	Ref  string // the client's name for the frame, which the answer repeats; "" for none
	Ack  Acknowledge
	Send SendFrame
}

// SendFrame is a message in a frame, with the values that a request has in its headers.
// Omitted ones are "".
type SendFrame struct {
	Message        []byte // the message as JSON text, exactly as in the frame
	IdempotencyKey string
	Nonce          string
	Timestamp      string
	Signature      string
}

var frameFields = []string{"type", "message_id", "status", "client_ts", "detail", "retry_after_seconds",
	"ref", "message", "idempotency_key", "nonce", "timestamp", "signature"}

// Read reads a frame from its JSON text. f must be empty. Fields that the type of the
// frame does not have are ignored, and so are unknown fields. Ack is not yet validated,
// and Send.Message, which refers to bytes of text, not yet read. Errors: InvalidJSON,
// InvalidFrame, and InvalidRequest for a field that is not a string. After an error, Ref
// names the frame as far as that is known; after any but InvalidJSON, Ack.ID is set, too.
func (f *Frame) Read(text []byte) error {
	var wrong, wrongAck, wrongSend error // the first faulty fields; a fault of the JSON text comes before them
	err := strict.ReadEnvelope(text, frameFields, func(name string, value []byte) error {
		switch name {
		case "type":
			wrong = readText(name, value, &f.Type)
		case "ref":
			f.readRef(value)
		case "message_id":
			noteFault(&wrongAck, readText(name, value, &f.Ack.ID))
		default:
			noteFault(&wrongAck, f.Ack.readField(name, value))
			noteFault(&wrongSend, f.Send.readField(name, value))
		}
		return nil
	})
	switch {
	case err != nil:
		f.Ack.ID = ""
		return asInvalidJSON(err)
	case wrong != nil:
		return wrong
	case f.Type == FrameAck:
		return f.checkAck(wrongAck)
	case f.Type == FrameSend:
		return f.checkSend(wrongSend)
	}
	return Errorf(InvalidFrame, `the relay takes frames of the types "ack" and "send"; this one is %s`, Quote(f.Type))
}

// readRef leaves Ref empty if the value is not a reference.
func (f *Frame) readRef(value []byte) {
	if ref, ok := strict.String(value); ok && utf8.RuneCountInString(ref) <= maxRef {
		f.Ref = ref
	}
}

func (l *SendFrame) readField(name string, value []byte) error {
	switch name {
	case "message":
		if !strict.IsNull(value) {
			l.Message = value
		}
	case "idempotency_key":
		return readText(name, value, &l.IdempotencyKey)
	case "nonce":
		return readText(name, value, &l.Nonce)
	case "timestamp":
		return readText(name, value, &l.Timestamp)
	case "signature":
		return readText(name, value, &l.Signature)
	}
	return nil
}

func (f *Frame) checkAck(wrong error) error {
	if wrong == nil && f.Ack.ID == "" {
		wrong = FieldErrorf(InvalidFrame, "message_id", "is required")
	}
	return wrong
}

func (f *Frame) checkSend(wrong error) error {
	switch {
	case f.Ref == "":
		return FieldErrorf(InvalidFrame, "ref", "is required, with 1–64 characters: the answer repeats it")
	case wrong == nil && f.Send.Message == nil:
		return FieldErrorf(InvalidFrame, "message", "is required: the same object as in a POST")
	}
	return wrong
}

// noteFault keeps the first error.
func noteFault(first *error, err error) {
	if *first == nil {
		*first = err
	}
}
