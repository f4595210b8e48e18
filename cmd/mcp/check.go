package mcp

import (
	"bytes"

	"relay/db/relay"
)

// maxDeep is how deep the JSON of a request over HTTP may nest: a payload, and what is
// around it.
const maxDeep = 64 + 4

// Check refuses what the tools' library would spend much on: several requests in one,
// and deep nesting.
func Check(body []byte) error {
	if text := bytes.TrimLeft(body, " \t\r\n"); len(text) == 0 || text[0] != '{' {
		return relay.Errorf(relay.InvalidJSON, "the body must be one JSON-RPC message; several in one body are not taken")
	}
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDeep {
				return relay.Errorf(relay.InvalidJSON, "the body is nested deeper than %d", maxDeep)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}
