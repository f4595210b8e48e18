// Package ring is the command relay a2a: its flags, its token, and the HTTP server of the gateway of package
// a2a.
package ring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	nethttp "net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/a2a"
	"relay/cmd/internal/cli"
	"relay/cmd/internal/remote"
	"relay/db/relay"
	"relay/http/client"
)

func init() {
	cli.Register(cli.Ring{Name: "a2a", Commands: cli.Commands("agents", (*app).command)})
}

type app struct{ *cli.App }

// gatewayFlags are the flags of relay a2a.
type gatewayFlags struct {
	as, addr, publicURL, tokenFile string
	offer                          []string
	wait, ttl, retry               time.Duration
}

func (a *app) command() *cobra.Command {
	var c remote.Flags
	var f gatewayFlags
	cmd := &cobra.Command{
		Use:   "a2a",
		Short: "Serve A2A clients, which reach Mechas by tasks",
		Long: `Serve the Agent2Agent protocol (A2A) 1.0, in JSON-RPC over HTTP, to clients that
know nothing of this relay. Each Mecha has an agent card, made from its profile.
A client's message becomes a message from the Mecha of RELAY_KEY; that message
is the task, and its state follows from acknowledgements and answers. So the
Mecha may be offline, and this command may be killed and restarted: it is
stateless.

Only this machine can use the gateway, unless --token-file names a file with a
token that clients must send. Clients reach the Mechas that the directory shows
to the key, or those of --offer. Give the gateway its own Mecha and name it with
--as: all clients see all its tasks, and the gateway rejects messages to its
Mecha that are not answers. See relay docs a2a.`,
		Example: `  relay a2a --as gateway^acme --key-file gateway.key
  relay a2a --as gateway^acme --offer planner^acme,flights^acme
  relay a2a --as gateway^acme --listen 0.0.0.0:8090 --token-file a2a.token`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.Client()
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), api, &f)
		},
	}
	c.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.as, "as", "",
		"`address` of the gateway's own Mecha, whose messages are rejected unless they are answers (required)")
	flags.StringVar(&f.addr, "listen", "127.0.0.1:8090", "`address` to listen on")
	flags.StringSliceVar(&f.offer, "offer", nil,
		"`addresses` of the Mechas that clients reach (default all that the directory shows to the key)")
	flags.StringVar(&f.publicURL, "public-url", "",
		"`URL` of the gateway for the cards, as in https://agents.example.com (default the address)")
	flags.StringVar(&f.tokenFile, "token-file", "", "`file` with the Bearer token that clients must send")
	flags.DurationVar(&f.wait, "wait", time.Minute, "maximum time that SendMessage waits for the end of a task")
	flags.DurationVar(&f.ttl, "ttl", 0,
		"time after which unacknowledged messages expire and their tasks fail (default never)")
	flags.DurationVar(&f.retry, "retry", 15*time.Second, "time to retry if the relay does not answer")
	return cmd
}

// config checks the flags and returns the configuration that they set.
func (f *gatewayFlags) config(c *client.Client) (a2a.Config, error) {
	own, err := relay.ParseAddress(f.as)
	if err != nil {
		return a2a.Config{}, cli.Usagef("--as must be the address of the gateway's own Mecha, such as gateway^acme: " +
			"the gateway rejects messages to it that are not answers")
	}
	config := a2a.Config{Client: c, Own: own, URL: strings.TrimSuffix(f.publicURL, "/"), Timeout: f.retry,
		Wait: f.wait, TTL: f.ttl}
	for flag, d := range map[string]time.Duration{"wait": f.wait, "ttl": f.ttl, "retry": f.retry} {
		if d < 0 {
			return config, cli.Usagef("--%s must not be negative", flag)
		}
	}
	for _, text := range f.offer {
		address, err := relay.ParseAddress(text)
		if err != nil {
			return config, cli.Usagef("--offer must be addresses, such as planner^acme; %q is not an address", text)
		}
		config.Offer = append(config.Offer, address)
	}
	if u, err := url.Parse(f.publicURL); f.publicURL != "" &&
		(err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.User != nil) {
		return config, cli.Usagef("--public-url must be a URL such as https://agents.example.com")
	}
	return config, cli.CheckHostPort("listen", f.addr)
}

const minToken = 16 // characters

// readToken reads --token-file. Without it, the address must be a loopback one.
func (f *gatewayFlags) readToken(addr net.Addr) (token string, local bool, err error) {
	tcp, ok := addr.(*net.TCPAddr)
	local = ok && tcp.IP.IsLoopback()
	if f.tokenFile == "" {
		if !local {
			err = cli.Usagef("anyone who reaches %s could use this gateway: name a file with a token (--token-file), "+
				"or listen on a loopback address", addr)
		}
		return "", local, err
	}
	if token, err = remote.ReadSecret(f.tokenFile, ""); err != nil {
		return "", local, err
	}
	if len(token) < minToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		err = fmt.Errorf("the token in %s must have at least %d characters and no spaces: "+
			"head -c 32 /dev/urandom | base64 makes one", relay.Visible(f.tokenFile), minToken)
	}
	return token, local, err
}

const (
	headerTime = 5 * time.Second
	bodyTime   = 30 * time.Second
	idleTime   = 2 * time.Minute
	maxHeaders = 16 << 10
	endTime    = 5 * time.Second
)

// serve is relay a2a.
func (a *app) serve(ctx context.Context, c *client.Client, f *gatewayFlags) error {
	config, err := f.config(c)
	if err != nil {
		return err
	}
	if is, err := a.whose(ctx, c); err != nil || ctx.Err() != nil {
		return err
	} else if is != config.Own {
		return fmt.Errorf("the key belongs to %s, not to %s (--as)", is, config.Own)
	}
	listener, err := cli.Listen("listen", f.addr)
	if err != nil {
		return err
	}
	defer listener.Close()
	if config.Token, config.Local, err = f.readToken(listener.Addr()); err != nil {
		return err
	}
	config.URL = cmp.Or(config.URL, "http://"+listener.Addr().String())
	if !config.Local {
		fmt.Fprintln(a.Stderr, "relay: THE TOKEN AND ALL MESSAGES CAN BE READ IN TRANSIT: this gateway speaks plain HTTP. "+
			"Put a TLS proxy in front, and let nothing else reach it.")
	}
	config.Report = func(e client.Event) {
		if e.What != client.Connected {
			e.Err = remote.Advice(e.Err)
			fmt.Fprintln(a.Stderr, "relay:", e)
		}
	}
	if a.JSON {
		err = a.PrintJSON(struct {
			MechaID relay.Address `json:"mecha_id"`
			Address string        `json:"address"`
			URL     string        `json:"url"`
		}{config.Own, listener.Addr().String(), config.URL})
	} else {
		_, err = fmt.Fprintf(a.Stdout, "A2A as %s: %s/a2a/NAME^CREW\n", config.Own, config.URL)
	}
	if err != nil {
		return err
	}
	return serveGateway(ctx, a2a.New(config), listener)
}

// serveGateway serves until ctx ends or the relay no longer accepts the key.
func serveGateway(ctx context.Context, gateway *a2a.Gateway, listener net.Listener) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	server := &nethttp.Server{
		Handler: gateway, ReadHeaderTimeout: headerTime, ReadTimeout: bodyTime, IdleTimeout: idleTime,
		MaxHeaderBytes: maxHeaders,
		ErrorLog:       log.New(io.Discard, "", 0), // broken connections are the clients' business
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := server.Serve(listener); !errors.Is(err, nethttp.ErrServerClosed) {
			stop(err)
		}
	}()
	err := gateway.Run(ctx) // when it returns, nobody waits for a task any more
	ending, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	if server.Shutdown(ending) != nil {
		server.Close()
	}
	<-served
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return err
}

// whose asks the relay which Mecha the key belongs to, until it answers or ctx ends.
func (a *app) whose(ctx context.Context, c *client.Client) (own relay.Address, err error) {
	for b := (client.Backoff{Most: 10 * time.Second}); ; {
		own, err = c.Address(ctx)
		if err == nil || ctx.Err() != nil {
			return own, nil
		}
		if !client.Temporary(err) {
			return "", err
		}
		pause := b.Pause(err)
		fmt.Fprintln(a.Stderr, "relay:", client.Event{What: client.Waiting, Err: remote.Advice(err), Pause: pause})
		client.Sleep(ctx, pause)
	}
}
