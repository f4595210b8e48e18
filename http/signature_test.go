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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.WithSecret = true })
	if !strings.HasPrefix(alice.Secret, "ms_") {
		t.Fatalf("the signing secret is %q", alice.Secret)
	}
	alice.get(whoami, signedBy(alice.Secret)).want(200)
	alice.get(whoami, signedBy(alice.Text)).wantProblem(401, relay.InvalidSignature)
	alice.get(whoami, with("X-Mecha-Key", alice.Secret)).wantProblem(401, relay.MalformedKey) // it is not a key
	r.mustRestart()
	alice.r = r
	alice.get(whoami, signedBy(alice.Secret)).want(200)
	alice.get(whoami, signedBy(alice.Text)).wantProblem(401, relay.InvalidSignature)
}

// requestSigned adds a request signature for this method and target, which is spelled
// as Go's client writes it into the request line.
func requestSigned(method, target string) change {
	return requestSignedAs(method, strings.ReplaceAll(target, "^", "%5E"))
}

func requestSignedAs(method, target string) change {
	return func(c *call) {
		sum := relay.SignRequest(c.secret, method, target, []byte(c.body), c.nonce, c.timestamp)
		with("X-Request-Signature", base64.StdEncoding.EncodeToString(sum))(c)
	}
}

// alone leaves out X-Signature.
func alone(c *call) { with("X-Signature")(c) }

// A request signature covers method, path and query, too: what was recorded of one
// request is good for no other one, though its nonce is fresh.
func TestWhatARequestSignatureCovers(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice := r.mustIssue("alice^demo", func(i *relay.IssueKey) { i.WithSecret = true })
	id := alice.mustSend(alice).MessageID
	deliver, inbox, socket := messagePath(id)+"/deliver", inboxPath(alice), socketPath(alice)
	for name, row := range map[string]struct {
		method, path, body string
		change
		status int
	}{
		"as sent":             {"GET", whoami, "", requestSigned("GET", whoami), 200},
		"as sent, alone":      {"GET", whoami, "", all(requestSigned("GET", whoami), alone), 200},
		"with a query":        {"GET", historyPath(alice) + "?limit=1&order=desc", "", requestSigned("GET", historyPath(alice)+"?limit=1&order=desc"), 200},
		"with a body":         {"POST", messages, letter(alice), requestSigned("POST", messages), 201},
		"handshake":           {"GET", socket, "", all(requestSigned("GET", socket), handshake), 101},
		"another path":        {"GET", whoami, "", requestSigned("GET", inbox), 401},
		"another method":      {"POST", deliver, "", requestSigned("GET", deliver), 401},
		"another query":       {"GET", historyPath(alice) + "?limit=2", "", requestSigned("GET", historyPath(alice)+"?limit=1"), 401},
		"another handshake":   {"GET", socket + "?sync_limit=0", "", all(requestSigned("GET", socket), handshake), 401},
		"another spelling":    {"GET", inbox, "", requestSignedAs("GET", inbox), 401},
		"a bar in the query":  {"GET", whoami + "?a|b", "", requestSigned("GET", whoami+"?a|b"), 401},
		"a body in the query": {"GET", whoami + "?a|b", "", requestSigned("GET", whoami+"?a"), 401},
		"upside down":         {"GET", whoami, "", all(requestSigned("GET", whoami), signedBy("ms_other")), 401},
		"by the key":          {"GET", whoami, "", all(signedBy(alice.Text), requestSigned("GET", whoami), alone), 401},
		"the other signature": {"GET", whoami, "", func(c *call) { with("X-Request-Signature", base64.StdEncoding.EncodeToString(c.signature()))(c) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			a := alice.in(t).do(row.method, row.path, row.body, row.change)
			if row.status == 401 {
				a.wantProblem(401, relay.InvalidSignature)
			} else if a.status != row.status {
				t.Errorf("%d, want %d: %s", a.status, row.status, a.body)
			}
		})
	}
	alice.get(whoami, with("X-Request-Signature", "AAAA")).wantProblem(401, relay.MalformedHeader)
	if got := alice.record(id); got.State != "queued" {
		t.Errorf("a request that was not signed so made the message %s", got.State)
	}
}

func TestRequestSignaturesMayBeRequired(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RequireRequestSignature = true })
	alice := r.mustIssue("alice^demo")
	for _, c := range []change{unsigned, func(*call) {}} { // X-Signature alone is not enough
		for _, a := range []reply{alice.get(whoami, c), alice.post(messages, letter(alice), c), alice.get(socketPath(alice), c, handshake)} {
			a.wantProblem(401, relay.SignatureRequired)
			if !strings.Contains(string(a.body), "X-Request-Signature") {
				t.Errorf("the answer does not name the header: %s", a.body)
			}
		}
	}
	var who struct {
		Signature bool `json:"signature_required"`
		Request   bool `json:"request_signature_required"`
	}
	alice.get(whoami, requestSigned("GET", whoami)).want(200).into(&who)
	if !who.Signature || !who.Request {
		t.Errorf("whoami says %+v", who)
	}
	r.wantMessages(0)
}

// A request signature covers what a signature does, so it counts as one.
func TestARequestSignatureIsASignature(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(s *settings) { s.api.RequireSignature = true })
	alice := r.mustIssue("alice^demo")
	var s sent
	alice.post(messages, letter(alice), requestSigned("POST", messages), alone).want(201).into(&s)
	got := struct{ Signed bool }{}
	alice.get(messagePath(s.MessageID), requestSigned("GET", messagePath(s.MessageID)), alone).want(200).into(&got)
	if !got.Signed {
		t.Error("the message counts as unsigned")
	}
}
