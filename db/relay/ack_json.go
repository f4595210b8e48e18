package relay

import "time"

var ackFields = []string{"status", "client_ts", "detail", "retry_after_seconds"}

// Read reads Status, ClientTS, Detail and RetryAfter from the JSON body of a request and
// validates them (PROTOCOL §3, Ack). Errors: InvalidJSON, and those of Validate.
func (a *Acknowledge) Read(body []byte) error {
	var wrong error // the first faulty field; a fault of the JSON text comes before it
	err := ReadObject(body, ackFields, func(name string, value []byte) error {
		noteFault(&wrong, a.readField(name, value))
		return nil
	})
	if err == nil {
		err = wrong
	}
	if err != nil {
		return err
	}
	return a.Validate()
}

// readField reads a member of the body or the frame, and ignores unknown ones.
func (a *Acknowledge) readField(name string, value []byte) error {
	switch name {
	case "status":
		return readText(name, value, &a.Status)
	case "client_ts":
		return readText(name, value, &a.ClientTS)
	case "detail":
		return readText(name, value, &a.Detail)
	case "retry_after_seconds":
		var seconds int64
		err := readWhole(name, value, "seconds ", int64(maxDeferral/time.Second), &seconds)
		a.RetryAfter = time.Duration(seconds) * time.Second
		return err
	}
	return nil
}
