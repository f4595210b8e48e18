package http_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"relay/db/relay"
)

func TestSignatureEncodings(t *testing.T) {
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	std, raw := base64.StdEncoding.EncodeToString, base64.RawStdEncoding.EncodeToString
	for name, row := range map[string]struct {
		encode func([]byte) string
		code   relay.Code // "": accepted
	}{
		"standard":            {std, ""},
		"standard, unpadded":  {raw, ""},
		"URL-safe":            {base64.URLEncoding.EncodeToString, ""},
		"URL-safe, unpadded":  {base64.RawURLEncoding.EncodeToString, ""},
		"both alphabets":      {func(b []byte) string { return strings.Replace(std(b), "+", "-", 1) }, relay.MalformedHeader},
		"two paddings":        {func(b []byte) string { return std(b) + "=" }, relay.MalformedHeader},
		"a bit after the end": {func(b []byte) string { return laterBit(raw(b)) }, relay.MalformedHeader},
		"31 bytes":            {func(b []byte) string { return std(b[:31]) }, relay.MalformedHeader},
		"33 bytes":            {func(b []byte) string { return std(append(b, 0)) }, relay.MalformedHeader},
		"hexadecimal":         {hex.EncodeToString, relay.MalformedHeader},
		"a prefix":            {func(b []byte) string { return "sha256=" + std(b) }, relay.MalformedHeader},
		"upside down":         {func(b []byte) string { b[0] ^= 1; return std(b) }, relay.InvalidSignature},
	} {
		t.Run(name, func(t *testing.T) {
			c := alice.in(t).prepare("GET", whoami, "")
			for strings.Count(std(c.signature()), "+") < 2 || !strings.Contains(std(c.signature()), "/") {
				c.nonce = fmt.Sprint("nonce-", nonces.Add(1)) // until the signature has both of the letters that the alphabets differ in
			}
			with("X-Signature", row.encode(c.signature()))(c)
			a := alice.in(t).r.mustDo(c)
			if row.code == "" {
				a.want(200)
			} else {
				a.wantProblem(401, row.code)
			}
		})
	}
}

// laterBit sets one of the two bits that the last letter of 32 bytes has to spare.
func laterBit(s string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := strings.IndexByte(alphabet, s[len(s)-1])
	return s[:len(s)-1] + string(alphabet[last|1])
}

// The signature covers body|nonce|timestamp, each exactly as sent.
func TestWhatASignatureCovers(t *testing.T) {
	r := mustServe(t)
	alice := r.mustIssue("alice^demo")
	body := " {\"to\" :\t\"alice^demo\",\r\n\"payload\":{\"é\":1.50, \"\\u00e9\": 1e400}}\n "
	signed := func(body, nonce, ts string) change {
		return with("X-Signature", base64.StdEncoding.EncodeToString(relay.Sign(alice.Text, []byte(body), nonce, ts)))
	}
	const ts = "2026-11-20T08:00:00.000Z"
	for name, row := range map[string]struct {
		change
		good bool
	}{
		"as sent":                {signed(body, "n-as-sent", ts), true},
		"chunked":                {all(signed(body, "n-chunked", ts), chunked), true},
		"trimmed body":           {signed(strings.TrimSpace(body), "n-trimmed-body", ts), false},
		"no body":                {signed("", "n-no-body", ts), false},
		"another nonce":          {signed(body, "n", ts), false},
		"the same time, in text": {all(stamped("2026-11-20T08:00:00Z"), signed(body, "n-the-same-time,-in-text", ts)), false},
		"parts moved":            {signed(body+"|n-parts", "moved", ts), false},
	} {
		t.Run(name, func(t *testing.T) {
			n := strings.ReplaceAll(strings.ReplaceAll("n-"+name, " ", "-"), ",", "")
			a := alice.in(t).post(messages, body, row.change, nonce(n))
			if row.good {
				a.want(201)
			} else {
				a.wantProblem(401, relay.InvalidSignature)
			}
		})
	}
	r.wantMessages(2)
	alice.get(whoami, nonce("empty"), signed("", "empty", ts)).want(200)
}

func TestSignaturesMayBeRequired(t *testing.T) {
	for _, required := range []bool{false, true} {
		r := mustServe(t, func(s *settings) { s.api.RequireSignature = required })
		alice, bob := r.mustIssue("alice^demo"), r.mustIssue("bob^demo")
		if got := bob.record(alice.mustSend(bob).MessageID); !got.Signed {
			t.Errorf("a signed message counts as unsigned: %+v", got)
		}
		for _, a := range []reply{
			alice.get(whoami, unsigned), alice.post(messages, letter(bob), unsigned), alice.get(socketPath(alice), unsigned, handshake),
		} {
			switch {
			case required:
				a.wantProblem(401, relay.SignatureRequired)
			case a.status >= 300:
				t.Errorf("%s, unsigned: %s", a.of, a.body)
			case a.status == 201:
				var s sent
				if a.into(&s); bob.record(s.MessageID).Signed {
					t.Error("an unsigned message counts as signed")
				}
			}
		}
		alice.get(whoami, signedBy(bob.Text)).wantProblem(401, relay.InvalidSignature) // verified though not required
	}
}

func TestASigningSecretOfItsOwn(t *testing.T) {
	r := mustServe(t)
	alice := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.Secret = true })
	if !strings.HasPrefix(alice.Secret, "ms_") {
		t.Fatalf("the signing secret is %q", alice.Secret)
	}
	alice.get(whoami, signedBy(alice.Secret)).want(200)
	alice.get(whoami, signedBy(alice.Text)).wantProblem(401, relay.InvalidSignature)
	alice.get(whoami, with("X-Mecha-Key", alice.Secret)).wantProblem(401, relay.MalformedKey) // it is no key
	r.mustRestart()
	alice.r = r
	alice.get(whoami, signedBy(alice.Secret)).want(200)
	alice.get(whoami, signedBy(alice.Text)).wantProblem(401, relay.InvalidSignature)
}
