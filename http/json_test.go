package http_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"relay/db/relay"
)

// A payload is bytes: it comes back as it was sent, whatever a JSON library would make of it.
func TestPayloadsAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	for name, payload := range map[string]string{
		"empty":            `{}`,
		"white space":      "{ \t\r\n }",
		"inner space":      "{\n  \"a\" :\t[ 1 , 2 ]\r\n}",
		"key order":        `{"z":1,"a":2,"m":3}`,
		"duplicate keys":   `{"a":1,"a":2,"A":3}`,
		"envelope keys":    `{"to":"x","TO":"y","payload":{"payload":{}},"From":1}`,
		"spellings":        `{"n":[1,1.0,1.00,1e0,1E+0,10e-1,-0,0.1e1]}`,
		"large integers":   `{"n":9007199254740993,"m":123456789012345678901234567890}`,
		"large exponents":  `{"n":1e400,"m":-1E-400,"k":1e999999999999}`,
		"long fractions":   `{"n":0.1000000000000000055511151231257827021181583404541015625}`,
		"escapes":          `{"a":"\u0041\/\b\f\n\r\t\"\\\u00e9\u2028","\u0061":1}`,
		"a zero":           `{"a":"\u0000"}`,
		"surrogate pairs":  `{"a":"\ud83d\ude00"}`,
		"unicode":          `{"é":"é","日本":"語","😀":"` + "\u2028\u202e\ufeff\U0010ffff" + `"}`,
		"not normalised":   "{\"\u0065\u0301\":\"\u00e9\"}",
		"HTML":             `{"a":"<script>&amp;</script>"}`,
		"empty names":      `{"":{"":{"":null}}}`,
		"every kind":       `{"a":[null,true,false,"",0,[],{}]}`,
		"64 deep":          strings.Repeat(`{"a":`, 63) + `{}` + strings.Repeat("}", 63),
		"64 deep, in list": `{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`,
		"half a mebibyte":  `{"a":"` + strings.Repeat("é", 256<<10) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			alice, bob := alice.in(t), bob.in(t)
			var s sent
			alice.post(messages, `{"payload":`+" \n"+payload+"\t"+`,"to":"bob^demo"}`).want(201).into(&s)
			a := bob.get(messagePath(s.MessageID) + "/payload").want(200)
			if string(a.body) != payload {
				t.Errorf("sent %.200s\n got %.200s", payload, a.body)
			}
			sum := sha256.Sum256([]byte(payload))
			if got := bob.record(s.MessageID); got.PayloadBytes != len(payload) || got.PayloadSHA256 != hex.EncodeToString(sum[:]) {
				t.Errorf("payload_bytes %d, payload_sha256 %s", got.PayloadBytes, got.PayloadSHA256)
			}
			p := bob.history("include=payload&limit=1&order=desc")
			if string(p.Messages[0].Payload) != payload {
				t.Errorf("sent %.200s\nlisted %.200s", payload, p.Messages[0].Payload)
			}
			if p := alice.history("include=payload&limit=1&order=desc"); p.Messages[0].Payload != nil {
				t.Error("the sender got the payload")
			}
			if p := bob.history("limit=1&order=desc"); p.Messages[0].Payload != nil {
				t.Error("the payload came unasked")
			}
		})
	}
}

// Two readers could see two different envelopes in these, or one could choke.
func TestTextsThatAreNoEnvelope(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	good := `{"to":"bob^demo","payload":{}`
	inPayload := func(s string) string { return `{"to":"bob^demo","payload":` + s + `}` }
	for name, body := range map[string]string{
		"nothing":                       ``,
		"white space":                   " \n",
		"null":                          `null`,
		"a list":                        `[` + good + `}]`,
		"a string":                      strconv.Quote(good + "}"),
		"cut short":                     good,
		"a second object":               good + `}{}`,
		"trailing letters":              good + `}x`,
		"trailing bracket":              good + `}}`,
		"trailing zero byte":            good + "}\x00",
		"byte order mark":               "\ufeff" + good + `}`,
		"UTF-16":                        "\xff\xfe{\x00}\x00",
		"from twice":                    good + `,"from":"alice^demo","from":"bob^demo"}`,
		"from twice, one escaped":       good + `,"from":"alice^demo","fro\u006d":"bob^demo"}`,
		"FROM beside from":              good + `,"from":"alice^demo","FROM":"bob^demo"}`,
		"FROM alone":                    good + `,"FROM":"bob^demo"}`,
		"From, escaped":                 good + `,"\u0046rom":"bob^demo"}`,
		"folded letters":                good + `,"corre\u017fpondence":1,"ver\u017fion":"2"}`,
		"To":                            `{"To":"bob^demo","payload":{}}`,
		"Payload":                       good + `,"Payload":{"evil":true}}`,
		"payload twice":                 good + `,"payload":{"evil":true}}`,
		"an unknown field twice":        good + `,"x":1,"x":2}`,
		"TTL_SECONDS":                   good + `,"TTL_SECONDS":1}`,
		"invalid UTF-8":                 good + ",\"x\":\"\xff\"}",
		"invalid UTF-8 in a name":       good + ",\"\xc3\":1}",
		"invalid UTF-8 in the payload":  inPayload("{\"a\":\"\xc0\x80\"}"),
		"an encoded surrogate":          inPayload("{\"a\":\"\xed\xa0\x80\"}"),
		"a lone high surrogate":         inPayload(`{"a":"\ud800"}`),
		"a lone low surrogate":          inPayload(`{"a":"\udc00"}`),
		"surrogates the wrong way":      inPayload(`{"a":"\udc00\ud800"}`),
		"a lone surrogate in a name":    inPayload(`{"\ud83d":1}`),
		"a lone surrogate, outside":     good + `,"x":"\ud83dx"}`,
		"65 deep":                       inPayload(strings.Repeat(`{"a":`, 64) + `{}` + strings.Repeat("}", 64)),
		"65 deep, in lists":             inPayload(`{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`),
		"65 deep, beside the payload":   good + `,"x":` + strings.Repeat("[", 65) + strings.Repeat("]", 65) + `}`,
		"100,000 deep":                  inPayload(strings.Repeat("[", 100_000)),
		"a trailing comma":              good + `,}`,
		"a trailing comma in a payload": inPayload(`{"a":1,}`),
		"a comment":                     good + `/**/}`,
		"single quotes":                 `{'to':'bob^demo','payload':{}}`,
		"a bare name":                   `{to:"bob^demo","payload":{}}`,
		"NaN":                           inPayload(`{"a":NaN}`),
		"Infinity":                      inPayload(`{"a":-Infinity}`),
		"a leading zero":                inPayload(`{"a":01}`),
		"a leading plus":                inPayload(`{"a":+1}`),
		"a bare point":                  inPayload(`{"a":1.}`),
		"hexadecimal":                   inPayload(`{"a":0x1}`),
		"a bare exponent":               inPayload(`{"a":1e}`),
		"a raw newline":                 inPayload("{\"a\":\"\n\"}"),
		"a raw zero":                    inPayload("{\"a\":\"\x00\"}"),
		"an unknown escape":             inPayload(`{"a":"\x41"}`),
		"a short escape":                inPayload(`{"a":"\u41"}`),
		"True":                          inPayload(`{"a":True}`),
	} {
		t.Run(name, func(t *testing.T) {
			alice.in(t).post(messages, body).wantProblem(400, relay.InvalidJSON)
		})
	}
	for _, m := range []mecha{alice, bob} {
		if p := m.history(""); len(p.Messages) != 0 {
			t.Errorf("a refused envelope left %+v", p.Messages)
		}
	}
	r.wantMessages(0)
}

// The same reader precedes acknowledgements.
func TestTextsThatAreNoAck(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
	id := alice.mustSend(bob).MessageID
	for _, body := range []string{
		``, `[]`, ackBody("completed") + `x`, `{"status":"completed","status":"failed","client_ts":"2026-11-20T08:00:00Z"}`,
		`{"status":"completed","STATUS":"failed","client_ts":"2026-11-20T08:00:00Z"}`, `{"status":"\ud800"}`, "{\"status\":\"\xff\"}",
	} {
		bob.post(messagePath(id)+"/ack", body).wantProblem(400, relay.InvalidJSON)
	}
	if got := bob.record(id); got.State != "queued" || got.Ack != nil {
		t.Errorf("a refused ack left %+v", got)
	}
}

// Whatever is in a record, the answer is JSON.
func TestAnswersAreJSON(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.Label = "\"\\é</script>" })
	odd := `\u0000\u001f\"\\\u2028\ud83d\ude00\u007f`
	s := alice.mustSend(alice, `"correlation_id":"`+odd+`"`, `"version":"`+odd+`"`)
	alice.post(messagePath(s.MessageID)+"/ack", `{"status":"seen","client_ts":"2026-11-20T08:00:00Z","detail":"`+odd+`"}`).want(200)
	var want string
	if err := json.Unmarshal([]byte(`"`+odd+`"`), &want); err != nil {
		t.Fatal(err)
	}
	got := alice.record(s.MessageID)
	if got.CorrelationID != want || got.Version != want || *got.Ack.Detail != want {
		t.Errorf("%q became %q, %q, %q", want, got.CorrelationID, got.Version, *got.Ack.Detail)
	}
	alice.get(whoami).want(200)
	alice.get(historyPath(alice)+"?peer=%22%0a").wantProblem(400, relay.InvalidAddress)
}
