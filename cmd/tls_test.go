package cmd_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, db := newAuthority(t), tempDB(t)
	s := ca.startTLS(t, t.TempDir(), db)
	if strings.Contains(s.stderr.String(), "WARN") {
		t.Errorf("a warning:\n%s", s.stderr)
	}
	resp, err := ca.client().Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	// HTTP/2 was offered.
	if resp.StatusCode != 200 || resp.ProtoMajor != 1 || resp.TLS.NegotiatedProtocol != "http/1.1" || resp.TLS.Version < tls.VersionTLS12 {
		t.Errorf("%s, HTTP/%d, %q, TLS %x", resp.Status, resp.ProtoMajor, resp.TLS.NegotiatedProtocol, resp.TLS.Version)
	}
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		c := ca.trusting()
		c.MinVersion, c.MaxVersion = version, version
		conn, err := tls.Dial("tcp", s.host(), c)
		if (err == nil) != want {
			t.Errorf("TLS %x: %v", version, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	c := ca.trusting()
	c.NextProtos = []string{"h2"}
	if _, err := tls.Dial("tcp", s.host(), c); err == nil {
		t.Error("a client that speaks only HTTP/2 was let in")
	}
	resp, err = client.Get("http://" + s.host() + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 400 || !strings.Contains(string(body), "HTTPS") {
		t.Errorf("plain HTTP: %s %q", resp.Status, body)
	}
}

// A renewed certificate is used without a restart; a bad one is not.
func TestSIGHUPReadsTheCertificateAgain(t *testing.T) {
	notOnWindows(t, "there is no SIGHUP")
	t.Parallel()
	ca, db, dir := newAuthority(t), tempDB(t), t.TempDir()
	a := issue(t, db, "a^tls")[0]
	s := ca.startTLSProcess(t, dir, db)
	serves := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", s.host(), ca.trusting())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, s.url+"/api/v1/ws/mecha/a^tls", &websocket.DialOptions{HTTPHeader: a.request("GET", "", "").header, HTTPClient: ca.client()})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()

	first := serves()
	cert, key := ca.pair(dir, time.Now().Add(80*24*time.Hour))
	if serves() != first {
		t.Error("the new certificate is served before SIGHUP")
	}
	s.cmd.Process.Signal(syscall.SIGHUP)
	s.await(s.stderr, "new connections get the certificate")
	second := serves()
	if second == first {
		t.Error("the old certificate is still served")
	}
	for i, spoil := range []func(){
		func() { os.WriteFile(key, []byte("no key"), 0o600) },
		func() { // a new certificate with the key of another
			other := t.TempDir()
			_, otherKey := ca.pair(other, time.Now().Add(time.Hour))
			ca.pair(dir, time.Now().Add(time.Hour))
			os.Rename(otherKey, key)
		},
		func() { os.Remove(cert) },
	} {
		spoil()
		s.cmd.Process.Signal(syscall.SIGHUP)
		eventually(t, patience, "the log says that the old one stays", func() bool {
			return strings.Count(s.stderr.String(), "the old one stays") == i+1
		})
		if serves() != second {
			t.Error("the good certificate is no longer served")
		}
	}
	if err := conn.Ping(conn.CloseRead(ctx)); err != nil {
		t.Errorf("a connection from before: %v", err)
	}
	if s.terminate() != 0 {
		t.Error("no clean exit")
	}
}

func TestSIGHUPWithoutTLS(t *testing.T) {
	notOnWindows(t, "there is no SIGHUP")
	t.Parallel()
	s := startProcess(t, tempDB(t))
	s.cmd.Process.Signal(syscall.SIGHUP)
	s.await(s.stderr, "no TLS certificate to reread")
	resp, err := client.Get(s.url + "/readyz")
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if s.terminate() != 0 {
		t.Error("no clean exit")
	}
}

// A bad certificate is refused at the start, in words that do not repeat the
// content of the files. No file is left behind.
func TestBadCertificates(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.pair(t.TempDir(), time.Now().Add(60*24*time.Hour))
	otherCert, otherKey := ca.pair(t.TempDir(), time.Now().Add(60*24*time.Hour))
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	cutOff := filepath.Join(t.TempDir(), "cut.key")
	if err := os.WriteFile(cutOff, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(t.TempDir(), "missing")
	for name, row := range map[string]struct {
		cert, key string
		says      []string
	}{
		"no certificate file": {missing, key, []string{"--tls-cert", missing}},
		"no key file":         {cert, missing, []string{"--tls-key", missing}},
		"not each other's":    {otherCert, key, []string{otherCert, key, "does not match"}},
		"the other way round": {cert, otherKey, []string{"does not match"}},
		"switched":            {key, cert, []string{"switched"}},
		"a key that is cut":   {cert, cutOff, []string{cutOff}},
		"a folder":            {t.TempDir(), key, []string{"--tls-cert"}},
	} {
		db := tempDB(t)
		r := runRefused(t, []string{"serve", "--addr", "127.0.0.1:0", "--db", db, "--tls-cert", row.cert, "--tls-key", row.key}, nil).wantCode(t, 1, row.says...)
		if block, _ := pem.Decode(text); strings.Contains(r.err, string(text[60:100])) || strings.Contains(r.err, string(block.Bytes)) {
			t.Errorf("%s: the key is in:\n%s", name, r.err)
		}
		wantFiles(t, filepath.Dir(db))
	}
}

func TestCertificatesThatAreWorthAWarning(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for says, until := range map[string]time.Duration{"has expired": -time.Minute, "expires soon": 24 * time.Hour, "not valid yet": 100 * 24 * time.Hour} {
		dir, db := t.TempDir(), tempDB(t)
		cert, key := ca.pair(dir, time.Now().Add(until))
		if err := os.Chmod(key, 0o644); err != nil {
			t.Fatal(err)
		}
		s := serveHere(t, db, "--tls-cert", cert, "--tls-key", key)
		s.await(s.stderr, says)
		if runtime.GOOS != "windows" {
			s.await(s.stderr, "other users may read the TLS private key")
		}
		c := ca.trusting()
		c.InsecureSkipVerify = true // an expired certificate is served anyway
		conn, err := tls.Dial("tcp", s.host(), c)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		s.end()
	}
}

// A server on an address that others can reach warns when it has no TLS.
func TestAnOpenAddressIsAWarning(t *testing.T) {
	t.Parallel()
	const warning = "KEYS AND MESSAGES CAN BE READ"
	ca := newAuthority(t)
	cert, key := ca.pair(t.TempDir(), time.Now().Add(60*24*time.Hour))
	host := "127.0.0.1" // a name of this machine that leads off loopback, if it has one
	if name, err := os.Hostname(); err == nil {
		if ips, err := net.LookupIP(name); err == nil && len(ips) > 0 && !ips[0].IsLoopback() {
			host = name
		}
	}
	for _, row := range []struct {
		warns bool
		args  string
	}{
		{false, "--addr 127.0.0.1:0"}, {false, "--addr localhost:0"}, {false, "--addr 127.9.9.9:0"},
		{true, "--addr 0.0.0.0:0"}, {true, "--addr :0"}, {true, "--addr [::]:0"}, {host != "127.0.0.1", "--addr " + host + ":0"},
		{false, "--addr :0 --trusted-proxy 10.0.0.0/8"}, {false, "--addr :0 --tls-cert " + cert + " --tls-key " + key},
	} {
		if runtime.GOOS != "linux" && strings.Contains(row.args, "127.9") {
			continue // this system has only one loopback address
		}
		s := serveHere(t, tempDB(t), strings.Fields(row.args)...)
		if got := strings.Contains(s.stderr.String(), warning); got != row.warns {
			t.Errorf("%s: warned: %v\n%s", row.args, got, s.stderr)
		} else if got && !strings.Contains(s.stderr.String(), "--tls-cert") {
			t.Errorf("%s: it does not say what to do", row.args)
		}
		s.end()
	}
}

func TestOpenFoldersAndFilesAreAWarning(t *testing.T) {
	notOnWindows(t, "access is by lists there")
	t.Parallel()
	for _, row := range []struct {
		folder, file os.FileMode
		says         string
	}{
		{0o777, 0o600, "can replace files"}, {0o777 | os.ModeSticky, 0o600, ""}, {0o755, 0o600, ""}, {0o700, 0o644, "may read the database"}, {0o700, 0o660, "may read the database"},
	} {
		db := tempDB(t)
		issue(t, db, "a^b")
		if err := os.Chmod(db, row.file); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Dir(db), row.folder); err != nil {
			t.Fatal(err)
		}
		s := startServer(t, db)
		if text := s.stderr.String(); row.says == "" && strings.Contains(text, "WARN") || !strings.Contains(text, row.says) {
			t.Errorf("folder %v, file %v:\n%s", row.folder, row.file, text)
		}
		s.end()
	}
}

func TestSettingsThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--tls-cert a.pem": "require each other", "--tls-key a.key": "require each other",
		"--trusted-proxy proxy.example.com": "--trusted-proxy", "--trusted-proxy 10.0.0.0/33": "--trusted-proxy",
		"--trusted-proxy 0.0.0.0/0": "everyone", "--trusted-proxy 10.0.0.1,::/0": "everyone", "--trusted-proxy fe80::1%eth0": "--trusted-proxy",
		"--max-connections=-1": "negative", "--max-body-memory 1000": "at least --max-body",
	} {
		db := tempDB(t)
		runRefused(t, append([]string{"serve", "--addr", "127.0.0.1:0", "--db", db}, strings.Fields(args)...), nil).wantCode(t, 2, says)
		wantFiles(t, filepath.Dir(db))
	}
}
