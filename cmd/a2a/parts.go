package a2a

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"

	"relay/db/strict"
)

// A client's message travels as the payload of a message, and back. The Mecha need not know A2A: a
// text is {"text": …}, and an object is the payload itself. What fits neither is an envelope that
// keeps the parts as they are.

// said is the message of a client.
type said struct {
	id, context, task string
	parts             []json.RawMessage
	metadata          json.RawMessage // nil: none
	references        []json.RawMessage
}

const (
	maxParts      = 1000
	maxReferences = 100
)

// readSaid reads a message (§4.1.4).
func readSaid(text json.RawMessage) (*said, *fault) {
	if len(text) == 0 || strict.IsNull(text) {
		return nil, wrong("message", "is required")
	}
	o := readObject("message", text, "messageId", "contextId", "taskId", "role", "parts", "metadata", "extensions",
		"referenceTaskIds")
	s := &said{id: o.text("messageId", longestID, true), context: o.text("contextId", 128, false),
		task: o.text("taskId", longestID, false)}
	if strings.ContainsFunc(s.id, unicode.IsControl) {
		o.failed("messageId", "must have no control characters")
	}
	if o.text("role", 64, true) != roleUser {
		o.failed("role", "must be %s", roleUser)
	}
	s.parts, s.references = o.list("parts", maxParts), o.list("referenceTaskIds", maxReferences)
	if len(s.parts) == 0 {
		o.failed("parts", "must have at least one part")
	}
	if m, given := o.fields["metadata"]; given {
		if !strict.IsObject(m) {
			o.failed("metadata", "must be an object")
		}
		s.metadata = m
	}
	for i, r := range s.references {
		if _, ok := strict.String(r); !ok {
			o.failed(fmt.Sprintf("referenceTaskIds[%d]", i), "must be a string")
		}
	}
	if o.fault != nil {
		return nil, o.fault
	}
	return s, nil
}

// content is what a part has.
type content struct {
	text  *string
	data  json.RawMessage // nil: it has none
	plain bool            // it has nothing else
}

// readPart reads a part (§4.1.6): it has exactly one of text, raw, url and data. Only what
// decides how it travels is checked.
func readPart(name string, raw json.RawMessage) (c content, f *fault) {
	if !strict.IsObject(raw) {
		return c, wrong(name, "must be an object")
	}
	// null is a value that data may have, so these fields are looked at as they stand.
	m, err := members(raw, "text", "raw", "url", "data", "metadata", "filename", "mediaType")
	if err != nil {
		return c, wrong(name, "is not valid: %v", err)
	}
	contents := 0
	for _, kind := range []string{"text", "raw", "url", "data"} {
		value, given := m[kind]
		if !given || kind != "data" && strict.IsNull(value) {
			continue
		}
		contents++
		s, isText := strict.String(value)
		switch {
		case kind == "data":
			c.data = value
		case !isText:
			return c, wrong(name+"."+kind, "must be a string")
		case kind == "text":
			c.text = &s
		case kind == "raw" && !isBase64(s):
			return c, wrong(name+".raw", "must be Base64")
		case kind == "url" && !isURL(s):
			return c, wrong(name+".url", "must be an absolute URL")
		}
	}
	if contents != 1 {
		return c, wrong(name, "must have one of text, raw, url and data")
	}
	o := readObject(name, raw, "metadata", "filename", "mediaType")
	media, file := o.text("mediaType", 256, false), o.text("filename", 1024, false)
	metadata, hasMetadata := o.fields["metadata"]
	if hasMetadata && !strict.IsObject(metadata) {
		o.failed("metadata", "must be an object")
	}
	if o.fault != nil {
		return c, o.fault
	}
	c.plain = !hasMetadata && file == "" && (media == "" || c.text != nil && media == "text/plain" ||
		c.data != nil && media == "application/json")
	return c, nil
}

// isBase64 takes all four kinds of Base64, as readers of ProtoJSON must.
func isBase64(s string) bool {
	s = strings.TrimRight(s, "=")
	if strings.ContainsAny(s, "-_") {
		_, err := base64.RawURLEncoding.DecodeString(s)
		return err == nil
	}
	_, err := base64.RawStdEncoding.DecodeString(s)
	return err == nil
}

func isURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme != ""
}

// payload is what the Mecha gets. The same message always gives the same bytes, because its
// Idempotency-Key stands for them.
func (s *said) payload() (json.RawMessage, *fault) {
	var texts []string
	whole := len(s.parts) == 1 && s.metadata == nil && len(s.references) == 0
	for i, p := range s.parts {
		c, f := readPart(fmt.Sprintf("message.parts[%d]", i), p)
		if f != nil {
			return nil, f
		}
		if c.text != nil {
			texts = append(texts, *c.text)
		}
		switch {
		case !whole || !c.plain:
		case c.text != nil:
			return marshal(map[string]string{"text": *c.text}), nil
		case strict.IsObject(c.data):
			return c.data, nil
		}
	}
	return marshal(struct {
		Text       string            `json:"text,omitempty"`
		Parts      []json.RawMessage `json:"parts"`
		Metadata   json.RawMessage   `json:"metadata,omitempty"`
		References []json.RawMessage `json:"reference_task_ids,omitempty"`
	}{strings.Join(texts, "\n"), s.parts, s.metadata, s.references}), nil
}

// partsOf returns the parts that a payload of the Mecha stands for: {"text": …} is a text, parts
// in the form of A2A are themselves, and anything else is data, after its text if it has one.
func partsOf(payload json.RawMessage) []part {
	m, err := members(payload, "text", "parts")
	if err != nil {
		return []part{textPart("(an answer without a payload)")} // the relay gives no payload that is not valid
	}
	if listed := readObject("", payload, "parts").list("parts", maxParts); len(listed) > 0 {
		valid := true
		for _, p := range listed {
			_, f := readPart("", p)
			valid = valid && f == nil
		}
		if valid {
			return listed
		}
	}
	text, isText := strict.String(m["text"])
	switch {
	case isText && text != "" && only(payload, "text"):
		return []part{textPart(text)}
	case isText && text != "":
		return []part{textPart(text), dataPart(payload)}
	}
	return []part{dataPart(payload)}
}

// only reports whether an object has no other field.
func only(object json.RawMessage, field string) bool {
	others := false
	_ = strict.ReadObject(object, nil, func(name string, _ []byte) error { // it has been read before
		others = others || name != field
		return nil
	})
	return !others
}

func textPart(text string) part { return marshal(map[string]string{"text": text}) }

func dataPart(data json.RawMessage) part {
	return marshal(struct {
		Data      json.RawMessage `json:"data"`
		MediaType string          `json:"mediaType"`
	}{data, "application/json"})
}
