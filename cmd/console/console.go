// Package console is relay console, and the console of relay serve --console: its flags, its listener, the URL
// that lets a browser in, what only a server knows. The pages are from relay/http/console, which knows neither
// commands nor the server.
package console

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	nethttp "net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/cmd/internal/serve"
	"relay/db/look"
	"relay/db/look/browse"
	"relay/db/look/survey"
	"relay/http/console"
	"relay/ws"
)

// consoleAddr is where a console listens by default.
const consoleAddr = "127.0.0.1:8081"

// consoleName is what the name of a database's consoles is made for. It outlives them, so that a
// link to a page does, too.
const consoleName = "console"

func init() {
	cli.Register(cli.Ring{Name: "console", Commands: []cli.Command{{Group: "look", Make: func(a *cli.App) *cobra.Command {
		return (&app{a}).command()
	}}}})
	serve.Register(newPart)
}

type app struct{ *cli.App }

func (a *app) command() *cobra.Command {
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
				return a.WithInspector(func(in *look.Inspector) error { return a.printConsoleURL(in.Path()) })
			}
			if err := cli.CheckHostPort("listen", addr); err != nil {
				return err
			}
			return a.WithInspector(func(in *look.Inspector) error { return a.console(cmd.Context(), in, addr) })
		},
	}
	cmd.Flags().StringVar(&addr, "listen", consoleAddr,
		"listen on `host:port`, which must be a loopback address; port 0 takes any free port")
	cmd.Flags().BoolVar(&printURL, "print-url", false, "print the URL of the console that runs on the database, and end")
	a.DBFlag(cmd)
	return cmd
}

// console serves the pages until ctx ends.
func (a *app) console(ctx context.Context, in *look.Inspector, addr string) error {
	listener, err := cli.Listen("listen", addr)
	if err != nil {
		return err
	}
	if !serve.IsLoopback(listener.Addr()) {
		listener.Close()
		return cli.Usagef("--listen takes a loopback address only, such as %s; %s is none. "+
			"relay serve --console can listen elsewhere, with TLS and a password", consoleAddr, addr)
	}
	log := slog.New(slog.NewTextHandler(a.Stderr, nil))
	reads := survey.Inspector{Inspector: browse.Inspector{Inspector: in}}
	c := console.New(console.Config{Store: reads, Upgrade: ws.Feed, Logger: log,
		Version: cli.BuildVersion().Version, Name: reads.Name(consoleName)})
	server := &nethttp.Server{Handler: c, ReadHeaderTimeout: serve.Beside.Header, ReadTimeout: serve.Beside.Body,
		WriteTimeout: serve.AnswerTimeout, IdleTimeout: serve.Beside.Idle, MaxHeaderBytes: serve.Beside.MaxHeaders,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	shown := urlsOf("http", listener.Addr(), c)
	left := leaveURLs(in.Path(), shown, log)
	defer left()
	if a.JSON {
		err = a.PrintJSON(shown.json(in.Path()))
	} else {
		_, err = fmt.Fprintf(a.Stdout, "\n  Open %s\n  or, if the browser does not find that, %s\n\n  It shows %s. Stop: "+
			"Ctrl-C\n\n", shown.URL, shown.Plain, in.Path())
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

// watchFile returns a function that reports whether there is another file at a path than now, or
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
