package cmd_test

import (
	"runtime"
	"strings"
	"testing"
)

// The client commands speak HTTPS, and WebSockets over it, to a server that they trust.
func TestClientsOverTLS(t *testing.T) {
	t.Parallel()
	ca, db := newAuthority(t), tempDB(t)
	keys := issue(t, db, "alice^tls", "bob^tls")
	s := ca.startTLS(t, t.TempDir(), db, "--require-message-signature")
	ways := map[string]string{"RELAY_CA_FILE": ca.file}
	if runtime.GOOS == "linux" {
		ways["SSL_CERT_FILE"] = ca.file
	}
	state := "XDG_STATE_HOME=" + t.TempDir()
	for name, value := range ways {
		as := func(a agent) []string {
			return []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + a.Key, name + "=" + value, state}
		}
		does(t, as(keys[0]), "whoami").wantCode(t, 0)
		does(t, as(keys[0]), "curl", "GET", "/api/v1/whoami").wantCode(t, 0)
		listener := launchHere(t, []string{"listen", "--ack", "completed"}, as(keys[1]))
		listener.await(listener.stderr, "listening as bob\\^tls")
		does(t, as(keys[0]), "send", "bob^tls", `{"over":"TLS"}`, "--wait-ack", "1m").wantCode(t, 0)
		listener.await(listener.stdout, `"over":"TLS"`)
		does(t, as(keys[1]), "inbox").wantCode(t, 0)
		does(t, as(keys[1]), "search", "--crew", "tls").wantCode(t, 0)
	}
	env := []string{"RELAY_URL=" + s.url, "RELAY_KEY=" + keys[0].Key, "RELAY_RETRY=0s"}
	for _, command := range [][]string{{"whoami"}, {"send", "bob^tls", "{}"}, {"search", "bob"}} {
		r := does(t, env, command...).wantCode(t, 1, "certificate", "--ca-file (RELAY_CA_FILE)")
		if strings.Contains(r.err, "is the relay running") || strings.Contains(r.err, "not known") {
			t.Errorf("%s: the relay runs, and nothing was sent: %s", command, r.err)
		}
	}
	does(t, append(env, "RELAY_CA_FILE="+tempDB(t)), "whoami").wantCode(t, 1, "--ca-file", "no such file")
	does(t, append(env, "RELAY_CA_FILE=tls_test.go"), "whoami").wantCode(t, 1, "no certificate in PEM")

	// The wrong scheme, both ways. It is not tried again.
	plain := startServer(t, tempDB(t))
	for url, use := range map[string]string{"http://" + s.host(): s.url, "https://" + plain.host(): plain.url} {
		env := []string{"RELAY_URL=" + url, "RELAY_KEY=" + keys[0].Key, "RELAY_CA_FILE=" + ca.file}
		for _, command := range [][]string{{"whoami"}, {"curl", "GET", "/"}, {"send", "bob^tls", "{}", "--retry", "1h"}, {"listen"}} {
			r := does(t, env, command...).wantCode(t, 1, "use "+use)
			if strings.Contains(r.err, "is the relay running") || strings.Contains(r.err, "not known") {
				t.Errorf("%s: the relay runs, and nothing was sent: %s", command, r.err)
			}
		}
	}
}
