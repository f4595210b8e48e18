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
	// Quick leaves out the checks that read every payload: its hash, its JSON, and
	// SQLite's comparison of indexes with their tables.
	Quick    bool
	Report   func(Finding) // called with each check as it ends, in their order; may be nil
	Progress Progress      // may be nil
}

// A Finding is the outcome of one check.
type Finding struct {
	Check    string   // the name of the check, one word
	Rule     string   // the rule that the file must keep
	Faults   int      // how many places break the rule
	Examples []string // the first five of them, with ids
	Warning  bool     // faults of this check do no harm, and count as warnings
	Skipped  string   // why the check was not made; "" if it was
}

// CheckResult sums up all checks of a file.
type CheckResult struct {
	Path     string // absolute
	Schema   int64  // the file's schema version
	Bytes    int64  // of the file and its log
	Messages int64
	Mechas   int64
	Checks   int // how many were made
	Faults   int // of all checks that do not only warn
	Warnings int // of the checks that only warn
	Took     time.Duration
}

const maxExamplesShown = 5

// fault adds one fault to a finding.
func (f *Finding) fault(example string) {
	f.Faults++
	if len(f.Examples) < maxExamplesShown {
		f.Examples = append(f.Examples, example)
	}
}

// The limits that checks compare with.
const (
	secretBytes  = 32
	maxWordBytes = relay.MaxWordBytes
	clockAhead   = relay.MaxClockSkew
)

// keyFault says what is wrong with the form of a stored key; "" if it is sound.
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

// payloadFault says what is wrong with the JSON of a payload; "" if it is sound. Like
// a send, it reads the payload inside an object, where a name may come twice.
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
