package console

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/db/relay"
	"relay/http/console"
	"relay/http/console/operator"
	"relay/ws"
)

// devOperator is the Mecha as which the console of serve --dev sends.
const devOperator = "operator^demo"

// part is the console of a server, on a listener of its own. It is a serve.Part.
type part struct {
	addr, passwordFile, operator string

	anywhere bool   // --console was not given: any port will do
	password string // what --console-password-file has

	listener net.Listener // nil: there is no console
	urls     urls
	console  *console.Console
	store    survey.Inspector
	remove   func() // takes the URLs away
}

func newPart() *serve.Part {
	p := &part{}
	return &serve.Part{Flags: p.flags, Check: p.check, Listen: p.listen, Unlisten: p.unlisten, Start: p.start,
		Close: p.close, Shown: p.shown}
}

func (p *part) flags(f *pflag.FlagSet) {
	f.StringVar(&p.addr, "console", "", "`host:port` to serve the console on; beyond loopback only with TLS and "+
		"--console-password-file; with --dev "+consoleAddr+", or another port if that one is taken; off: none")
	f.StringVar(&p.passwordFile, "console-password-file", "", "`file` with the password that admits browsers to the "+
		"console, of at least 12 characters, instead of a per-start token")
	f.StringVar(&p.operator, "console-operator", "", "`address` of the Mecha as which the console may send "+
		"messages, let messages expire and revoke keys; with --dev operator^demo")
}

func (p *part) check(flags *pflag.FlagSet) error {
	dev, _ := flags.GetBool("dev") // false if there is no such flag, which a ring adds
	if dev && !flags.Changed("console") {
		p.addr, p.anywhere = consoleAddr, true
	}
	if p.addr == "" || p.addr == "off" {
		if p.operator != "" {
			return cli.Usagef("--console-operator needs --console")
		}
		p.addr = ""
		return nil
	}
	if dev && p.operator == "" {
		p.operator = devOperator
	}
	if p.operator != "" {
		if _, err := relay.ParseAddress(p.operator); err != nil {
			return cli.Usagef("--console-operator: %s", err)
		}
	}
	if err := cli.CheckHostPort("console", p.addr); err != nil {
		return err
	}
	if p.passwordFile == "" {
		return nil
	}
	text, err := os.ReadFile(p.passwordFile)
	if err != nil {
		return fmt.Errorf("cannot read the password (--console-password-file): %w", err)
	}
	if p.password = strings.TrimRight(string(text), "\r\n"); len(p.password) < 12 {
		return cli.Usagef("the password in --console-password-file must have at least 12 characters")
	}
	return nil
}

func (p *part) listen(_ net.Addr, encrypted bool) error {
	if p.addr == "" {
		return nil
	}
	l, err := cli.Listen("console", p.addr)
	if err != nil && p.anywhere { // nobody has asked for this very port
		host, _, _ := net.SplitHostPort(p.addr) // check has read it
		l, err = cli.Listen("console", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return err
	}
	if !serve.IsLoopback(l.Addr()) && (!encrypted || p.password == "") {
		l.Close()
		return cli.Usagef("--console on an address other than loopback needs TLS (--tls-cert and --tls-key, " +
			"or --acme) and --console-password-file: who reaches it sees all messages")
	}
	p.listener = l
	return nil
}

func (p *part) unlisten() {
	if p.listener != nil {
		p.listener.Close()
	}
}

// start begins to show the console. It reads by a handle of its own, which cannot write. The
// audit log names who runs the relay for what is done in the console.
func (p *part) start(r *serve.Running) error {
	if p.listener == nil {
		return nil
	}
	in, err := browse.Inspect(r.DB.Path())
	if err != nil {
		return err
	}
	store := survey.Inspector{Inspector: in}
	l, scheme, secure := p.listener, "http", !serve.IsLoopback(p.listener.Addr())
	if secure {
		scheme, l = "https", tls.NewListener(l, r.TLS)
	}
	config := console.Config{Store: store, Live: &live{r, in.Inspector}, Search: r.Index.Search,
		Upgrade: ws.Feed, Logger: r.Log, Password: p.password, TLS: secure, Version: cli.BuildVersion().Version,
		Name: store.Name(consoleName)}
	if p.operator != "" {
		by := r.By
		by.Command = "console"
		config.Operator = operator.New(r.DB, by, relay.Address(p.operator))
	}
	p.store, p.console = store, console.New(config)
	p.urls = urlsOf(scheme, l.Addr(), p.console)
	p.remove = leaveURLs(store.Path(), p.urls, r.Log)
	r.ServeBeside(l, p.console)
	// not the URL, which lets in
	r.Log.Info("serving the console; relay console --print-url prints its URL", "addr", l.Addr())
	return nil
}

// close ends the console before the store closes.
func (p *part) close() error {
	if p.console == nil {
		return nil
	}
	p.console.Close()
	p.remove()
	return p.store.Close()
}

// shown is the URL that lets a browser in.
func (p *part) shown() (name, words, url string) {
	return "console", "Look at it in a browser", p.urls.URL
}
