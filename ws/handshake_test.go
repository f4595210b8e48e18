package ws_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"relay/db/relay"
	"relay/ws"
)

func (r *testRelay) expectHandshakeRefused(text string, status int, code relay.Code) *http.Response {
	r.t.Helper()
	c := r.mustConnect()
	c.mustWrite(text)
	resp := c.response()
	expectProblem(r.t, resp, status, code)
	return resp
}

func TestHandshakesThatAreRight(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	for _, edits := range [][]string{
		nil,
		{"Connection: keep-alive, Upgrade"},
		{"Connection: upgrade"},
		{"Connection: keep-alive", "+Connection: UPGRADE"},
		{"Upgrade: WebSocket"},
		{"Upgrade: h2c, websocket"},
		{"Content-Length: 0"},
		{"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"}, // offered, not taken
		{"Sec-WebSocket-Protocol: chat"},
	} {
		c := r.mustConnect()
		c.mustWrite(handshake(bob, "", edits...))
		c.expectSwitch()
		c.expectAlive()
	}
	c := r.mustConnect()
	c.mustWrite(handshake(bob, "", "= GET /api/v1/ws/mecha/bob^test HTTP/1.1")) // a literal ^ will do
	c.expectSwitch()
}

func TestOtherVersionsGet426(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	for _, edits := range [][]string{
		{"-Sec-WebSocket-Version"}, {"Sec-WebSocket-Version: 8"}, {"Sec-WebSocket-Version: 14"}, {"Sec-WebSocket-Version: "},
		{"Sec-WebSocket-Version: 013"}, {"Sec-WebSocket-Version: 13, 8"}, {"+Sec-WebSocket-Version: 8"}, {"Sec-WebSocket-Version: 13\u00a0"},
		{"-Connection"}, {"Connection: close"}, {"Connection: notupgrade"}, {"-Upgrade"}, {"Upgrade: websockets"}, {"-Upgrade", "-Connection"},
	} {
		resp := r.expectHandshakeRefused(handshake(bob, "", edits...), 426, relay.UpgradeRequired)
		if resp.Header.Get("Sec-WebSocket-Version") != "13" || resp.Header.Get("Upgrade") != "websocket" {
			t.Errorf("%q: %v", edits, resp.Header)
		}
	}
}

func TestHandshakesThatAreMalformed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	for _, edits := range [][]string{
		{"-Sec-WebSocket-Key"},
		{"Sec-WebSocket-Key: "},
		{"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ"},      // no padding
		{"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZR=="},    // bits behind the end
		{"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25j"},        // 15 bytes
		{"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQA="},    // 17 bytes
		{"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZ!=="},    // not Base64
		{"Sec-WebSocket-Key: dGhlIHNhbXBsZS_ub25jZQ=="},    // the other Base64
		{"Sec-WebSocket-Key: " + secKey + "\u00a0"},        // no white space of HTTP
		{"Sec-WebSocket-Key: " + secKey + ", " + secKey},   // two
		{"+Sec-WebSocket-Key: " + secKey},                  // two
		{"+Sec-WebSocket-Key: x"},                          // two
		{"Content-Length: 2", "+X-Body: follows"},          // a body
		{"Transfer-Encoding: chunked", "+X-Body: follows"}, // a body
		{"= GET /api/v1/ws/mecha/bob^test HTTP/1.0"},       // the version that knows no upgrade
		{"Host: "}, // nowhere
	} {
		text := handshake(bob, "", edits...)
		if strings.Contains(text, "Content-Length") {
			text += "{}"
		} else if strings.Contains(text, "chunked") {
			text += "0\r\n\r\n"
		}
		r.expectHandshakeRefused(text, 400, relay.InvalidRequest)
	}
}

func TestOtherMethodsAreNotAllowed(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	for _, method := range []string{"POST", "PUT"} {
		resp := r.expectHandshakeRefused(handshake(bob, "", "= "+method+" /api/v1/ws/mecha/bob^test HTTP/1.1"), 405, relay.MethodNotAllowed)
		if !strings.Contains(resp.Header.Get("Allow"), "GET") {
			t.Errorf("Allow is %q", resp.Header.Get("Allow"))
		}
	}
}

func TestOrigins(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.AllowOrigins = []string{"https://app.example", "http://localhost:3000"} })
	_, bob := r.mustPair()
	tests := []struct {
		host, origin string
		ok           bool
	}{
		{"relay.test", "http://relay.test", true},
		{"relay.test", "https://relay.test", true}, // TLS may end before the relay
		{"relay.test:80", "http://relay.test", true},
		{"relay.test", "http://relay.test:80", true},
		{"relay.test:443", "https://relay.test", true},
		{"relay.test", "https://relay.test:443", true},
		{"Relay.Test:8080", "http://relay.test:8080", true},
		{"127.0.0.1:8080", "http://127.0.0.1:8080", true},
		{"[::1]:8080", "http://[::1]:8080", true},
		{"[::1]", "http://[::1]:80", true},
		{"relay.test", "https://app.example", true},
		{"relay.test", "HTTPS://App.Example", true},
		{"relay.test", "http://localhost:3000", true},

		{"relay.test", "http://evil.test", false},
		{"relay.test", "http://relay.test.evil.test", false},
		{"relay.test", "http://evil.test/relay.test", false},
		{"relay.test", "http://relay.test@evil.test", false},
		{"relay.test", "http://sub.relay.test", false},
		{"relay.test:8080", "http://relay.test", false},
		{"relay.test", "http://relay.test:8080", false},
		{"relay.test:80", "https://relay.test", false},
		{"relay.test", "http://app.example", false}, // allowed with TLS only
		{"relay.test", "http://localhost:3001", false},
		{"relay.test", "null", false},
		{"relay.test", "relay.test", false},
		{"relay.test", "", false},
		{"relay.test", "://", false},
	}
	for _, test := range tests {
		text := handshake(bob, "", "Host: "+test.host, "Origin: "+test.origin)
		if !test.ok {
			r.expectHandshakeRefused(text, 403, relay.OriginNotAllowed)
			continue
		}
		c := r.mustConnect()
		c.mustWrite(text)
		resp := c.response()
		if resp.StatusCode != 101 {
			t.Errorf("%+v: %d", test, resp.StatusCode)
		}
		c.Close()
	}
	r.expectHandshakeRefused(handshake(bob, "", "Origin: https://relay.test", "+Origin: https://evil.test"), 403, relay.OriginNotAllowed)
	r.expectHandshakeRefused(handshake(bob, "", "Origin: https://app.example", "+Origin: https://evil.test"), 403, relay.OriginNotAllowed)
}

func TestAnyOriginMayBeAllowed(t *testing.T) {
	t.Parallel()
	r := mustServe(t, func(c *ws.Config) { c.AllowOrigins = []string{"*"} })
	_, bob := r.mustPair()
	c := r.mustConnect()
	c.mustWrite(handshake(bob, "", "Origin: http://anywhere.test"))
	c.expectSwitch()
}

func TestOnlyTheOwnMecha(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, _ := r.mustPair()
	path := func(to string) string { return handshake(alice, "", "= GET /api/v1/ws/mecha/"+to+" HTTP/1.1") }
	r.expectHandshakeRefused(path("bob%5Etest"), 403, relay.NotYourMecha)
	r.expectHandshakeRefused(path("nobody%5Etest"), 403, relay.NotYourMecha)
	r.expectHandshakeRefused(path("Alice%5Etest"), 403, relay.NotYourMecha)
	r.expectHandshakeRefused(path("nonsense"), 400, relay.InvalidAddress)
}

func TestCredentialsOfTheHandshake(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	alice, bob := r.mustPair()
	revoked := r.mustIssue("bob^test")
	if err := r.Revoke(&relay.RevokeKey{At: time.Now(), ID: revoked.ID}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		edit string
		code relay.Code
	}{
		{"-X-Mecha-Key", relay.MissingHeader},
		{"-X-Nonce", relay.MissingHeader},
		{"-X-Request-Timestamp", relay.MissingHeader},
		{"X-Mecha-Key: mk_short", relay.MalformedKey},
		{"X-Mecha-Key: " + revoked.Text, relay.KeyRevoked},
		{"X-Nonce: a|b", relay.MalformedHeader},
		{"X-Request-Timestamp: yesterday", relay.MalformedHeader},
		{"X-Request-Timestamp: 2020-01-01T00:00:00Z", relay.TimestampOutOfRange},
		{"X-Signature: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", relay.InvalidSignature},
	} {
		resp := r.expectHandshakeRefused(handshake(bob, "", test.edit), 401, test.code)
		if resp.Header.Get("WWW-Authenticate") != "Mecha-Key" {
			t.Errorf("%s: %v", test.edit, resp.Header)
		}
	}
	// Credentials come first, then whose path it is, then the handshake.
	r.expectHandshakeRefused(handshake(bob, "", "-X-Nonce", "-Sec-WebSocket-Version"), 401, relay.MissingHeader)
	r.expectHandshakeRefused(handshake(alice, "", "= GET /api/v1/ws/mecha/bob^test HTTP/1.1", "-Sec-WebSocket-Version"), 403, relay.NotYourMecha)
}

func TestANonceIsUsedOnceOverHTTPAndWebSocket(t *testing.T) {
	t.Parallel()
	r := mustServe(t)
	_, bob := r.mustPair()
	first := handshake(bob, "")
	c := r.mustConnect()
	c.mustWrite(first)
	c.expectSwitch()
	r.expectHandshakeRefused(first, 401, relay.NonceReused)
	r.expectHandshakeRefused(strings.Replace(first, socketPath("bob^test", ""), "/api/v1/whoami", 1), 401, relay.NonceReused)

	other := handshake(bob, "")
	c = r.mustConnect()
	c.mustWrite(strings.Replace(other, socketPath("bob^test", ""), "/api/v1/whoami", 1))
	if resp := c.response(); resp.StatusCode != 200 {
		t.Fatalf("whoami: %d", resp.StatusCode)
	}
	r.expectHandshakeRefused(other, 401, relay.NonceReused)
}
