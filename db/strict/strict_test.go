package strict_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"relay/db/strict"
)

var envelope = []string{"to", "payload", "from", "version", "message_type", "priority",
	"conversation_id", "correlation_id", "expires_at", "ttl_seconds"}

type jsonMember struct {
	name  string
	value string
}

func readMembers(data string) (got []jsonMember, err error) {
	err = strict.ReadObject([]byte(data), envelope, func(name string, value []byte) error {
		got = append(got, jsonMember{name, string(value)})
		return nil
	})
	return got, err
}

func nested(containers int) string {
	return `{"payload":` + strings.Repeat(`{"a":[`, containers/2) + strings.Repeat(`[`, containers%2) +
		strings.Repeat(`]`, containers%2) + strings.Repeat(`]}`, containers/2) + `}`
}

func TestReadObjectMembers(t *testing.T) {
	got, err := readMembers("\t\r\n {\"to\" : \"a^b\",\"payload\":\n{ \"x\":[1 , 2] } , \"\\u0066rom\":null,\"\":-0,\"d\\u00e9j\\u00e0\":\"\\ud83d\\ude00\"} \n")
	if err != nil {
		t.Fatal(err)
	}
	want := []jsonMember{{"to", `"a^b"`}, {"payload", `{ "x":[1 , 2] }`}, {"from", "null"}, {"", "-0"}, {"déjà", `"\ud83d\ude00"`}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReadObjectAcceptsValues(t *testing.T) {
	for _, value := range []string{
		`0`, `-0`, `10`, `-1.5`, `0.0`, `1e5`, `1E+5`, `0e-0`, `1e400`, `123456789012345678901234567890`,
		`true`, `false`, `null`, `""`, `"\u0000"`, `"\"\\\/\b\f\n\r\t"`, `"\uFFFF\uffff\uD7FF\uE000"`,
		`"\uD800\uDC00\udbff\udfff"`, `"\\uD800"`, `"\\\\uD800"`, "\"\x7f\u00a0\u2028\ufeff\U0010ffff\"", `"/"`,
		`{}`, `[]`, `{ }`, "[\n]", `[[],{}]`, `{"a":1,"a":2,"A":3}`, `[1,"",null]`, `{"":{"":0}}`,
		`{"FROM":1,"from":2,"from":3}`, `"12345678\"12345678"`,
	} {
		got, err := readMembers(`{"x":` + value + `}`)
		if err != nil || len(got) != 1 || got[0].value != value {
			t.Errorf("%s: got %q, %v", value, got, err)
		}
	}
}

func TestReadObjectRefusesValues(t *testing.T) {
	for _, value := range []string{
		// Numbers.
		`01`, `-01`, `00`, `+1`, `1.`, `.5`, `-.5`, `-`, `1e`, `1e+`, `1.e1`, `1.5.2`, `0x1`, `1_0`, `NaN`, `-NaN`,
		`Infinity`, `-Infinity`, `1 2`, `１`, `1a`, `--1`, `1e1.5`, `0e`,
		// Words.
		`True`, `tru`, `truex`, `nul`, `nulL`, `undefined`, `fals`, `falsee`, ``,
		// Strings.
		`"`, `"a`, `'a'`, `a`, "\"\n\"", "\"\t\"", "\"\x00\"", "\"\x1f\"", "\"1234567\x1f\"", "\"12345678\x1f\"", `"\`, `"\"`, `"\x41"`, `"\a"`, `"\v"`, `"\'"`,
		`"\0"`, `"\U0041"`, `"\u"`, `"\u00"`, `"\u004"`, `"\u004g"`, `"\u+041"`, `"\u 041"`, `"\u00`, "\"\\\n\"",
		// Surrogates without their pair.
		`"\uD800"`, `"\udbff"`, `"\uDC00"`, `"\udfff"`, `"\uDC00\uD800"`, `"\uD800\uD800"`, `"\uD800\uD800\uDC00"`, `"\uD800\u0041"`, `"\uD800x"`, `"\uD800xuDC00"`, `"\uD800\nDC00"`,
		`"\uD800\n"`, `"\uD800\\uDC00"`, `"\uD800 \uDC00"`, `"\uD83D\uDE00\uDE00"`, `"\uD800\uDC0"`, `"\uD800\u"`, `"\uD800\`, `"\uD800`,
		`[{"a":["\uD800"]}]`, `{"\uDC00":1}`,
		// Bytes that are not UTF-8: alone, overlong, surrogates, beyond U+10FFFF, cut.
		"\"\x80\"", "\"\xff\"", "\"\xc0\xaf\"", "\"\xe0\x80\xaf\"", "\"\xf0\x80\x80\xaf\"", "\"\xed\xa0\x80\"", "\"\xed\xa0\x80\xed\xb0\x80\"",
		"\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"", "\"\xf8\x88\x80\x80\x80\"", "{\"\xed\xbf\xbf\":1}", "\xff", "\u00a01", "\ufeff1",
		// Containers.
		`[1,]`, `[,1]`, `[,]`, `[1 2]`, `[1,,2]`, `[`, `[1`, `[1,`, `]`, `[1}`, `{1}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{"a":1 "b":2}`,
		`{"a" 1}`, `{a:1}`, `{'a':1}`, `{"a":1]`, `{"a":1;"b":2}`, `{1:1}`, `{null:1}`, `{"a":1`, `{"a"`, `{"a`, `{`, `{"a"::1}`,
		`1/**/`, `//`, `#`, "1\v", "1\f", "1\x00", "\b1",
	} {
		if _, err := readMembers(`{"x":` + value + `}`); err == nil {
			t.Errorf("%q was accepted", value)
		} else if !errors.As(err, new(*strict.SyntaxError)) {
			t.Errorf("%q: %T", value, err)
		}
	}
}

func TestReadObjectDocument(t *testing.T) {
	for _, data := range []string{`{}`, ` {} `, "\r\n\t{ \t}\n", `{"a":1}`} {
		if _, err := readMembers(data); err != nil {
			t.Errorf("%q: %v", data, err)
		}
	}
	for _, data := range []string{
		``, ` `, `[]`, `"a"`, `1`, `null`, `true`, `{`, `}`, `{}}`, `{}{}`, `{} x`, `{},`, "{}\x00", "{}\xff", "\ufeff{}", "{}\ufeff",
		"\xff\xfe{\x00}\x00", "\v{}", "{}\v", "\u00a0{}", `{"a":1},`, `{"a":1} {"b":2}`, `({})`, "\x1e{}",
	} {
		if _, err := readMembers(data); err == nil {
			t.Errorf("%q was accepted", data)
		}
	}
}

func TestReadObjectDepth(t *testing.T) {
	for n, ok := range map[int]bool{1: true, 63: true, 64: true, 65: false, 66: false, 100_000: false} {
		if _, err := readMembers(nested(n)); (err == nil) != ok {
			t.Errorf("%d containers: %v", n, err)
		}
	}
	for _, leaf := range []string{`[]`, `[0]`, `{}`, `{"a":0}`} {
		if _, err := readMembers(strings.Replace(nested(63), `[]`, `[`+leaf+`]`, 1)); err != nil {
			t.Errorf("%s of depth 64: %v", leaf, err)
		}
		if _, err := readMembers(strings.Replace(nested(64), `[]`, `[`+leaf+`]`, 1)); err == nil {
			t.Errorf("%s of depth 65 was accepted", leaf)
		}
	}
	wide := `{"payload":[` + strings.Repeat(`[],{},`, 100) + `0],"x":` + strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64) + `}`
	if _, err := readMembers(wide); err != nil {
		t.Errorf("siblings count as depth: %v", err)
	}
}

func TestReadObjectNames(t *testing.T) {
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `"n%d":0,`, i)
	}
	for _, tt := range []struct {
		data string
		ok   bool
	}{
		{`{"from":1,"to":2}`, true},
		{`{"a":1,"A":2}`, true}, // both unknown
		{`{"fromm":1,"fro":2,"from ":3,"ﬀrom":4}`, true},
		{`{"from":1,"from":1}`, false},
		{`{"from":1,"\u0066rom":1}`, false},
		{`{"\u0066\u0072\u006f\u006d":1,"from":1}`, false},
		{`{"a":1,"b":2,"a":3}`, false},
		{`{"a/":1,"a\/":2}`, false},
		{`{"é":1,"\u00e9":2}`, false},
		{`{"😀":1,"\ud83d\ude00":2}`, false},
		{"{\"\u00e9\":1,\"e\u0301\":2}", true}, // composed and decomposed: different names
		{`{"":1,"":2}`, false},
		{`{"\u0000":1,"":2}`, true},
		{`{"FROM":1}`, false},
		{`{"From":1,"from":2}`, false},
		{`{"from":1,"frOm":2}`, false},
		{`{"\u0046rom":1}`, false},
		{`{"TO":"x"}`, false},
		{`{"verſion":1}`, false}, // U+017F folds to s
		{`{"ver\u017fion":1}`, false},
		{`{"verſlon":1}`, true},
		{`{"\ud800":1}`, false},
		{`{` + many.String() + `"n5000":1}`, true},
		{`{` + many.String() + `"n4999":1}`, false},
		{`{` + many.String() + `"n\u0030":1}`, false},
		{`{"` + strings.Repeat("x", 100) + `":1,"` + strings.Repeat(`\u0078`, 100) + `":1}`, false},
	} {
		if _, err := readMembers(tt.data); (err == nil) != tt.ok {
			t.Errorf("%.80s: %v", tt.data, err)
		}
	}
	kelvin := func(string, []byte) error { return nil }
	if strict.ReadObject([]byte(`{"\u212Aey":1}`), []string{"key"}, kelvin) == nil {
		t.Error("the Kelvin sign was accepted for k")
	}
}

// More known names than the fast path has room for.
func TestReadObjectManyKnown(t *testing.T) {
	var known []string
	for i := range 100 {
		known = append(known, "name"+strconv.Itoa(i))
	}
	nop := func(string, []byte) error { return nil }
	for i := range 100 {
		name := "name" + strconv.Itoa(i)
		if err := strict.ReadObject([]byte(`{"`+name+`":1}`), known, nop); err != nil {
			t.Error(err)
		}
		if strict.ReadObject([]byte(`{"`+name+`":1,"`+name+`":1}`), known, nop) == nil {
			t.Errorf("%s stood twice", name)
		}
		if strict.ReadObject([]byte(`{"N`+name[1:]+`":1}`), known, nop) == nil {
			t.Errorf("%s in capitals was accepted", name)
		}
	}
}

func TestReadObjectErrors(t *testing.T) {
	for data, want := range map[string]string{
		`{"a":"\uD800"}`:      `invalid JSON at byte 6: lone surrogate`,
		`{"a":1,"from":1,}`:   `invalid JSON at byte 16: expected a member name`,
		`{"a":1,"FROM":1}`:    `invalid JSON at byte 7: the name "FROM" must be written "from"; letter case counts`,
		`{"to":1,"to":1}`:     `invalid JSON at byte 8: duplicate name "to"`,
		`{"a":01}`:            `invalid JSON at byte 6: expected ',' or '}'`,
		`{"a":`:               `invalid JSON at byte 5: unexpected end`,
		"{\"a\":\"é\xff\"}":   `invalid JSON at byte 8: invalid UTF-8`,
		`[]`:                  `invalid JSON at byte 0: expected an object`,
		`{} {}`:               `invalid JSON at byte 3: data after the object`,
		nested(65):            `invalid JSON at byte 203: nested too deeply`,
		"{\"a\":\"x\ny\"}":    `invalid JSON at byte 7: control character in a string`,
		`{"a":nulL}`:          `invalid JSON at byte 8: expected null`,
		`{"a":"0123456789\q"`: `invalid JSON at byte 17: unknown escape`,
	} {
		if _, err := readMembers(data); err == nil || err.Error() != want {
			t.Errorf("%.40q: got %v, want %s", data, err, want)
		}
	}
	stop, calls := errors.New("stop"), 0
	err := strict.ReadObject([]byte(`{"a":1,"b":2,oops`), nil, func(string, []byte) error { calls++; return stop })
	if err != stop || calls != 1 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

func TestReadObjectDoesNotAllocate(t *testing.T) {
	data := bytes.Replace(sendBody, []byte(`"version"`), []byte(`"v\u0065rsion"`), 1)
	if n := testing.AllocsPerRun(100, func() {
		members := 0
		if err := strict.ReadObject(data, envelope, func(string, []byte) error { members++; return nil }); err != nil || members != 8 {
			t.Fatal(members, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestReadValues(t *testing.T) {
	for value, want := range map[string]string{
		`""`: "", `"abc"`: "abc", `"\u0061\n\/\\\"\b\f\r\t"`: "a\n/\\\"\b\f\r\t", `"\uD83D\uDE00é\u20AC"`: "😀é€", `"\\u0041"`: `\u0041`,
	} {
		if s, ok := strict.String([]byte(value)); !ok || s != want {
			t.Errorf("ReadString(%s) = %q, %v", value, s, ok)
		}
	}
	for _, value := range []string{`1`, `null`, `{"a":"b"}`, `["a"]`, `true`, ``} {
		if s, ok := strict.String([]byte(value)); ok {
			t.Errorf("ReadString(%s) = %q", value, s)
		}
	}
	for value, want := range map[string]int64{`0`: 0, `-0`: 0, `42`: 42, `9223372036854775807`: 1<<63 - 1, `-9223372036854775808`: -1 << 63} {
		if n, ok := strict.Int([]byte(value)); !ok || n != want {
			t.Errorf("ReadInt(%s) = %d, %v", value, n, ok)
		}
	}
	for _, value := range []string{`9223372036854775808`, `-9223372036854775809`, `99999999999999999999`, `1.0`, `1e2`, `"1"`, `null`, ``, `true`, `{}`, strings.Repeat("1", 1000)} {
		if n, ok := strict.Int([]byte(value)); ok {
			t.Errorf("ReadInt(%.30s) = %d", value, n)
		}
	}
	for _, value := range []string{`null`, `{}`, `{"a":null}`, `[]`, `"null"`, `"{}"`, `0`, ``} {
		if strict.IsNull([]byte(value)) != (value == `null`) || strict.IsObject([]byte(value)) != strings.HasPrefix(value, `{`) {
			t.Errorf("%s: IsNull %v, IsObject %v", value, strict.IsNull([]byte(value)), strict.IsObject([]byte(value)))
		}
	}
}

func TestAppendString(t *testing.T) {
	for s, want := range map[string]string{
		"": `""`, "abc": `"abc"`, `a"b\c/`: `"a\"b\\c/"`, "\b\f\n\r\t": `"\b\f\n\r\t"`, "\x00\x1f\x7f": "\"\\u0000\\u001f\x7f\"",
		"<é😀&>": `"<é😀&>"`, "a\u2028b\u2029c\u2027": `"a\u2028b\u2029c` + "\u2027\"", "x\xffy\xed\xa0\x80": "\"x\ufffdy\ufffd\ufffd\ufffd\"",
		"\ufffd": "\"\ufffd\"",
	} {
		if got := string(strict.AppendString([]byte("> "), s)); got != "> "+want {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}

// referenceRefuses says in a slow way why PROTOCOL §1 refuses data; "" if it does not.
func referenceRefuses(data []byte, known []string) string {
	if !json.Valid(data) || !utf8.Valid(data) {
		return "syntax or UTF-8"
	}
	if bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
		return "no object"
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++
		if data[i] != 'u' {
			continue
		}
		u, _ := strconv.ParseUint(string(data[i+1:i+5]), 16, 16)
		low := uint64(0)
		if i+11 <= len(data) && data[i+5] == '\\' && data[i+6] == 'u' {
			low, _ = strconv.ParseUint(string(data[i+7:i+11]), 16, 16)
		}
		switch {
		case u < 0xD800 || u > 0xDFFF:
		case u <= 0xDBFF && 0xDC00 <= low && low <= 0xDFFF:
			i += 10
		default:
			return "lone surrogate"
		}
	}
	names, depth := []string{}, -1
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	for isName := false; ; {
		token, err := dec.Token()
		if err != nil {
			break // the end
		}
		switch d, _ := token.(json.Delim); {
		case d == '{' || d == '[':
			if depth++; depth > 64 {
				return "depth"
			}
			isName = depth == 0
		case d == '}' || d == ']':
			depth--
			isName = depth == 0
		case depth == 0 && isName:
			names, isName = append(names, token.(string)), false
		case depth == 0:
			isName = true
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return "duplicate"
		}
		for _, k := range known {
			if name != k && strings.EqualFold(name, k) {
				return "letter case"
			}
		}
	}
	return ""
}

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
