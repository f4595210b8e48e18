package serve

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"relay/db/relay"
)

// printDev registers two demo Mechas and prints how to try them.
func (a *app) printDev(cmd *cobra.Command, in *Instance, s *settings, log *slog.Logger) error {
	keys, err := demoKeys(cmd.Context(), in.db, log)
	if err != nil {
		return err
	}
	alice, bob := keys[demoMechas[0]], keys[demoMechas[1]]
	if a.JSON {
		shown := map[string]string{"url": in.url, "db": in.db.Path(), "alice^demo": alice.Text, "bob^demo": bob.Text}
		in.parts.shown(func(name, _, url string) { shown[name] = url })
		return a.PrintJSON(shown)
	}
	trust, caCert := "", ""
	if p, ok := in.certs.(*keyPair); ok { // which this machine need not trust
		file, err := filepath.Abs(p.cert)
		if err != nil {
			return err
		}
		trust, caCert = " RELAY_CA_FILE="+relay.ShellWord(file), ` --cacert "$RELAY_CA_FILE"`
	}
	end := alice.expires
	if bob.expires.Before(end) {
		end = bob.expires
	}
	header, signs := "X-Signature", ""
	if s.RequireRequestSignature {
		header, signs = "X-Request-Signature", "POST|/api/v1/messages|"
	}
	read := ""
	if c, _, err := cmd.Root().Find([]string{"curl"}); err == nil && c.Name() == "curl" {
		read = fmt.Sprintf(devRead, bob.Text, self())
	}
	_, err = fmt.Fprintf(a.Stdout, devText, in.url, in.db.Path(), alice.Text, bob.Text, read, trust, caCert, header,
		signs, end.UTC().Format("2006-01-02 15:04Z"))
	in.parts.shown(func(_, words, url string) {
		if err == nil && url != "" {
			_, err = fmt.Fprintf(a.Stdout, "  %s: %s\n\n", words, url)
		}
	})
	return err
}

// devText has a curl that is a whole signed request: it works whether or not
// signatures are required, and shows how to sign.
const devText = `
  The relay is running at %[1]s  (database: %[2]s)

  Two Mechas for trying out; their keys are valid until %[10]s:
    alice^demo  %[3]s
    bob^demo    %[4]s

  Send a message from alice to bob. Paste this into another terminal:

export RELAY_URL=%[1]s RELAY_KEY=%[3]s%[6]s
body='{"to":"bob^demo","payload":{"text":"hello, bob"}}' nonce=$(openssl rand -hex 16) ts=$(date -u +%%Y-%%m-%%dT%%H:%%M:%%SZ)
curl -sS%[7]s "$RELAY_URL/api/v1/messages" -d "$body" -H "X-Mecha-Key: $RELAY_KEY" -H "X-Nonce: $nonce" -H "X-Request-Timestamp: $ts" \
  -H "%[8]s: $(printf %%s "%[9]s$body|$nonce|$ts" | openssl dgst -sha256 -hmac "$RELAY_KEY" -binary | openssl base64)"

%[5]s  What can go wrong: %[1]s/docs/errors    Stop: Ctrl-C

`

// devRead is for a program that has the command curl.
const devRead = `  Read it as bob (relay curl signs for you):

RELAY_KEY=%s %s curl GET '/api/v1/mecha/bob^demo/messages?include=payload'

`

// madeByGoRun matches the places in which go run leaves a program: a temporary
// folder, or the build cache.
var madeByGoRun = regexp.MustCompile(`/go-build\d+/|/[0-9a-f]{64}-d/[^/]+$`)

// self returns how this program was called, in the words of a shell, so that a printed
// command can be pasted.
func self() string {
	exe, err := os.Executable()
	if err == nil && madeByGoRun.MatchString(filepath.ToSlash(exe)) {
		return "go run ."
	}
	return relay.ShellWord(os.Args[0])
}
