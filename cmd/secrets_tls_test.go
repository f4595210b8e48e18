package cmd_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A secret in the wrong place is not repeated either: in another header, in a
// query, in a handshake, or in a broken key file.
func TestSecretsInOddPlacesAreNeverRepeated(t *testing.T) {
	notOnWindows(t, "there is no SIGHUP")
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			runForOddPlaces(t, format)
		})
	}
}

func runForOddPlaces(t *testing.T, format string) {
	ca, db, dir := newAuthority(t), tempDB(t), t.TempDir()
	a := issue(t, db, "a^secrets", "--signing-secret")[0]
	s := ca.startTLSProcess(t, dir, db, "--log-format", format, "--trusted-proxy", "127.0.0.0/8", "--auth-failure-limit", "1", "--max-connections", "8")
	_, keyFile := dir+"/relay.pem", dir+"/relay.key"
	private, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(private)
	lines := strings.Split(strings.TrimSpace(string(private)), "\n")
	secrets := append([]string{a.Key, *a.Secret, string(block.Bytes)}, lines[1:len(lines)-1]...)

	var said strings.Builder
	c := ca.client()
	ask := func(path string, header ...string) {
		r := a.request("POST", path, `{"to":"nobody^secrets","payload":{}}`, header...)
		secrets = append(secrets, r.header.Get("X-Signature"), r.header.Get("X-Nonce"))
		req, err := http.NewRequest(r.method, s.url+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = r.header
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		fmt.Fprintln(&said, resp.Status, resp.Header, string(text), err)
	}
	for _, path := range []string{"/api/v1/messages", "/api/v1/search", "/api/v1/whoami", "/nothing"} {
		for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Forwarded-For", "Forwarded", "X-Real-Ip", "Referer", "User-Agent", "Origin", "Prefer", "Idempotency-Key", "X-Request-Id"} {
			ask(path, name, a.Key)
			ask(path, name, "Bearer "+*a.Secret, "X-Mecha-Key", "")
			ask(path+"?key="+a.Key+"&secret="+*a.Secret, name, a.Key+", 192.0.2.1")
		}
	}
	if !strings.Contains(said.String(), "too_many_failures") || !strings.Contains(s.stderr.String(), "too many failed authentications") {
		t.Error("the limit was not reached")
	}
	for _, text := range []string{"GET /api/v1/whoami?" + a.Key + " HTTP/1.1\r\nX-Mecha-Key: " + a.Key + "\r\n\r\n", a.Key, "\x16\x03\x01\x00\x70" + a.Key} {
		conn, err := net.Dial("tcp", s.host())
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, text)
		answer, _ := io.ReadAll(conn)
		said.Write(answer)
	}
	if conn, err := tls.Dial("tcp", s.host(), &tls.Config{ServerName: strings.ReplaceAll(a.Key, "_", "-") + ".example.com"}); err == nil {
		conn.Close()
	}
	secrets = append(secrets, strings.ReplaceAll(a.Key, "_", "-"))
	for i, spoilt := range []string{strings.Join(lines[1:], "\n"), lines[0] + "\n" + lines[1], "-----BEGIN RSA PRIVATE KEY-----\n" + lines[1] + "\n-----END RSA PRIVATE KEY-----\n"} {
		if err := os.WriteFile(keyFile, []byte(spoilt), 0o600); err != nil {
			t.Fatal(err)
		}
		s.cmd.Process.Signal(syscall.SIGHUP)
		eventually(t, patience, "the log says that the old pair stays", func() bool {
			return strings.Count(s.stderr.String(), "the old one stays") == i+1
		})
	}
	if s.terminate() != 0 {
		t.Error("no clean exit")
	}
	for where, text := range map[string]string{"the log": s.stderr.String(), "stdout": s.stdout.String(), "an answer": said.String()} {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 && secret != "" {
				t.Errorf("%s holds %s: …%s…", where, secret, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}
