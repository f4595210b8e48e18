package client_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"relay/db/scratch"
	"relay/http/client"
)

func TestOverTLS(t *testing.T) {
	r := mustServeTLS(t) // which does not trust it yet
	trust := r.trust
	r.trust = nil
	alice := r.mustIssue("alice^test")
	_, err := alice.Address(t.Context())
	_, err2 := alice.Dial(t.Context(), alice.name, "")
	for _, err := range []error{err, err2} {
		if !errors.As(err, new(*tls.CertificateVerificationError)) || !client.NothingDone(err) || strings.Contains(err.Error(), "is the relay running") {
			t.Errorf("an untrusted certificate: %v", err)
		}
	}

	r.trust = trust
	alice, bob := r.mustIssue("alice^test"), r.mustIssue("bob^test")
	s := bob.mustDial("")
	m := alice.mustSend(bob, `{}`)
	if f := s.expect("message"); f.MessageID != m.MessageID {
		t.Errorf("%+v, want %s", f, m.MessageID)
	}
	if _, err := bob.at(strings.Replace(r.url, "127.0.0.1", "localhost", 1)).Address(t.Context()); !errors.As(err, new(x509.HostnameError)) {
		t.Errorf("a certificate of another name: %v", err)
	}
}

func TestTheWrongScheme(t *testing.T) {
	plain, encrypted := mustServe(t), mustServeTLS(t)
	for url, c := range map[string]struct {
		r      *testRelay
		speaks string
	}{
		strings.Replace(plain.url, "http:", "https:", 1) + "/":     {plain, "http"},
		strings.Replace(encrypted.url, "https:", "http:", 1):       {encrypted, "https"},
		strings.Replace(encrypted.url, "https:", "http:", 1) + "/": {encrypted, "https"},
	} {
		alice := c.r.mustIssue("alice^test")
		there := alice.at(url)
		_, err := there.Address(t.Context())
		wantScheme(t, err, c.speaks, c.r.url)
		_, err = there.Do(t.Context(), "POST", "/api/v1/messages", bytes.Repeat([]byte("x"), 300), nil)
		wantScheme(t, err, c.speaks, c.r.url)
		_, err = there.Dial(t.Context(), alice.name, "")
		wantScheme(t, err, c.speaks, c.r.url)
	}
}

// wantScheme expects an error that says where to ask instead.
func wantScheme(t *testing.T, err error, speaks, url string) {
	t.Helper()
	var wrong *client.WrongScheme
	if !errors.As(err, &wrong) || wrong.Speaks != speaks || wrong.URL != url || wrong.Unwrap() == nil ||
		!strings.Contains(err.Error(), "speaks "+speaks) || !strings.Contains(err.Error(), "use "+url) {
		t.Errorf("%v, want to hear that it speaks %s at %s", err, speaks, url)
	}
	if client.Temporary(err) || !client.NothingDone(err) {
		t.Errorf("to try again is of no use, and nothing was done: %v", err)
	}
}

// A relay that answers 400 for another reason is not said to speak https.
func TestABadRequestIsNotTheWrongScheme(t *testing.T) {
	alice := mustServe(t).mustIssue("alice^test")
	resp, err := alice.Do(t.Context(), "POST", "/api/v1/messages", []byte("Client sent an HTTP request to an HTTPS server."), nil)
	if err != nil || resp.Status != 400 {
		t.Errorf("%+v, %v", resp, err)
	}
}

func TestNobodyIsThere(t *testing.T) {
	alice, nobody := mustServe(t).mustIssue("alice^test"), scratch.Addr(t)
	there := alice.at("http://user:password@" + nobody)
	_, err := there.Address(t.Context())
	_, err2 := there.Dial(t.Context(), alice.name, "")
	for _, err := range []error{err, err2} {
		if !strings.HasSuffix(err.Error(), "(is the relay running at http://"+nobody+"?)") || strings.Contains(err.Error(), "password") {
			t.Errorf("%v", err)
		}
		if !client.Temporary(err) || !client.NothingDone(err) {
			t.Errorf("it may come, and nothing was done: %v", err)
		}
	}
}

// Proxies in front of a relay answer in other words.
func TestTheWrongSchemeAtAProxy(t *testing.T) {
	alice := mustServe(t).mustIssue("alice^test")
	for name, answer := range map[string]string{
		"nginx":  "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<html><center>The plain HTTP request was sent to HTTPS port</center>",
		"Apache": "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n<p>Reason: You're speaking plain HTTP to an SSL-enabled server port.<br />",
		"alert":  "\x15\x03\x01\x00\x02\x02\x46",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Read(make([]byte, 4096))
				conn.Write([]byte(answer))
				conn.Close()
			}
		}()
		there := alice.at("http://" + l.Addr().String())
		_, err = there.Address(t.Context())
		_, err2 := there.Dial(t.Context(), alice.name, "")
		for _, err := range []error{err, err2} {
			t.Run(name, func(t *testing.T) { wantScheme(t, err, "https", "https://"+l.Addr().String()) })
		}
	}
}
