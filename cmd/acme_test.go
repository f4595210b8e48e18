package cmd_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// acmeCA is the part of an ACME server (RFC 8555) that one order by tls-alpn-01
// (RFC 8737) needs. It checks the challenge at addr; it does not check signatures.
type acmeCA struct {
	*authority
	*httptest.Server
	mu     sync.Mutex
	addr   string // where the domain leads
	orders int
	valid  bool
	chain  []byte
	terms  bool
	email  string
	failed error
}

func newACMECA(t *testing.T) *acmeCA {
	ca := &acmeCA{authority: newAuthority(t)}
	ca.Server = httptest.NewServer(ca)
	t.Cleanup(ca.Server.Close)
	return ca
}

func (ca *acmeCA) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	var jws struct{ Protected, Payload string }
	_ = json.NewDecoder(r.Body).Decode(&jws)
	payload, _ := base64.RawURLEncoding.DecodeString(jws.Payload)
	w.Header().Set("Replay-Nonce", fmt.Sprint(time.Now().UnixNano()))
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(v)
	}
	order := func(status int) {
		state := map[string]any{"status": "pending", "authorizations": []string{ca.URL + "/authz"}, "finalize": ca.URL + "/finalize",
			"identifiers": []any{map[string]string{"type": "dns", "value": "relay.example.com"}}}
		if ca.valid {
			state["status"] = "ready"
		}
		if ca.chain != nil {
			state["status"], state["certificate"] = "valid", ca.URL+"/cert"
		}
		w.Header().Set("Location", ca.URL+"/order")
		answer(status, state)
	}
	authz := func() map[string]any {
		status := map[bool]string{false: "pending", true: "valid"}[ca.valid]
		return map[string]any{"status": status, "identifier": map[string]string{"type": "dns", "value": "relay.example.com"},
			"challenges": []any{map[string]string{"type": "tls-alpn-01", "url": ca.URL + "/challenge", "token": "the-token", "status": status}}}
	}
	switch r.URL.Path {
	case "/":
		answer(200, map[string]any{"newNonce": ca.URL + "/nonce", "newAccount": ca.URL + "/account", "newOrder": ca.URL + "/new", "meta": map[string]string{"termsOfService": "https://example.com/terms"}})
	case "/nonce":
	case "/account":
		var account struct {
			Contact []string
			Terms   bool `json:"termsOfServiceAgreed"`
		}
		_ = json.Unmarshal(payload, &account)
		ca.terms, ca.email = account.Terms, strings.Join(account.Contact, ",")
		w.Header().Set("Location", ca.URL+"/account/1")
		answer(201, map[string]string{"status": "valid"})
	case "/new":
		ca.orders++
		order(201)
	case "/order":
		order(200)
	case "/authz":
		answer(200, authz())
	case "/challenge":
		ca.failed = ca.challenge()
		ca.valid = ca.failed == nil
		answer(200, authz()["challenges"].([]any)[0])
	case "/finalize":
		var csr struct{ CSR string }
		_ = json.Unmarshal(payload, &csr)
		der, _ := base64.RawURLEncoding.DecodeString(csr.CSR)
		request, err := x509.ParseCertificateRequest(der)
		if err != nil {
			answer(400, map[string]string{"detail": err.Error()})
			return
		}
		leaf := ca.sign(request.PublicKey, time.Now().Add(89*24*time.Hour), request.DNSNames...)
		ca.chain = append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf}), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})...)
		order(200)
	case "/cert":
		_, _ = w.Write(ca.chain)
	default:
		http.NotFound(w, r)
	}
}

// seen lists the requests that the CA has had.
func (ca *acmeCA) seen() string {
	ca.mu.Lock()
	defer ca.mu.Unlock()
	return fmt.Sprintf("%d orders, terms %v, %s, %v", ca.orders, ca.terms, ca.email, ca.failed)
}

// challenge asks the relay, as a CA does on port 443, whether the domain is its own.
func (ca *acmeCA) challenge() error {
	d := tls.Dialer{Config: &tls.Config{ServerName: "relay.example.com", NextProtos: []string{"acme-tls/1"}, InsecureSkipVerify: true}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", ca.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	for _, e := range state.PeerCertificates[0].Extensions {
		var digest []byte
		if _, err := asn1.Unmarshal(e.Value, &digest); err == nil && e.Critical && len(digest) == sha256.Size && state.NegotiatedProtocol == "acme-tls/1" {
			return nil
		}
	}
	return errors.New("the certificate has no acmeIdentifier")
}

// A relay gets a certificate by ACME, and only for the domain that --acme names.
func TestACME(t *testing.T) {
	t.Parallel()
	ca, db := newACMECA(t), tempDB(t)
	start := func() *server {
		ca.mu.Lock() // until the relay's address is known
		s := launch(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", db, "--acme", "Relay.Example.com",
			"--acme-email", "ops@example.com", "--acme-directory", ca.URL+"/"), nil)
		s.url = s.await(s.stderr, `url=(https://\S+)`)[1]
		ca.addr = s.host()
		ca.mu.Unlock()
		s.await(s.stderr, "the TLS certificate is ready")
		return s
	}
	s := start()
	trusted := ca.trusting()
	trusted.ServerName = "relay.example.com"
	c := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: trusted, DisableKeepAlives: true}}
	resp, err := c.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err, ca.seen())
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 || resp.TLS.PeerCertificates[0].DNSNames[0] != "relay.example.com" {
		t.Error(resp.Status, err)
	}
	resp.Body.Close()
	const once = "1 orders, terms true, mailto:ops@example.com, <nil>"
	if ca.seen() != once {
		t.Errorf("the CA has seen %s", ca.seen())
	}
	for _, name := range []string{"", "other.example.com", "www.relay.example.com", "localhost", "..", "relay.example.com+token"} {
		config := ca.trusting()
		config.ServerName, config.InsecureSkipVerify = name, true
		if conn, err := tls.Dial("tcp", s.host(), config); err == nil {
			conn.Close()
			t.Errorf("%q was given a certificate", name)
		}
	}
	if ca.seen() != once {
		t.Errorf("for strange names certificates were ordered: %s", ca.seen())
	}
	entries, err := os.ReadDir(db + ".acme")
	if err != nil || len(entries) < 2 { // the account, the certificate
		t.Fatalf("%v, %v", entries, err)
	}
	if info, err := os.Stat(db + ".acme"); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o700) {
		t.Errorf("the folder of keys: %v, %v", info.Mode(), err)
	}
	for _, e := range entries {
		if info, err := e.Info(); runtime.GOOS != "windows" && (err != nil || info.Mode().Perm() != 0o600) {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
		text, err := os.ReadFile(filepath.Join(db+".acme", e.Name()))
		if err != nil || strings.Contains(s.stderr.String(), string(text)) {
			t.Errorf("%s: %v, or it is in the log", e.Name(), err)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	if err := os.Chmod(db+".acme", 0o755); err != nil {
		t.Fatal(err)
	}
	if s.terminate() != 0 {
		t.Error("no clean exit")
	}
	start() // with the certificate that it has kept
	if info, err := os.Stat(db + ".acme"); err != nil || info.Mode().Perm() != 0o700 || ca.seen() != once {
		t.Errorf("%v, %v, %s", info.Mode(), err, ca.seen())
	}
}

// A CA that cannot be reached is logged. The relay starts and stops anyway.
func TestACMEWithoutACA(t *testing.T) {
	notOnWindows(t, "there is no SIGTERM")
	t.Parallel()
	s := launch(t, exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--db", tempDB(t), "--acme", "relay.example.com", "--acme-directory", "http://127.0.0.1:1/"), nil)
	s.await(s.stderr, "cannot get a TLS certificate by ACME")
	s.await(s.stderr, `url=(https://\S+)`)
	if s.terminate() != 0 {
		t.Error("no clean exit")
	}
}

func TestACMERefusesWhatNoCAWould(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--acme relay.example.com --tls-cert a.pem --tls-key a.key": "without --tls-cert",
		"--acme-email ops@example.com":                              "needs --acme",
		"--acme localhost":                                          "--acme takes a domain", "--acme 192.0.2.1": "--acme takes a domain",
		"--acme https://relay.example.com": "--acme takes a domain", "--acme relay.example.com:443": "--acme takes a domain",
		"--acme *.example.com": "--acme takes a domain", "--acme a..example.com": "--acme takes a domain",
		"--acme relay.example.com --acme-directory ftp://x": "--acme-directory",
		"--acme relay.example.com --acme-email a@b>":        "takes one email address",
	} {
		db := tempDB(t)
		runRefused(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, strings.Fields(args)...), nil).wantCode(t, 2, says)
		wantFiles(t, filepath.Dir(db))
	}
}
