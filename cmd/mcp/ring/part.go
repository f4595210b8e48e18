package ring

import (
	"net"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/cmd/mcp"
	"relay/http"
)

// part is a serve.Part: the tools at /mcp.
type part struct{ on bool }

func newPart() *serve.Part {
	p := &part{}
	return &serve.Part{Flags: p.flags, Check: p.check, Listen: p.listen, Extend: p.extend}
}

func (p *part) flags(f *pflag.FlagSet) {
	f.BoolVar(&p.on, "mcp", false, "the tools of relay mcp at /mcp, over HTTP with a Bearer key; only on "+
		"a loopback address or with TLS, and not where signatures are required")
}

func (p *part) check(f *pflag.FlagSet) error {
	for _, name := range []string{"require-message-signature", "require-request-signature"} {
		if on, err := f.GetBool(name); err != nil {
			return err
		} else if on && p.on {
			return cli.Usagef("--mcp accepts unsigned requests, which this relay must refuse " +
				"(--require-message-signature, --require-request-signature): use relay mcp, which signs, at the client")
		}
	}
	return nil
}

// listen refuses --mcp where its Bearer keys would cross a network unencrypted.
func (p *part) listen(own net.Addr, encrypted bool) error {
	if !p.on || encrypted || serve.IsLoopback(own) {
		return nil
	}
	return cli.Usagef("--mcp takes keys unencrypted, and anyone between a client and %s could read them: "+
		"listen on a loopback address, or use --tls-cert and --tls-key, or --acme", own)
}

func (p *part) extend(c *http.Config) {
	if p.on {
		c.Gateways = append(c.Gateways, http.Gateway{Path: "/mcp", Check: mcp.Check, Answer: mcp.MaxAnswer,
			Make: mcp.Handler(c.Version.Version)})
	}
}
