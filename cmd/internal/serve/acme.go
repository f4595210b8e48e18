package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	nethttp "net/http"
	"net/netip"
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
)

// acmeCertificates gets and renews certificates by ACME (RFC 8555). It proves that
// a domain is ours by tls-alpn-01 (RFC 8737), on the relay's own port.
type acmeCertificates struct {
	manager *autocert.Manager
	domains []string
	log     *slog.Logger
	failing rate.Sometimes // limits how often a failure is logged
	waiting atomic.Int64   // handshakes that wait for a certificate

	ctx  context.Context // close ends it
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// mostWaiting bounds the handshakes that wait for the first certificate of a
// domain. The CA may take minutes, and a handshake stays after its client has gone.
const mostWaiting = 1024

func newACME(s *settings, log *slog.Logger) *acmeCertificates {
	a := &acmeCertificates{domains: s.ACME, log: log, failing: rate.Sometimes{Interval: time.Minute}}
	a.ctx, a.stop = context.WithCancel(context.Background())
	a.manager = &autocert.Manager{
		Prompt:     autocert.AcceptTOS, // the help of --acme says so
		HostPolicy: autocert.HostWhitelist(s.ACME...),
		Email:      s.ACMEEmail,
		Client: &acme.Client{DirectoryURL: s.ACMEDirectory, UserAgent: "relay/" + cli.BuildVersion().Version,
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

func (a *acmeCertificates) config() *tls.Config { return tlsConfig(a.get, acme.ALPNProto) }

func (a *acmeCertificates) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if a.waiting.Add(1) > mostWaiting {
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

// begin creates the folder of keys and certificates. It asks for the missing
// certificates, so that the first client need not wait and a fault is logged at once.
func (a *acmeCertificates) begin(dbPath string) error {
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

func (a *acmeCertificates) reload() error { return errNothingToReload }

func (a *acmeCertificates) close(ctx context.Context) {
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

// checkACME refuses a domain for which no CA issues a certificate.
func (s *settings) checkACME() error {
	if len(s.ACME) == 0 {
		if s.ACMEEmail != "" {
			return cli.Usagef("--acme-email needs --acme")
		}
		return nil
	}
	for i, d := range s.ACME {
		d = strings.ToLower(d)
		s.ACME[i] = d
		_, notIP := netip.ParseAddr(d)
		if notIP == nil || !strings.Contains(strings.Trim(d, "."), ".") ||
			strings.Trim(d, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" ||
			strings.Trim(d, ".-") != d || strings.Contains(d, "..") || len(d) > 253 {
			return cli.Usagef("--acme takes a domain, such as relay.example.com, in ASCII (xn--…); %q is not one", d)
		}
	}
	if !strings.HasPrefix(s.ACMEDirectory, "https://") && !strings.HasPrefix(s.ACMEDirectory, "http://127.0.0.1:") {
		return cli.Usagef("--acme-directory must begin with https://")
	}
	return nil
}
