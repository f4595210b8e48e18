package http_test

import (
	"fmt"
	"strings"
	"testing"
)

// The document has the limits of the fields: what the relay takes at a limit is as the
// document says, and what it refuses beyond it is not.
func TestTheLimitsOfFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	d := newDrive(t)
	r := mustServe(t)
	alice, _ := r.alice()
	text := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	list := func(n, each int) string { return "[" + strings.Join(texts(n, each), ",") + "]" }
	object := func(n, name, value int) string {
		var all []string
		for _, s := range texts(n, name) {
			all = append(all, s+`:"https://`+strings.Repeat("x", value-8)+`"`)
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	profile := func(field string) [2]string { return [2]string{opPutProfile, `{"` + field + `":%s}`} }
	skill := func(field string) [2]string { return [2]string{opPutProfile, `{"skills":[{"` + field + `":%s}]}`} }
	send := func(field string) [2]string {
		return [2]string{opSend, `{"to":"alice^demo","payload":{},"` + field + `":%s}`}
	}
	for _, c := range []struct {
		what         [2]string // the operation, and its body
		most, beyond string
	}{
		{send("version"), text(32), text(33)}, {send("message_type"), text(64), text(65)}, {send("priority"), text(32), text(33)},
		{send("correlation_id"), text(128), `"` + strings.Repeat("x", 257) + `"`}, // bytes
		{send("conversation_id"), `"` + strings.Repeat("x", 128) + `"`, `"` + strings.Repeat("x", 129) + `"`},
		{send("ttl_seconds"), "3153600000", "3153600001"},
		{[2]string{opAck, `{"status":"received","client_ts":"2026-11-20T08:00:00Z","detail":%s}`}, text(512), `"` + strings.Repeat("x", 1025) + `"`},
		{[2]string{opSearch, `{"query":%s}`}, text(2000), text(2001)},
		{profile("display_name"), text(200), text(201)}, {profile("version"), text(200), text(201)},
		{profile("description"), text(2000), text(2001)}, {profile("details"), text(16_000), text(16_001)},
		{profile("tags"), list(64, 64), list(65, 9)}, {profile("tags"), list(1, 64), list(1, 65)}, {profile("tags"), `null`, `[null]`}, {profile("tags"), `[]`, `[""]`},
		{profile("examples"), list(10, 300), list(11, 9)}, {profile("examples"), `[null]`, list(1, 301)},
		{profile("languages"), list(64, 64), list(65, 9)}, {profile("languages"), `[null]`, list(1, 65)},
		{profile("accepts_message_types"), list(64, 64), list(65, 9)}, {profile("accepts_message_types"), `[null]`, list(1, 65)},
		{profile("links"), object(64, 64, 9), object(65, 9, 9)}, {profile("links"), `null`, `{"a":null}`},
		{profile("links"), object(1, 64, 2048), object(1, 65, 9)}, {profile("links"), `{}`, object(1, 9, 2049)},
		{profile("metadata"), object(64, 64, 9), object(65, 9, 9)}, {profile("metadata"), `{"a":null}`, object(1, 65, 9)}, {profile("metadata"), object(1, 9, 1024), object(1, 9, 1025)},
		{profile("skills"), "[" + strings.Repeat("{},", 99) + "{}]", "[" + strings.Repeat("{},", 100) + "{}]"},
		{skill("id"), text(200), text(201)}, {skill("name"), text(200), text(201)}, {skill("description"), text(2000), text(2001)},
		{skill("tags"), list(64, 64), list(65, 9)}, {skill("examples"), list(10, 300), list(1, 301)}, {skill("message_types"), list(64, 64), list(1, 65)},
		{skill("input_modes"), list(64, 200), list(65, 9)}, {skill("output_modes"), list(1, 200), list(1, 201)},
	} {
		operation, path := c.what[0], map[string]string{opSend: messages, opSearch: searches, opPutProfile: profilePath("alice^demo")}[c.what[0]]
		if operation == opAck {
			path = messagePath(alice.mustSend(alice).MessageID) + "/ack"
		}
		method, _, _ := strings.Cut(operation, " ")
		for _, body := range []string{fmt.Sprintf(c.what[1], c.most), fmt.Sprintf(c.what[1], c.beyond)} {
			q := alice.prepare(method, path, body)
			request, err := q.request(r.url)
			if err != nil {
				t.Fatal(err)
			}
			taken := r.mustDo(q).status < 300
			fault := d.validateRequest(operation, request, body)
			if taken != (fault == nil) || taken != (body == fmt.Sprintf(c.what[1], c.most)) {
				t.Errorf("%.80s: taken: %t, by the document: %v", body, taken, fault)
			}
		}
	}
}

// texts returns n different texts in JSON, of so many characters.
func texts(n, length int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(`"%0*d"`, length, i))
	}
	return all
}
