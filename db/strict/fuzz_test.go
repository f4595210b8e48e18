package strict_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"relay/db/strict"
)

func FuzzReadObject(f *testing.F) {
	for _, seed := range []string{
		string(sendBody), nested(64), nested(65), nested(66), `{"from":1,"\u0066rom":2}`, `{"FROM":1}`, `{"verſion":1}`, `{"a":"\ud83d\ude00"}`, `{"a":"\ud83d"}`,
		`{"a":"\udc00\ud800"}`, `{"a":[1.5e+3,-0,true,false,null,{"b":{}},""]} `, `{"a":1,"a":2}`, `{"a":01}`, "{\"a\":\"\xed\xa0\x80\"}", "\ufeff{}", `{}x`, `[]`,
		"{\"a\":\"01234567\x1f\"}", `{"payload":{"a":1,"a":2}}`, `{"a":123456789012,"b":"\b\f\n\r\t\/\"\\"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		got, err := readMembers(string(data))
		if !bytes.Equal(before, data) {
			t.Fatal("data was written to")
		}
		reason := referenceRefuses(data, envelope)
		if (err == nil) != (reason == "") {
			t.Fatalf("we say %v, the reference %q", err, reason)
		}
		if err != nil {
			if se, ok := err.(*strict.SyntaxError); !ok || se.Offset < 0 || se.Offset > len(data) {
				t.Fatalf("%#v", err)
			}
			return
		}
		want := map[string]json.RawMessage{}
		if err := json.Unmarshal(data, &want); err != nil || len(want) != len(got) {
			t.Fatalf("%d members, want %d (%v)", len(got), len(want), err)
		}
		for _, m := range got {
			raw, ok := want[m.name]
			if !ok || string(raw) != m.value {
				t.Fatalf("member %q is %q, want %q", m.name, m.value, raw)
			}
			checkValue(t, raw)
		}
	})
}

// checkValue compares the value that we read with the one that encoding/json reads.
func checkValue(t *testing.T, raw []byte) {
	var v any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	wantS, isString := v.(string)
	if s, ok := strict.String(raw); ok != isString || s != wantS {
		t.Fatalf("ReadString(%s) = %q, %v", raw, s, ok)
	}
	wantN, err := strconv.ParseInt(string(raw), 10, 64)
	if n, ok := strict.Int(raw); ok != (err == nil) || ok && n != wantN {
		t.Fatalf("ReadInt(%s) = %d, %v", raw, n, ok)
	}
	_, isMap := v.(map[string]any)
	if strict.IsNull(raw) != (v == nil) || strict.IsObject(raw) != isMap {
		t.Fatalf("%s: IsNull %v, IsObject %v", raw, strict.IsNull(raw), strict.IsObject(raw))
	}
}

func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "plain", "a\"b\\c", "\x00\x1f\n", "é😀\u2028\u2029\ufffd", "\xff\xed\xa0\x80", "</script>"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		literal := strict.AppendString(nil, s)
		want := string([]rune(s)) // invalid bytes become U+FFFD
		var theirs string
		if err := json.Unmarshal(literal, &theirs); err != nil || theirs != want {
			t.Fatalf("encoding/json reads %q from %s (%v)", theirs, literal, err)
		}
		got, err := readMembers(`{"a":` + string(literal) + `}`)
		if err != nil || got[0].value != string(literal) {
			t.Fatalf("%s: %q, %v", literal, got, err)
		}
		if ours, ok := strict.String(literal); !ok || ours != want {
			t.Fatalf("we read %q from %s", ours, literal)
		}
		if bytes.ContainsAny(literal, "\u2028\u2029\n") {
			t.Fatalf("a line ends in %q", literal)
		}
	})
}

var sendBody = []byte(`{"to":"planner^acme","from":"scout^acme","version":"1.0","message_type":"task.request","priority":"high",` +
	`"conversation_id":"conv_0123456789abcdefghjkmnpqrs","correlation_id":"run-42/step-7","payload":{"task":"find flights","from":"BER","to":"LIS",` +
	`"dates":["2026-03-01","2026-03-08"],"passengers":[{"age":34,"bags":1},{"age":36,"bags":2}],"budget":{"amount":420.50,"currency":"EUR"},` +
	`"notes":"Prefer morning departures; a window seat for the first passenger, \"aisle\" for the second.\nNo layovers longer than two hours, bitte schön.",` +
	`"callback":{"type":"message","conversation":"conv_0123456789abcdefghjkmnpqrs"},"trace":["a1b2c3d4","e5f60718","293a4b5c"],"flags":{"dry_run":false,"retry":true,"parent":null}}}`)

func BenchmarkReadObject(b *testing.B) {
	record := `{"id":12345,"text":"some words, \"quoted\" and schön","ok":true,"list":[1,2.5,-3e7,null]},`
	var names strings.Builder
	for i := 0; names.Len() < 1<<20; i++ {
		fmt.Fprintf(&names, `"%d":0,`, i)
	}
	wrap := func(payload string) []byte { return []byte(`{"to":"a^b","payload":{"x":` + payload + `}}`) }
	for name, data := range map[string][]byte{
		"send":         sendBody,
		"1MiB_string":  wrap(`"` + strings.Repeat("base64/+", 1<<17) + `"`),
		"1MiB_escapes": wrap(`"` + strings.Repeat(`\ud83d\ude00`, 1<<20/12) + `"`),
		"1MiB_records": wrap(`[` + strings.Repeat(record, 1<<20/len(record)) + `0]`),
		"1MiB_nesting": wrap(`[` + strings.Repeat(strings.Repeat("[", 62)+strings.Repeat("]", 62)+",", 1<<20/125) + `0]`),
		"1MiB_digits":  wrap(strings.Repeat("1", 1<<20)),
		"1MiB_names":   []byte(`{` + names.String() + `"to":1}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				if err := strict.ReadObject(data, envelope, func(string, []byte) error { n++; return nil }); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("send_json.Valid", func(b *testing.B) {
		b.SetBytes(int64(len(sendBody)))
		for b.Loop() {
			json.Valid(sendBody)
		}
	})
}

func BenchmarkAppendString(b *testing.B) {
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		buf = strict.AppendString(buf[:0], "conv_0123456789abcdefghjkmnpqrs")
	}
}
