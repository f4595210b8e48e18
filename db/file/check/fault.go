package check

import (
	"errors"

	"relay/db/relay"
	"relay/db/strict"
)

// The limits that checks compare with.
const (
	secretBytes  = 32
	maxWordBytes = relay.MaxWordBytes
	clockAhead   = relay.MaxClockSkew
)

// keyFault returns what is wrong with the form of a stored key, or "".
func keyFault(id string, hash []byte, secret string, label string) string {
	switch {
	case !relay.KeyID(id).WellFormed():
		return "its id is not of the form key_…"
	case len(hash) != 32:
		return "its hash is not 32 bytes long"
	case secret != "" && !relay.Secret(secret).WellFormed():
		return "its signing secret is not of the form ms_…"
	case len(label) > relay.MaxKeyLabel:
		return "its label is too long"
	}
	return ""
}

// payloadFault returns what is wrong with the JSON of a payload, or "". Like a send, it
// reads the payload inside an object, where a name may occur twice.
func payloadFault(body []byte) string {
	const before, after = `{"payload":`, `}`
	members, object := 0, false
	err := strict.ReadObject([]byte(before+string(body)+after), nil, func(_ string, value []byte) error {
		members, object = members+1, value[0] == '{'
		return nil
	})
	var syntax *strict.SyntaxError
	switch {
	case errors.As(err, &syntax):
		syntax.Offset = max(syntax.Offset-len(before), 0)
		return "its payload is not a JSON object: " + syntax.Error()
	case err != nil || !object || members != 1:
		return "its payload is not a JSON object"
	}
	return ""
}
