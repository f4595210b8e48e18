// Package dev is relay serve --dev: it makes two Mechas for trying out, and prints their keys and
// commands to paste. The keys are the same ones at the next start (keys.go).
package dev

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/cmd/internal/show"
	"relay/db/relay"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{Name: "dev", Extend: map[string]func(*cli.App, *cobra.Command){"serve": addExample}})
	serve.Register(newPart)
	docs.Register(docs.Ring{Name: "dev"}) // other pages describe this ring, which has no page of its own
}

// addExample puts one of --dev before the others.
func addExample(_ *cli.App, cmd *cobra.Command) { cmd.Example = "  relay serve --dev\n" + cmd.Example }

// part is a serve.Part.
type part struct{ dev bool }

func newPart() *serve.Part {
	p := &part{}
	return &serve.Part{Flags: p.flags, Serving: p.serving}
}

func (p *part) flags(f *pflag.FlagSet) {
	f.BoolVar(&p.dev, "dev", false, "also create alice^demo and bob^demo, and print keys for them (with --json as "+
		"JSON), valid for seven days; the next start prints the same ones")
}

func (p *part) serving(cmd *cobra.Command, r *serve.Running) error {
	if !p.dev {
		return nil
	}
	keys, err := demoKeys(cmd.Context(), r.DB, r.Log)
	if err != nil {
		return err
	}
	alice, bob := keys[demoMechas[0]], keys[demoMechas[1]]
	if asJSON, err := cmd.Flags().GetBool("json"); err != nil {
		return err
	} else if asJSON {
		shown := map[string]string{"url": r.URL, "db": r.DB.Path(), "alice^demo": alice.Text, "bob^demo": bob.Text}
		r.Shown(func(name, _, url string) { shown[name] = url })
		return show.JSON(cmd.OutOrStdout(), shown)
	}
	return print(cmd, r, alice, bob)
}

// print prints the keys, and how to try them.
func print(cmd *cobra.Command, r *serve.Running, alice, bob demoKey) error {
	cert, err := r.Flags.GetString("tls-cert")
	if err != nil {
		return err
	}
	requestSignature, err := r.Flags.GetBool("require-request-signature")
	if err != nil {
		return err
	}
	trust, caCert := "", ""
	if cert != "" { // which this machine need not trust
		file, err := filepath.Abs(cert)
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
	if requestSignature {
		header, signs = "X-Request-Signature", "POST|/api/v1/messages|"
	}
	read := ""
	if c, _, err := cmd.Root().Find([]string{"curl"}); err == nil && c.Name() == "curl" {
		read = fmt.Sprintf(readText, bob.Text, self())
	}
	out := cmd.OutOrStdout()
	_, err = fmt.Fprintf(out, text, r.URL, r.DB.Path(), alice.Text, bob.Text, read, trust, caCert, header,
		signs, end.UTC().Format("2006-01-02 15:04Z"))
	r.Shown(func(_, words, url string) {
		if err == nil && url != "" {
			_, err = fmt.Fprintf(out, "  %s: %s\n\n", words, url)
		}
	})
	return err
}

// text has a curl that is a whole signed request: it works whether or not
// signatures are required, and shows how to sign.
const text = `
  The relay is running at %[1]s  (database: %[2]s)

  Two Mechas for trying out; their keys are valid until %[10]s:
    alice^demo  %[3]s
    bob^demo    %[4]s

  Send a message from alice to bob. Paste this into another terminal:

export RELAY_URL=%[1]s RELAY_KEY=%[3]s%[6]s
body='{"to":"bob^demo","payload":{"text":"hello, bob"}}' nonce=$(openssl rand -hex 16) ` +
	`ts=$(date -u +%%Y-%%m-%%dT%%H:%%M:%%SZ)
curl -sS%[7]s "$RELAY_URL/api/v1/messages" -d "$body" -H "X-Mecha-Key: $RELAY_KEY" ` +
	`-H "X-Nonce: $nonce" -H "X-Request-Timestamp: $ts" \
  -H "%[8]s: $(printf %%s "%[9]s$body|$nonce|$ts" | openssl dgst -sha256 -hmac "$RELAY_KEY" -binary | openssl base64)"

%[5]s  What can go wrong: %[1]s/docs/errors    Stop: Ctrl-C

`

// readText is for a program that has the command curl.
const readText = `  Read it as bob (relay curl signs for you):

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
