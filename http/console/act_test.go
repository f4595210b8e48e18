package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"relay/db/look/browse"
	"relay/db/relay"
	"relay/http/console"
)

// acts are the rows of the audit log that an operator made, as "what mecha detail".
func (s *stage) acts() (all []string) {
	s.t.Helper()
	in, err := browse.Inspect(s.path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer in.Close()
	acts, err := in.Acts(time.Time{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range acts {
		if a.By == maria && a.What != relay.ActKeyIssued {
			all = append(all, fmt.Sprintf("%s %s %s", a.What, a.Mecha, a.Detail))
		}
	}
	return all
}

// A person sends a message, sends one again, lets one expire and revokes a key, each after a
// page that says what will happen. The audit log has each once.
func TestAPersonActsAfterConfirming(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice, bob := s.mustIssue("alice^demo", "laptop"), s.mustIssue("bob^demo", "worker")
	old := s.mustSend(20*time.Minute, alice, "bob^demo", `{ "n": 1.10 }`, func(m *relay.SendMessage) { m.Type, m.Priority = "order", "high" })
	b := mustOpen(t)
	b.open(s.entry("/mecha/bob^demo"))
	b.await(isLive)

	b.click(`#here a[href^="/send"]`)
	b.await(`document.querySelector("input[name=to]")?.value == "bob^demo"`)
	write := func(payload string) {
		b.fill(`textarea[name=payload]`, payload)
		b.click(`form.write button`)
	}
	write(`[1]`)
	b.await(`document.querySelector("[role=alert]")?.innerText.includes("must be a JSON object")`)
	write(`{"hello":"<b>bob</b>"}`)
	b.await(`document.querySelector("#act-title")?.innerText == "Send this message?"`)
	if text := b.text("main"); !strings.Contains(text, "operator^demo") || !strings.Contains(text, `{"hello":"<b>bob</b>"}`) {
		t.Errorf("the page says %s", text)
	}
	if len(s.acts()) > 0 {
		t.Error("something was done before it was confirmed")
	}
	confirm := func(title string) {
		t.Helper()
		b.await(fmt.Sprintf(`document.querySelector("#act-title")?.innerText == %q`, title))
		b.click(`.confirm form button`)
	}
	confirm("Send this message?")
	b.await(`location.pathname.startsWith("/message/") && document.querySelector("#record")`)
	if text := b.text("#record"); !strings.Contains(text, "operator^demo") || !strings.Contains(text, "bob^demo") {
		t.Errorf("the message is %s", text)
	}
	sent := strings.TrimPrefix(strings.Trim(b.eval("location.pathname"), `"`), "/message/")

	b.open(s.url + "/message/" + string(old.ID))
	b.await(isLive)
	b.click(`#acts a[href$="/again"]`)
	confirm("Send it again?")
	b.await(`document.querySelector("#record")?.innerText.includes("` + string(old.ID) + `")`) // its correlation id
	again := relay.MessageID(strings.TrimPrefix(strings.Trim(b.eval("location.pathname"), `"`), "/message/"))
	m, err := s.Message(context.Background(), bob.Mecha.Number, again)
	if err != nil || m.From != "operator^demo" || m.Type != "order" || m.Priority != "high" || m.CorrelationID != string(old.ID) || m.PayloadSHA256 != old.PayloadSHA256 {
		t.Errorf("%+v, %v", m, err)
	}

	b.open(s.url + "/message/" + string(old.ID))
	b.await(isLive)
	b.click(`#acts a[href$="/expire"]`)
	confirm("Let it expire now?")
	b.await(`document.querySelector("#life")?.innerText.includes("an operator let it expire") && !document.querySelector('#acts a[href$="/expire"]')`)

	b.open(s.url + "/keys")
	b.await(isLive)
	b.click(`a[href="/key/` + string(bob.ID) + `/revoke"]`)
	confirm("Revoke this key?")
	b.await(`document.querySelector("#` + string(bob.ID) + `")?.innerText.includes("revoked")`)
	if _, err := s.Key(context.Background(), bob.Text); relay.ErrorCode(err) != relay.KeyRevoked {
		t.Errorf("the key gives %v", err)
	}
	want := []string{"message_sent bob^demo " + sent, "message_sent bob^demo " + string(again) + ", correlation id “" + string(old.ID) + "”",
		"message_expired  " + string(old.ID), "key_revoked bob^demo label “worker”"}
	if got := s.acts(); !slices.Equal(got, want) {
		t.Errorf("the audit log has %q, want %q", got, want)
	}
}

var once = regexp.MustCompile(`name="once" value="([^"]+)"`)

// A form that is sent twice acts once; one that was not confirmed, or that is wrong, not at all.
func TestAFormActsOnce(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	m := s.mustSend(time.Minute, alice, "alice^demo", `{}`)
	c := s.enter()
	form := url.Values{"to": {"alice^demo"}, "payload": {"{\r\n\"n\":1}"}}
	_, page := s.post(c, "/send", form)
	found := once.FindStringSubmatch(page)
	if found == nil {
		t.Fatal(page)
	}
	form.Set("once", found[1])
	for range 2 {
		if status, text := s.post(c, "/send", form); status != http.StatusSeeOther {
			t.Fatal(status, text)
		}
	}
	if got := s.acts(); len(got) != 1 {
		t.Errorf("the audit log has %q", got)
	}
	sent := relay.MessageID(strings.Fields(s.acts()[0])[2])
	if payload, err := s.Payload(context.Background(), alice.Mecha.Number, sent); err != nil || string(payload) != "{\n\"n\":1}" {
		t.Errorf("%q, %v", payload, err)
	}
	path, sure := "/message/"+string(m.ID), url.Values{"confirmed": {"yes"}}
	s.mustAck(0, alice, m, "completed", "")
	for _, try := range []struct {
		path   string
		form   url.Values
		status int
		text   string
	}{
		{"/send", url.Values{"to": {"alice^demo"}, "payload": {`{"n":1}, "priority":"urgent"`}, "once": {"x"}}, 400, "must be a JSON object"},
		{"/send", url.Values{"to": {"alice^demo"}, "payload": {`{"n":1`}, "once": {"x"}}, 400, "must be a JSON object"},
		{"/send", url.Values{"to": {"alice^demo"}, "payload": {""}, "once": {"x"}}, 400, "must be a JSON object"},
		{"/send", url.Values{"to": {"alice"}, "payload": {"{}"}, "once": {"x"}}, 400, "alice"},
		{"/send", url.Values{"to": {"alicia^demo"}, "payload": {`{"kept":1}`}, "once": {"x"}}, 400, "{&#34;kept&#34;:1}"},
		{"/send", url.Values{"to": {"alicia^demo"}, "payload": {"{}"}}, 400, "alicia^demo"},
		{"/send", url.Values{"to": {"*^demo"}, "payload": {"{}"}}, 400, "*^demo"},
		{"/send", url.Values{"to": {"alice^demo"}, "payload": {`{"n":"` + strings.Repeat("x", 5<<20) + `"}`}}, 413, "too large"},
		{path + "/again", url.Values{}, 400, "not confirmed"},
		{"/message/msg_none/again", url.Values{"once": {"x"}}, 404, "msg_none"},
		{path + "/expire", url.Values{}, 400, "not confirmed"},
		{path + "/expire", sure, 409, "acknowledged"},
		{"/message/msg_none/expire", sure, 404, "msg_none"},
		{"/key/" + string(alice.ID) + "/revoke", url.Values{}, 400, "not confirmed"},
		{"/key/key_none/revoke", sure, 404, "key_none"},
	} {
		if status, text := s.post(c, try.path, try.form); status != try.status || !strings.Contains(text, try.text) {
			t.Errorf("%s %.80v: %d, want %d and %q\n%.2000s", try.path, try.form, status, try.status, try.text, text)
		}
	}
	for path, want := range map[string]int{"/key/key_none/revoke": 404, "/message/msg_none/expire": 404, path + "/expire": 409} {
		if status, _ := s.get(c, path); status != want {
			t.Errorf("%s: %d", path, status)
		}
	}
	if got := s.acts(); len(got) != 1 {
		t.Errorf("the audit log has %q", got)
	}
}

// A console without an operator shows no act and takes none; nor does one take what comes
// without a session, or from a page of another origin.
func TestNobodyElseActs(t *testing.T) {
	t.Parallel()
	s := mustStage(t, true)
	alice := s.mustIssue("alice^demo", "")
	m := s.mustSend(time.Minute, alice, "alice^demo", `{}`)
	paths := []string{"/send", "/message/" + string(m.ID) + "/again", "/message/" + string(m.ID) + "/expire", "/key/" + string(alice.ID) + "/revoke"}
	form := url.Values{"to": {"alice^demo"}, "payload": {"{}"}, "once": {"x"}, "confirmed": {"yes"}}
	for _, path := range paths {
		if status, _ := s.post(s.visitor(), path, form); status != http.StatusUnauthorized {
			t.Errorf("%s without a session: %d", path, status)
		}
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+path, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", "http://127.0.0.1:1")
		if status, _ := s.do(s.enter(), r); status != http.StatusForbidden {
			t.Errorf("%s from another origin: %d", path, status)
		}
	}
	s.show(true, "127.0.0.1:0", func(c *console.Config) { c.Operator = nil })
	c := s.enter()
	for _, path := range paths {
		for _, status := range []func() (int, string){func() (int, string) { return s.get(c, path) }, func() (int, string) { return s.post(c, path, form) }} {
			if status, text := status(); status != http.StatusNotFound || !strings.Contains(text, "only shows") {
				t.Errorf("%s without an operator: %d", path, status)
			}
		}
	}
	for _, path := range []string{"/message/" + string(m.ID), "/keys", "/mecha/alice%5Edemo"} {
		if _, page := s.get(c, path); strings.Contains(page, "/revoke") || strings.Contains(page, "/expire") || strings.Contains(page, "/send") {
			t.Errorf("%s offers an act", path)
		}
	}
	if got := s.acts(); len(got) > 0 {
		t.Errorf("the audit log has %q", got)
	}
}
