package file

import (
	"errors"
	"time"

	"relay/db/relay"
	"relay/db/strict"
)

// CheckOptions says which file to check, and how. Path and Schema are required.
type CheckOptions struct {
	Path   string
	Schema string // the text of schema.sql
	// Quick leaves out what has to read every payload: its hash, its JSON, and
	// SQLite's comparison of indexes with their tables.
	Quick    bool
	Report   func(Finding) // is told of each check as it ends, in their order; may be nil
	Progress Progress      // may be nil
}

// A Finding is the outcome of one check.
type Finding struct {
	Check    string // a word to know it by
	Rule     string // what must be so
	Faults   int
	Examples []string // the first few, with ids
	Warning  bool     // what was found is odd, but harms nothing
	Skipped  string   // why the check does not apply; "" if it was made
}

// CheckResult sums up a check.
type CheckResult struct {
	Path     string // absolute
	Schema   int64
	Bytes    int64
	Messages int64
	Mechas   int64
	Checks   int
	Faults   int
	Warnings int
	Took     time.Duration
}

const maxExamplesShown = 5

// fault adds one to a finding.
func (f *Finding) fault(example string) {
	f.Faults++
	if len(f.Examples) < maxExamplesShown {
		f.Examples = append(f.Examples, example)
	}
}

// Settings of checks.
const (
	secretBytes  = 32
	maxWordBytes = relay.MaxLabel // bytes: versions have at most 32 characters, the rest is ASCII
	clockAhead   = relay.MaxClockSkew
)

// keyFault says what is wrong with the form of a stored key; "" if nothing is.
func keyFault(id string, hash []byte, secret string, label string) string {
	switch {
	case !relay.KeyID(id).WellFormed():
		return "its id is not of the form key_…"
	case len(hash) != 32:
		return "its hash has not 32 bytes"
	case secret != "" && !relay.Secret(secret).WellFormed():
		return "its signing secret is not of the form ms_…"
	case len(label) > relay.MaxKeyLabel:
		return "its label is too long"
	}
	return ""
}

// payloadFault says what is wrong with a payload by itself; "" if nothing is.
// It reads it as a send does, inside an object: there, a name may stand twice.
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
		return "its payload is no JSON object: " + syntax.Error()
	case err != nil || !object || members != 1:
		return "its payload is no JSON object"
	}
	return ""
}
