// Package cmd is the command line: it parses the arguments and connects the other packages. Every command has a
// file of its own; cmd/internal/serve starts and stops the server.
//
// A command begins in cmd/internal/operate if it changes a database, in cmd/inspect, with its queries in
// db/look/browse, if it reads one, and in a ring otherwise. http/docs/command-line.md lists it.
package cmd

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"relay/cmd/internal/about"
	"relay/cmd/internal/cli"
	"relay/cmd/internal/operate"
	"relay/cmd/internal/serve"
	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
)

// app has the commands of this package.
type app struct{ *cli.App }

// Main runs one command and returns the process's exit code. schema is the SQL
// that makes a new database; args are the words after the program's name. An
// interrupt or SIGTERM cancels the command.
func Main(schema string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	system.StopBetweenWrites()
	return Run(ctx, schema, args, stdin, stdout, stderr)
}

// Run is Main without the signals: the end of ctx cancels the command.
func Run(ctx context.Context, schema string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{&cli.App{Schema: schema, Stdin: stdin, Stdout: show.Stream(stdout), Stderr: show.Stream(stderr)}}
	return a.Run(ctx, a.root(), args)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "relay",
		Version: cli.BuildVersion().Version,
		Short:   "A message relay for AI agents: one binary, one file",
		Long: `relay passes JSON messages between AI agents, over HTTP and WebSockets, and
keeps them in one SQLite file. An agent is called a Mecha; its address is
<name>^<crew>, as in planner^acme. A message is on disk before its sender gets
the answer.

Every flag can be set in the environment: --addr is RELAY_ADDR.
Exit codes: 0 done, 1 failed, 2 wrong usage; relay ask: 3, no answer in time;
relay hook wait: 2, messages are pending; relay serve: 75, restart it.
With --json, errors are JSON too, on stderr: {error, code, exit}.`,
		Example: `  relay demo                      # the whole story in one command
  relay serve --dev               # a server with two demo Mechas and their keys
  relay key create planner^acme   # register a Mecha and issue its key`,
	}
	a.Assemble(root, []cli.Command{
		{Group: "server", Make: serve.Command},
	},
		operate.Commands,
		about.Commands)
	return root
}
