package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	nethttp "net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/db"
	"relay/db/relay"
	"relay/http/console"
	"relay/http/console/operator"
	"relay/ws"
)

// consoleAddr is where a console listens by default.
const consoleAddr = "127.0.0.1:8081"

// consoleName is what the name of a database's consoles is made for. It outlives them, so that a
// link to a page does, too.
const consoleName = "console"

// devOperator is the Mecha as which the console of serve --dev sends.
const devOperator = "operator^demo"

func ConsoleCommand(of *cli.App) *cobra.Command {
	a := &app{of}
	var addr string
	var printURL bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Look at a relay in a browser: what waits, and why",
		Long: `Serve pages for a browser on this machine: what waits for whom and why, the
events as they are committed, the life of each message, the health of the
store. The command only reads the database file, with or without a server on
it. It prints a URL with a token; who has the URL may look, until the command
ends. --print-url prints the URL of the console that runs on the database; of
several, of that which was started last.

relay serve --console shows the same pages, and also what only the server
knows: who is online, its queue, its latencies.`,
		Example: `  relay console --db /var/lib/relay/relay.db
  relay console --print-url`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printURL {
				return a.WithInspector(func(in *db.Inspector) error { return a.printConsoleURL(in.Path()) })
			}
			if err := cli.CheckHostPort("listen", addr); err != nil {
				return err
			}
			return a.WithInspector(func(in *db.Inspector) error { return a.console(cmd.Context(), in, addr) })
		},
	}
	cmd.Flags().StringVar(&addr, "listen", consoleAddr, "listen on `host:port`, which must be a loopback address; port 0 takes any free port")
	cmd.Flags().BoolVar(&printURL, "print-url", false, "print the URL of the console that runs on the database, and end")
	a.DBFlag(cmd)
	return cmd
}

// console serves the pages until ctx ends.
func (a *app) console(ctx context.Context, in *db.Inspector, addr string) error {
	listener, err := cli.Listen("listen", addr)
	if err != nil {
		return err
	}
	if !isLoopback(listener.Addr()) {
		listener.Close()
		return cli.Usagef("--listen takes a loopback address only, such as %s; %s is none. relay serve --console can listen elsewhere, with TLS and a password", consoleAddr, addr)
	}
	log := slog.New(slog.NewTextHandler(a.Stderr, nil))
	c := console.New(console.Config{Store: db.Console{Inspector: in}, Upgrade: ws.Feed, Logger: log, Version: cli.BuildVersion().Version, Name: in.Name(consoleName)})
	server := &nethttp.Server{Handler: c, ReadHeaderTimeout: otherTimeout, ReadTimeout: otherTimeout, WriteTimeout: answerTimeout, IdleTimeout: otherIdle,
		MaxHeaderBytes: otherHeaders, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	shown := urlsOf("http", listener.Addr(), c)
	left := leaveURLs(in.Path(), shown, log)
	defer left()
	if a.JSON {
		err = a.PrintJSON(shown.json(in.Path()))
	} else {
		_, err = fmt.Fprintf(a.Stdout, "\n  Open %s\n  or, if the browser does not find that, %s\n\n  It shows %s. Stop: Ctrl-C\n\n", shown.URL, shown.Plain, in.Path())
	}
	if err != nil {
		listener.Close()
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	replaced := watchFile(in.Path())
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for waits := true; waits; {
		select {
		case <-ctx.Done():
			err, waits = nil, false
		case err = <-failed:
			waits = false
		case <-tick.C:
			if replaced() {
				err, waits = fmt.Errorf("the database was replaced or removed: start the console again"), false
			}
		}
	}
	c.Close()
	server.Close()
	return err
}

// watchFile gives a function that tells whether there is another file at a path than now, or
// none: then an open one is not what a server uses.
func watchFile(path string) (replaced func() bool) {
	first, err := os.Stat(path)
	if err != nil {
		return func() bool { return true }
	}
	return func() bool {
		now, err := os.Stat(path)
		return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(first, now)
	}
}

func isLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// checkConsole checks --console and --console-password-file.
func (s *settings) checkConsole(given bool) error {
	if s.Dev && !given {
		s.Console, s.consoleAnywhere = consoleAddr, true
	}
	if s.Console == "" || s.Console == "off" {
		if s.ConsoleOperator != "" {
			return cli.Usagef("--console-operator needs --console")
		}
		s.Console = ""
		return nil
	}
	if s.Dev && s.ConsoleOperator == "" {
		s.ConsoleOperator = devOperator
	}
	if s.ConsoleOperator != "" {
		if _, err := relay.ParseAddress(s.ConsoleOperator); err != nil {
			return cli.Usagef("--console-operator: %s", err)
		}
	}
	if err := cli.CheckHostPort("console", s.Console); err != nil {
		return err
	}
	if s.ConsolePasswordFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.ConsolePasswordFile)
	if err != nil {
		return fmt.Errorf("cannot read the password (--console-password-file): %w", err)
	}
	if s.consolePassword = strings.TrimRight(string(text), "\r\n"); len(s.consolePassword) < 12 {
		return cli.Usagef("the password in --console-password-file must have at least 12 characters")
	}
	return nil
}

// listenConsole takes the address of --console, or none.
func (s *settings) listenConsole() (net.Listener, error) {
	if s.Console == "" {
		return nil, nil
	}
	l, err := cli.Listen("console", s.Console)
	if err != nil && s.consoleAnywhere { // nobody has asked for this very port
		host, _, _ := net.SplitHostPort(s.Console) // checkConsole has read it
		l, err = cli.Listen("console", net.JoinHostPort(host, "0"))
	}
	if err == nil && !isLoopback(l.Addr()) && (!s.encrypted() || s.consolePassword == "") {
		l.Close()
		return nil, cli.Usagef("--console on an address other than loopback needs TLS (--tls-cert and --tls-key, or --acme) and --console-password-file: who reaches it sees all messages")
	}
	return l, err
}

// consoleOf is the console of a server, on a listener of its own.
type consoleOf struct {
	urls    consoleURLs
	console *console.Console
	store   *db.Inspector
	remove  func()
}

// close ends the console before the store closes.
func (c *consoleOf) close() error {
	if c == nil {
		return nil
	}
	c.console.Close()
	c.remove()
	return c.store.Close()
}

// showConsole begins to show the console. It reads by a handle of its own, which cannot write.
// by is the user of this machine that the audit log names for what is done in the console.
func (in *Instance) showConsole(l net.Listener, s *settings, by relay.Actor, log *slog.Logger) error {
	store, err := db.Inspect(in.db.Path())
	if err != nil {
		return err
	}
	scheme, secure := "http", !isLoopback(l.Addr())
	if secure {
		scheme = "https"
	}
	config := console.Config{Store: db.Console{Inspector: store}, Live: &liveConsole{in: in, settings: s}, Search: in.index.Search, Upgrade: ws.Feed, Logger: log,
		Password: s.consolePassword, TLS: secure, Version: cli.BuildVersion().Version, Name: store.Name(consoleName)}
	if s.ConsoleOperator != "" {
		by.Command = "console"
		config.Operator = operator.New(in.db, by, relay.Address(s.ConsoleOperator))
	}
	c := console.New(config)
	in.console = &consoleOf{urls: urlsOf(scheme, l.Addr(), c), console: c, store: store}
	in.console.remove = leaveURLs(store.Path(), in.console.urls, log)
	if secure {
		l = tls.NewListener(l, in.certs.config())
	}
	in.serveBeside(l, c, log)
	log.Info("serving the console; relay console --print-url prints its URL", "addr", l.Addr()) // not the URL, which lets in
	return nil
}
