package a2a

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"relay/db/strict"
)

// The words of a client reach the Mecha as a payload.
func TestPartsBecomeAPayload(t *testing.T) {
	for message, want := range map[string]string{
		`"parts":[{"text":"hello"}]`:                                                             `{"text":"hello"}`,
		`"parts":[{"text":"hello","mediaType":"text/plain"}]`:                                    `{"text":"hello"}`,
		`"parts":[{"text":""}]`:                                                                  `{"text":""}`,
		`"parts":[{"data":{ "price": 1.50, "a":[] }}]`:                                           `{ "price": 1.50, "a":[] }`,
		`"parts":[{"data":{"a":1},"mediaType":"application/json"}]`:                              `{"a":1}`,
		`"parts":[{"data":[1,2.0]}]`:                                                             `{"parts":[{"data":[1,2.0]}]}`,
		`"parts":[{"data":null}]`:                                                                `{"parts":[{"data":null}]}`,
		`"parts":[{"text":"a"},{"text":"b <&> \u2028"}]`:                                         `{"text":"a\nb <&> \u2028","parts":[{"text":"a"},{"text":"b <&> \u2028"}]}`,
		`"parts":[{"text":"a","metadata":{"schema":{}}}]`:                                        `{"text":"a","parts":[{"text":"a","metadata":{"schema":{}}}]}`,
		`"parts":[{"text":"a","mediaType":"text/markdown"}]`:                                     `{"text":"a","parts":[{"text":"a","mediaType":"text/markdown"}]}`,
		`"parts":[{"raw":"iVBORw0KGgo=","filename":"a.png","mediaType":"image/png"}]`:            `{"parts":[{"raw":"iVBORw0KGgo=","filename":"a.png","mediaType":"image/png"}]}`,
		`"parts":[{"url":"https://files.example.com/a"}]`:                                        `{"parts":[{"url":"https://files.example.com/a"}]}`,
		`"parts":[{"text":"a"}],"metadata":{"k":1},"referenceTaskIds":["msg_1"],"extensions":[]`: `{"text":"a","parts":[{"text":"a"}],"metadata":{"k":1},"reference_task_ids":["msg_1"]}`,
	} {
		text := json.RawMessage(`{"messageId":"1","role":"ROLE_USER",` + message + `}`)
		s, f := readSaid(text)
		if f != nil {
			t.Errorf("%s: %v", message, f)
			continue
		}
		if got, f := s.payload(); f != nil || string(got) != want {
			t.Errorf("%s: %s %v, want %s", message, got, f, want)
		}
	}
}

// The answer of the Mecha reaches the client as parts.
func TestAPayloadBecomesParts(t *testing.T) {
	for payload, want := range map[string]string{
		`{"text":"sunny"}`:                   `[{"text":"sunny"}]`,
		`{"flight":"TP 931","price":180.00}`: `[{"data":{"flight":"TP 931","price":180.00},"mediaType":"application/json"}]`,
		`{"text":"sunny","celsius":20}`:      `[{"text":"sunny"},{"data":{"text":"sunny","celsius":20},"mediaType":"application/json"}]`,
		`{"text":""}`:                        `[{"data":{"text":""},"mediaType":"application/json"}]`,
		`{"text":1}`:                         `[{"data":{"text":1},"mediaType":"application/json"}]`,
		`{}`:                                 `[{"data":{},"mediaType":"application/json"}]`,
		`{"parts":[{"text":"a"},{"url":"http://x"}]}`: `[{"text":"a"},{"url":"http://x"}]`,
		`{"parts":[]}`: `[{"data":{"parts":[]},"mediaType":"application/json"}]`,
		`{"parts":[{"text":"a","url":"http://x"}]}`: `[{"data":{"parts":[{"text":"a","url":"http://x"}]},"mediaType":"application/json"}]`,
		`{"parts":[{"text":"a","mediaType":7}]}`:    `[{"data":{"parts":[{"text":"a","mediaType":7}]},"mediaType":"application/json"}]`,
		`{"parts":{}}`:                              `[{"data":{"parts":{}},"mediaType":"application/json"}]`,
	} {
		if got := string(marshal(partsOf(json.RawMessage(payload)))); got != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
}

// No request makes the gateway panic or send an invalid payload. The same message is always
// sent with the same bytes.
func FuzzCall(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"1","role":"ROLE_USER","parts":[{"text":"a"},{"data":[1]}],"metadata":{}},"configuration":{"historyLength":1}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"GetTask","params":{"id":"msg_1"}}`, `[{}]`, `{"jsonrpc":"2.0","id":{},"method":1}`, " ", `{"id":1,"ID":2}`, `{"id":null}`,
		`{"jsonrpc":"2.0","id":-1.5e3,"method":"a","params":[]}`, strings.Repeat(`{"params":`, 70) + strings.Repeat(`}`, 70),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		c, fault := readCall(body)
		if !json.Valid(answer(c.id, nil, fault)) {
			t.Fatalf("%s", c.id)
		}
		if fault != nil {
			return
		}
		o := readObject("", c.params, "message", "configuration")
		s, fault := readSaid(o.fields["message"])
		if fault != nil {
			return
		}
		payload, fault := s.payload()
		if fault != nil {
			return
		}
		again, _ := s.payload()
		if err := strict.ReadObject(payload, nil, func(string, []byte) error { return nil }); err != nil || !bytes.Equal(payload, again) {
			t.Fatalf("%v: %s", err, payload)
		}
		if len(partsOf(payload)) == 0 {
			t.Fatalf("no parts: %s", payload)
		}
	})
}
