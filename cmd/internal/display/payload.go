package display

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"relay/db/relay"
)

// Payload returns a payload for people to read, in lines with a margin. If the payload
// has nothing but a text, that text stands alone.
func Payload(payload []byte) string {
	var b strings.Builder
	for line := range strings.SplitSeq(said(payload), "\n") {
		fmt.Fprintf(&b, "    %s\n", relay.Visible(line))
	}
	return b.String()
}

func said(payload []byte) string {
	var only map[string]json.RawMessage
	if json.Unmarshal(payload, &only) == nil && len(only) == 1 {
		var text string
		if json.Unmarshal(only["text"], &text) == nil && text != "" {
			return text
		}
	}
	var b bytes.Buffer
	if json.Indent(&b, payload, "", "  ") != nil {
		return string(payload)
	}
	return b.String()
}
