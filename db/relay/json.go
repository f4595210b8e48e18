package relay

import (
	"errors"

	"relay/db/strict"
)

// ReadObject is strict.ReadObject for the bodies of requests: a fault in the JSON
// text is InvalidJSON (PROTOCOL §1). Errors from member are returned unchanged.
func ReadObject(body []byte, known []string, member func(name string, value []byte) error) error {
	return asInvalidJSON(strict.ReadObject(body, known, member))
}

func asInvalidJSON(err error) error {
	var syntax *strict.SyntaxError
	if errors.As(err, &syntax) {
		return Errorf(InvalidJSON, "%s", syntax.Error())
	}
	return err
}

// readText reads an optional member that is a string. null leaves *to unchanged.
// The error is InvalidRequest and names the field.
func readText[T ~string](name string, value []byte, to *T) error {
	if strict.IsNull(value) {
		return nil
	}
	text, ok := strict.String(value)
	if !ok {
		return FieldErrorf(InvalidRequest, name, "must be a string")
	}
	*to = T(text)
	return nil
}

// AppendString appends s to b as a JSON string, as strict.AppendString does.
func AppendString(b []byte, s string) []byte { return strict.AppendString(b, s) }
