package cmd_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// authority is a CA for tests: clients that trust its file trust what it signs.
type authority struct {
	t    testing.TB
	file string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "relay test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, file: filepath.Join(t.TempDir(), "ca.pem"), cert: cert, key: key}
	writePEM(t, a.file, "CERTIFICATE", der, 0o644)
	return a
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func writePEM(t testing.TB, file, kind string, der []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		t.Fatal(err)
	}
}

// sign makes a certificate of a public key, for names and the loopback addresses.
func (a *authority) sign(public any, until time.Time, names ...string) []byte {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: serial(a.t), DNSNames: names, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore: until.Add(-90 * 24 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

// pair writes a certificate and its key into dir, and replaces older ones.
func (a *authority) pair(dir string, until time.Time) (cert, key string) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "relay.pem"), filepath.Join(dir, "relay.key")
	writePEM(a.t, cert, "CERTIFICATE", a.sign(&private.PublicKey, until, "localhost"), 0o644)
	writePEM(a.t, key, "PRIVATE KEY", der, 0o600)
	return cert, key
}

// trusting returns a configuration that trusts the authority.
func (a *authority) trusting() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, ServerName: "localhost"}
}

func (a *authority) client() *http.Client {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: a.trusting(), ForceAttemptHTTP2: true}}
	a.t.Cleanup(c.CloseIdleConnections)
	return c
}

// startTLS runs relay serve with a certificate of the authority in dir.
func (a *authority) startTLS(t testing.TB, dir, db string, args ...string) *server {
	t.Helper()
	return serveHere(t, db, append(a.flags(dir), args...)...)
}

// startTLSProcess is startTLS for a test that signals the relay.
func (a *authority) startTLSProcess(t testing.TB, dir, db string, args ...string) *server {
	t.Helper()
	s := launch(t, exec.Command(binary, append(append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, a.flags(dir)...), args...)...), nil)
	s.db = db
	s.url = s.await(s.stderr, `url"?[=:]"?(https://[^\s"]+)`)[1]
	return s
}

// flags name a new certificate of the authority in dir.
func (a *authority) flags(dir string) []string {
	cert, key := a.pair(dir, time.Now().Add(60*24*time.Hour))
	return []string{"--tls-cert", cert, "--tls-key", key}
}

// host is the address that s listens on.
func (s *server) host() string {
	_, host, _ := strings.Cut(s.url, "://")
	return host
}
