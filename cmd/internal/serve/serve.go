// Package serve is relay serve: it opens the store, connects the hub, the search index and the HTTP server to
// it, serves until the process is told to stop, and stops them in order. settings.go has the name, default and
// explanation of each setting; instance.go is the running relay.
//
// tls.go has certificates from files, observe.go the measurements on other addresses, exposure.go the warnings
// about an exposed relay, and part.go what parts add.
//
// A setting begins in settings.go and instance.go; one of the store also has a place in db/db.go, db/rooms.go and its
// room. A test wants its row on the page "settings".
package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
)

// exitStore is EX_TEMPFAIL: a supervisor should start the process again.
const exitStore = cli.Exit(75)

type app struct{ *cli.App }

// Command makes relay serve.
func Command(of *cli.App) *cobra.Command {
	a := &app{of}
	s := newSettings()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: `Run the server on one database file, until SIGINT or SIGTERM.

If the file does not exist, the server creates it, readable by its owner only.
Issue keys with relay key create at any time: they work at once. If a write to
the disk fails, the server stops with exit code 75: have a supervisor restart
it.`,
		Example: `  relay serve --addr 127.0.0.1:9000 --db /var/lib/relay/relay.db
  relay serve --addr :443 --tls-cert relay.pem --tls-key relay.key
  REQUIRE_MESSAGE_SIGNATURE=1 relay serve`,
		Args: cli.Exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd, s) },
	}
	s.flags(cmd.Flags())
	return cmd
}

func (a *app) serve(cmd *cobra.Command, s *settings) error {
	if err := s.check(); err != nil {
		return err
	}
	// The server does not stop when nobody reads its log any more.
	signal.Ignore(syscall.SIGPIPE)
	log, end := a.Logger(s.LogFormat, s.LogLevel)
	defer end()
	// Neither does it stop when a terminal is closed or a certificate is renewed.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	in, err := a.begin(cmd.Context(), s, log)
	if err != nil {
		return err
	}
	if err := in.parts.serving(cmd, in.running); err != nil {
		in.Stop()
		return err
	}
	for {
		select {
		case <-hup:
			in.reload(log)
		case <-cmd.Context().Done():
			log.Info("stopping")
			return in.Stop()
		case err := <-in.failed:
			log.Error("stopping after a failure", "error", err)
			in.Stop()
			return exitStore
		}
	}
}

// begin starts a relay, and logs that it serves and what is dangerous about its settings.
func (a *app) begin(ctx context.Context, s *settings, log *slog.Logger) (*Instance, error) {
	in, err := a.start(ctx, s, log)
	if err != nil {
		return nil, err
	}
	warnIfOpen(log, s, in)
	warnOfFolder(log, in.db.Path())
	log.Info("serving", "url", in.url, "db", in.db.Path(), "signatures_required", s.RequireSignature ||
		s.RequireRequestSignature, "version", cli.BuildVersion().Version)
	return in, nil
}
