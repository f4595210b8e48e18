package relay_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"relay/db/relay"
	"relay/db/strict"
)

var address = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// An address has the form of PROTOCOL §1, and its name and crew make the same address
// again.
func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"", "^", "a^b", "planner^acme", "a^b^c", "a.b-c_d^0", "-a^b", "a^.b", "a b^c", "\u00e9^b", "a^b\n", "a^b\x00", strings.Repeat("a", 64) + "^" + strings.Repeat("b", 65), "a%5Eb"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := relay.ParseAddress(s)
		if (err == nil) != (address.MatchString(s) && !strings.HasSuffix(s, "\n")) {
			t.Fatalf("%q: %v", s, err)
		}
		if err != nil {
			if relay.ErrorCode(err) != relay.InvalidAddress || a != "" {
				t.Fatalf("%q: %q, %v", s, a, err)
			}
			return
		}
		if string(a) != s || a.Name()+"^"+a.Crew() != s {
			t.Fatalf("%q became %q, %q of %q", s, a, a.Name(), a.Crew())
		}
	})
}

// A signature is read if and only if it is one of the four spellings of 32 bytes.
func FuzzDecodeSignature(f *testing.F) {
	sum := bytes.Repeat([]byte{0xfb, 0xef, 0xbe, 0x00}, 8)
	encodings := []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding}
	for _, e := range encodings {
		f.Add(e.EncodeToString(sum))
		f.Add(e.EncodeToString(sum[1:]))
		f.Add(e.EncodeToString(sum) + "=")
		f.Add(e.EncodeToString(sum)[:42] + "\n")
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := relay.DecodeSignature(s)
		var want []byte
		for _, e := range encodings {
			if b, err := e.DecodeString(s); err == nil && len(b) == 32 && e.EncodeToString(b) == s {
				want = b
			}
		}
		if ok != (want != nil) || ok && !bytes.Equal(got, want) {
			t.Fatalf("%q: got %x, %v; want %x", s, got, ok, want)
		}
	})
}

var status = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// An acknowledgement that is accepted has the values that encoding/json reads, and keeps
// the rules. A refused one has a code, and names only a message that another reader
// would find, too.
func FuzzAckFrame(f *testing.F) {
	ts := `,"client_ts":"2026-11-20T08:00:00Z"`
	for _, s := range []string{
		``, `{}`, `{"type":"ack","message_id":"msg_0","status":"completed"` + ts + `}`, `{"type":"ack","message_id":"msg_0","status":"COMPLETED","detail":"why"` + ts + `,"x":[{}]}`,
		`{"type":"ack","message_id":"\ud83d\ude00","status":"1"` + ts + `}`, `{"type":"ack","type":"ack"}`, `{"TYPE":"ack"}`, `{"type":"ack","message_id":1}`, `{"type":null,"status":7}`,
		`{"type":"ack","message_id":"a","status":"\u0130"` + ts + `}`, `{"type":"ack","message_id":"a","status":"ok","client_ts":"2026-11-20T8:00:00Z"}`, "{\"type\":\"ack\xff\"}",
		`{"type":"ack","message_id":"msg_0"}x`, `{"type":"ack","message_id":"a","message_id":"b"}`, `{"message_id":"a","Message_ID":"b"}`,
		`{"type":"send","ref":"r1","message":{"to":"a^b","payload":{}},"idempotency_key":"k","nonce":"n","timestamp":"t","signature":"s"}`,
		`{"type":"send","ref":"","message":null}`, `{"type":"send","ref":"r","message": {"to" : 1} ,"status":7}`, `{"type":"send","ref":7,"message":{}}`, `{"type":"ack","ref":"r","message_id":"a","nonce":7}`,
		`{"type":"ack","message_id":"a","status":"ok","detail":"` + strings.Repeat("d", 1025) + `"` + ts + `}`,
	} {
		f.Add([]byte(s))
	}
	fields := []string{"type", "message_id", "status", "client_ts", "detail"}
	known := append(append([]string(nil), fields...), "ref", "message", "idempotency_key", "nonce", "timestamp", "signature")
	f.Fuzz(func(t *testing.T, frame []byte) {
		var read relay.Frame
		err := read.Read(frame)
		a := &read.Ack
		if err == nil && read.Type == relay.FrameAck {
			err = a.Validate()
		}
		code := relay.ErrorCode(err)
		// Package strict has a fuzz test of its own, against encoding/json.
		refused := strict.ReadEnvelope(frame, known, func(string, []byte) error { return nil })
		if (code == relay.InvalidJSON) != (refused != nil) {
			t.Fatalf("%q: we say %v, package strict %v", frame, err, refused)
		} else if refused != nil {
			if a.ID != "" {
				t.Fatalf("%q names %q", frame, a.ID)
			}
			return
		}
		// Another reader: the strings that it reads, and whether a value is not a string.
		members := map[string]any{}
		if err := json.Unmarshal(frame, &members); err != nil {
			t.Fatal(err)
		}
		theirs, wrong := map[string]string{}, false
		for _, name := range fields {
			text, ok := members[name].(string)
			theirs[name] = text
			wrong = wrong || !ok && members[name] != nil
		}
		if err == nil && read.Type == relay.FrameSend {
			checkLetter(t, frame, &read, members)
			return
		}
		_, timeErr := relay.ParseTime(theirs["client_ts"])
		good := !wrong && theirs["type"] == "ack" && theirs["message_id"] != "" && status.MatchString(asciiLower(theirs["status"])) &&
			timeErr == nil && len(theirs["client_ts"]) <= 64 && len(theirs["detail"]) <= 1024
		if (err == nil) != good {
			t.Fatalf("%q: %v, another reader sees %q", frame, err, theirs)
		}
		if string(a.ID) != theirs["message_id"] {
			t.Fatalf("%q: the message is %q, another reader sees %q", frame, a.ID, theirs["message_id"])
		}
		if err != nil {
			if code != relay.InvalidFrame && code != relay.InvalidRequest && code != relay.InvalidTime {
				t.Fatalf("%q: %v", frame, err)
			}
			return
		}
		if a.Status != asciiLower(theirs["status"]) || a.ClientTS != theirs["client_ts"] || a.Detail != theirs["detail"] {
			t.Fatalf("%q: got %+v, another reader sees %q", frame, a, theirs)
		}
		if err := a.Validate(); err != nil { // an acknowledgement that passed must pass again
			t.Fatalf("%q: then %v", frame, err)
		}
	})
}

// checkLetter expects a frame that sends to have what another reader sees in it.
func checkLetter(t *testing.T, text []byte, f *relay.Frame, theirs map[string]any) {
	t.Helper()
	l := &f.Send
	for name, ours := range map[string]string{"ref": f.Ref, "idempotency_key": l.IdempotencyKey, "nonce": l.Nonce, "timestamp": l.Timestamp, "signature": l.Signature} {
		if is, ok := theirs[name].(string); is != ours || !ok && theirs[name] != nil {
			t.Fatalf("%q: %s is %q, another reader sees %v", text, name, ours, theirs[name])
		}
	}
	var message any
	if err := json.Unmarshal(l.Message, &message); err != nil || !reflect.DeepEqual(message, theirs["message"]) || !bytes.Contains(text, l.Message) {
		t.Fatalf("%q: the message is %q, another reader sees %v", text, l.Message, theirs["message"])
	}
	if n := utf8.RuneCountInString(f.Ref); n < 1 || n > 64 {
		t.Fatalf("%q: a ref of %d characters was taken", text, n)
	}
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
