package acme

import (
	"log/slog"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/crypto/acme/autocert"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{Name: "acme", Extend: map[string]func(*cli.App, *cobra.Command){"serve": addExample}})
	serve.Register(newPart)
	docs.Register(docs.Ring{Name: "acme"}) // the page "tls" tells of it
}

// addExample adds one of --acme behind that of --tls-cert.
func addExample(_ *cli.App, cmd *cobra.Command) {
	const before, example = "\n  REQUIRE_", "\n  relay serve --addr :443 --acme relay.example.com"
	cmd.Example = strings.Replace(cmd.Example, before, example+before, 1)
}

// part is a serve.Part.
type part struct {
	domains          []string
	email, directory string
}

func newPart() *serve.Part {
	p := &part{}
	return &serve.Part{Flags: p.flags, Check: p.check, Certificates: p.certificates}
}

func (p *part) flags(f *pflag.FlagSet) {
	f.StringSliceVar(&p.domains, "acme", nil, "speak HTTPS, with a certificate for this `domain` that ACME issues "+
		"and renews on port 443; repeatable; accepts the CA's terms of service")
	f.StringVar(&p.email, "acme-email", "", "contact `email` for the CA")
	f.StringVar(&p.directory, "acme-directory", autocert.DefaultACMEDirectory, "`URL` of the CA's directory")
}

// certificates returns nil without --acme.
func (p *part) certificates(log *slog.Logger) serve.Certificates {
	if len(p.domains) == 0 {
		return nil
	}
	return newCertificates(p, log)
}

// check refuses a domain for which no CA issues a certificate, and flags that do not go together.
func (p *part) check(f *pflag.FlagSet) error {
	cert, err := f.GetString("tls-cert")
	if err != nil {
		return err
	}
	if cert != "" && len(p.domains) > 0 {
		return cli.Usagef("--acme gets certificates itself: use it without --tls-cert")
	}
	if strings.ContainsAny(p.email, " \t\r\n<>") {
		return cli.Usagef("--acme-email takes one email address, such as ops@example.com")
	}
	if len(p.domains) == 0 {
		if p.email != "" {
			return cli.Usagef("--acme-email needs --acme")
		}
		return nil
	}
	for i, d := range p.domains {
		d = strings.ToLower(d)
		p.domains[i] = d
		_, notIP := netip.ParseAddr(d)
		if notIP == nil || !strings.Contains(strings.Trim(d, "."), ".") ||
			strings.Trim(d, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" ||
			strings.Trim(d, ".-") != d || strings.Contains(d, "..") || len(d) > 253 {
			return cli.Usagef("--acme takes a domain, such as relay.example.com, in ASCII (xn--…); %q is not one", d)
		}
	}
	if !strings.HasPrefix(p.directory, "https://") && !strings.HasPrefix(p.directory, "http://127.0.0.1:") {
		return cli.Usagef("--acme-directory must begin with https://")
	}
	return nil
}
