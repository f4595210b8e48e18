package serve

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"relay/cmd/internal/cli"
)

// Certificates are the source of a server's certificates: files, or a part's source.
type Certificates interface {
	Config() *tls.Config
	// Begin is called once, after the store was opened and before the first connection.
	Begin(dbPath string) error
	// Reload rereads the certificates and returns the outcome in words. If it fails, the old ones stay in use.
	Reload() (done string, err error)
	Close(context.Context)
}

// certificates returns the source that the flags name, nil for plain HTTP.
func (s *settings) certificates(log *slog.Logger) (Certificates, error) {
	if s.TLSCert != "" {
		p := &keyPair{cert: s.TLSCert, key: s.TLSKey, log: log}
		return p, p.read()
	}
	return s.parts.certificates(log), nil
}

// TLSConfig offers HTTP/1.1 only. A WebSocket is opened over HTTP/1.1 (PROTOCOL §4), and the limits rely on one
// request at a time for each connection, which HTTP/2 does not guarantee. HTTP/2 would gain little: requests
// and answers are short.
func TLSConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error), more ...string) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     append([]string{"http/1.1"}, more...),
		GetCertificate: get,
	}
}

// keyPair is the pair of --tls-cert and --tls-key. Only one goroutine may call
// Reload; all others see the last good pair.
type keyPair struct {
	cert, key string // file names
	log       *slog.Logger
	current   atomic.Pointer[tls.Certificate]
}

// Config implements Certificates.
func (p *keyPair) Config() *tls.Config {
	return TLSConfig(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current.Load(), nil })
}

// Begin implements Certificates.
func (p *keyPair) Begin(string) error { return nil }

// Close implements Certificates.
func (p *keyPair) Close(context.Context) {}

// Reload implements Certificates.
func (p *keyPair) Reload() (string, error) {
	return "new connections get the certificate that is now in the file", p.read()
}

// read reads the pair. No error repeats the content of the files.
func (p *keyPair) read() error {
	cert, err := os.ReadFile(p.cert)
	if err != nil {
		return fmt.Errorf("cannot read the certificate (--tls-cert): %w", err)
	}
	key, err := os.ReadFile(p.key)
	if err != nil {
		return fmt.Errorf("cannot read the private key (--tls-key): %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s are not a certificate and its private key in PEM: %w", p.cert, p.key, err)
	}
	p.warn(&pair, time.Now())
	p.current.Store(&pair)
	return nil
}

const expiresSoon = 14 * 24 * time.Hour

// warn logs why clients will refuse the certificate, and that others may read the key.
func (p *keyPair) warn(pair *tls.Certificate, now time.Time) {
	switch leaf := pair.Leaf; {
	case now.After(leaf.NotAfter):
		p.log.Warn("the TLS certificate has expired: clients will refuse it. Renew it, then send SIGHUP", "cert", p.cert,
			"expired", leaf.NotAfter)
	case now.Before(leaf.NotBefore):
		p.log.Warn("the TLS certificate is not valid yet: clients will refuse it until then", "cert", p.cert,
			"from", leaf.NotBefore)
	case now.Add(expiresSoon).After(leaf.NotAfter):
		p.log.Warn("the TLS certificate expires soon. Renew it, then send SIGHUP", "cert", p.cert, "expires", leaf.NotAfter)
	}
	info, err := os.Stat(p.key)
	if err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o007 != 0 {
		p.log.Warn("other users may read the TLS private key: chmod 600 it", "key", p.key)
	}
}

// reload rereads the certificates after a SIGHUP. A fault in them does not end the server.
func (in *Instance) reload(log *slog.Logger) {
	log = cli.Always(log)
	if in.node != nil {
		if err := in.node.Reload(); err != nil {
			log.Error("SIGHUP: cannot read the cluster file; the members are unchanged", "error", err)
		} else {
			log.Info("SIGHUP: the cluster file was reread; its members are in use")
		}
	}
	if in.certs == nil {
		if in.node == nil {
			log.Info("SIGHUP: there is no TLS certificate to reread")
		}
		return
	}
	done, err := in.certs.Reload()
	if err != nil {
		log.Error("SIGHUP: cannot reload the TLS certificate; the old one stays in use", "error", err)
		return
	}
	log.Info("SIGHUP: " + done)
}
