package cmd_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"relay/db/scratch"
)

// The program prints a secret only once, when it issues the key. The log, the
// answers and the errors of commands never have one.
func TestSecretsAreNeverRepeated(t *testing.T) {
	t.Parallel()
	formats := []string{"json"}
	if scratch.Long(t) {
		formats = append(formats, "text")
	}
	for _, format := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			runForSecrets(t, format)
		})
	}
}

// leak is what clients could repeat: the server, a key and its secret, and keys that it refuses.
type leak struct {
	*server
	a       agent
	refused []string
}

// clientsSay has what the program's clients print about a leak; nil: it has none.
var clientsSay func(t *testing.T, l leak) string

func runForSecrets(t *testing.T, format string) {
	db := tempDB(t)
	keys := issue(t, db, "a^secrets", "b^secrets", "--signing-secret")
	plain := issue(t, db, "c^secrets")[0]
	a, b := keys[0], keys[1]
	typo := a
	typo.Key = a.Key[:len(a.Key)-1] + "x"
	if typo.Key == a.Key {
		typo.Key = a.Key[:len(a.Key)-1] + "y"
	}
	elsewhere := issue(t, tempDB(t), "a^secrets")[0] // well-formed, of another relay
	s := startProcess(t, db, "--log-format", format, "--log-level", "debug", "--rate-limit", "5", "--rate-burst", "40", "--max-body", "2000", "--auth-failure-limit", "1")
	secrets := []string{a.Key, *a.Secret, b.Key, *b.Secret, plain.Key, typo.Key, elsewhere.Key}

	var said strings.Builder
	hear := func(r request) {
		ans, err := r.to(s.url)
		fmt.Fprintln(&said, ans.status, ans.header, string(ans.body), err)
	}
	spoiled := func(r request, header, value string) request {
		r.header.Set(header, value)
		secrets = append(secrets, r.header.Get("X-Signature"))
		return r
	}
	send := func(from agent, body string) request { return from.request("POST", "/api/v1/messages", body) }
	who := func(from agent) request { return from.request("GET", "/api/v1/whoami", "") }

	good := send(a, `{"to":"b^secrets","payload":{"private":"the payload's words"}}`)
	for range 2 { // and its replay
		hear(good)
	}
	secrets = append(secrets, "the payload's words", good.header.Get("X-Signature"))
	for _, from := range []agent{typo, elsewhere} {
		hear(who(from))
	}
	hear(spoiled(who(a), "X-Signature", who(a).header.Get("X-Signature")))
	hear(spoiled(who(a), "X-Signature", a.Key))
	hear(spoiled(who(a), "X-Nonce", "|"+a.Key))
	hear(spoiled(who(a), "X-Request-Timestamp", a.Key))
	hear(spoiled(who(a), "X-Mecha-Key", a.Key+" "+*a.Secret))
	hear(spoiled(who(a), "Content-Encoding", a.Key))
	hear(send(a, `{"to":"b^secrets","payload":{"private":"the payload's words",}}`))
	hear(send(a, `{"to":"b^secrets","payload":"the payload's words"}`))
	hear(send(a, `{"to":"b^secrets","payload":{"p":"`+strings.Repeat("the payload's words", 200)+`"}}`))
	hear(send(a, `{"to":"nobody^secrets","payload":{"private":"the payload's words"}}`))
	conn := s.dial(b, "?events=acks")
	conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ack","message_id":"`+b.Key+`"}`))
	hear(plain.request("GET", "/api/v1/mecha/a^secrets/messages", ""))
	for _, path := range []string{"/api/v1/mecha/" + a.Key + "/messages?key=" + a.Key, "/" + *a.Secret} { // the caller sees its mistake, the log does not
		if _, err := plain.request("GET", path, "").to(s.url); err != nil {
			t.Error(err)
		}
	}
	limited := func() bool {
		return strings.Contains(said.String(), "too_many_failures") && strings.Contains(said.String(), "rate_limited")
	}
	for end := time.Now().Add(patience); !limited() && time.Now().Before(end); { // until it is too much
		hear(who(plain))
		hear(who(typo))
	}
	mustRelay(t, "key", "revoke", b.KeyID, "--db", db)
	eventually(t, soon, "revoked", func() bool {
		ans, err := who(b).to(s.url)
		return err == nil && ans.status == http.StatusUnauthorized
	})
	hear(who(b))
	if !limited() {
		t.Error("the limits were not reached")
	}

	if clientsSay != nil {
		said.WriteString(clientsSay(t, leak{s, a, []string{typo.Key, elsewhere.Key}}))
	}
	if s.terminate() != 0 {
		t.Error("no clean exit")
	}
	for where, text := range map[string]string{"the log": s.stderr.String(), "stdout": s.stdout.String(), "an answer or error": said.String()} {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 && secret != "" {
				t.Errorf("%s holds %s: …%s…", where, secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}
