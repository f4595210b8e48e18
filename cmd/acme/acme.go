// Package acme gets certificates for relay serve by ACME: --acme, --acme-email, --acme-directory.
package acme

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/time/rate"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
)

// certificates gets and renews certificates by ACME (RFC 8555). It is a serve.Certificates. It proves that
// a domain is ours by tls-alpn-01 (RFC 8737), on the relay's own port.
type certificates struct {
	manager *autocert.Manager
	domains []string
	log     *slog.Logger
	failing rate.Sometimes // limits how often a failure is logged
	waiting atomic.Int64   // handshakes that wait for a certificate

	ctx  context.Context // Close ends it
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// maxWaiting bounds the handshakes that wait for the first certificate of a
// domain. The CA may take minutes, and a handshake stays after its client has gone.
const maxWaiting = 1024

func newCertificates(p *part, log *slog.Logger) *certificates {
	a := &certificates{domains: p.domains, log: log, failing: rate.Sometimes{Interval: time.Minute}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.manager = &autocert.Manager{
		Prompt:     autocert.AcceptTOS, // the help of --acme says so
		HostPolicy: autocert.HostWhitelist(p.domains...),
		Email:      p.email,
		Client: &acme.Client{DirectoryURL: p.directory, UserAgent: "relay/" + cli.BuildVersion().Version,
			HTTPClient: &nethttp.Client{Timeout: 30 * time.Second, Transport: until{a.ctx}}},
	}
	return a
}

// until ends requests with a context, because the manager cannot be stopped.
type until struct{ context.Context }

func (u until) RoundTrip(r *nethttp.Request) (*nethttp.Response, error) {
	if err := u.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(r.Context())
	stop := context.AfterFunc(u, cancel)
	resp, err := nethttp.DefaultTransport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	resp.Body = &endingBody{resp.Body, func() { stop(); cancel() }}
	return resp, nil
}

// endingBody calls end when it is closed.
type endingBody struct {
	io.ReadCloser
	end func()
}

func (b *endingBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// Config implements serve.Certificates.
func (a *certificates) Config() *tls.Config { return serve.TLSConfig(a.get, acme.ALPNProto) }

func (a *certificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if a.waiting.Add(1) > maxWaiting {
		a.waiting.Add(-1)
		return nil, errors.New("too many handshakes wait for a certificate")
	}
	defer a.waiting.Add(-1)
	cert, err := a.manager.GetCertificate(hello)
	if err != nil && slices.Contains(a.domains, strings.ToLower(hello.ServerName)) {
		a.failing.Do(func() {
			a.log.Error("cannot get a TLS certificate by ACME; the relay tries again with a later handshake, at most once a "+
				"minute. The CA must reach this relay at port 443 of the domain", "domain", hello.ServerName, "error", err)
		})
	}
	return cert, err
}

// Begin creates the folder of keys and certificates. It asks for the missing
// certificates, so that the first client need not wait and a fault is logged at once.
func (a *certificates) Begin(dbPath string) error {
	dir := dbPath + ".acme"
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cannot create the folder for certificates: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil { // it holds private keys
		return fmt.Errorf("cannot keep the folder for certificates private: %w", err)
	}
	a.manager.Cache = autocert.DirCache(dir)
	for _, domain := range a.domains {
		a.wg.Go(func() {
			hello := &tls.ClientHelloInfo{ServerName: domain,
				CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}
			if cert, err := a.get(hello); err == nil {
				a.log.Info("the TLS certificate is ready", "domain", domain, "expires", cert.Leaf.NotAfter)
			}
		})
	}
	return nil
}

// Reload implements serve.Certificates.
func (a *certificates) Reload() (string, error) {
	return "ACME renews the certificates; there is nothing to read again", nil
}

// Close implements serve.Certificates.
func (a *certificates) Close(ctx context.Context) {
	a.stop()
	done := make(chan struct{})
	go func() {
		a.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done(): // a goroutine sleeps between two requests to the CA; nothing of ours waits for it
	}
}
