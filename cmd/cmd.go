// Package cmd is the command line: what a person types, and the wiring of the
// other packages. Every command is one file; serve.go and instance.go put the
// server together and take it apart again.
package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"relay/db/relay"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes. exitStore is EX_TEMPFAIL: a supervisor should start the process again.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitStore   = 75
)

// app is what every command has: the streams, the schema, the common flags.
type app struct {
	schema string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	json   bool
	dbPath string
	create bool // the database, if there is none
}

// usageError is a mistake in what was typed.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exitError carries an exit code; its message has been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Main runs one command and returns the process's exit code. An interrupt or
// SIGTERM cancels it.
func Main(schema string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	a := &app{schema: schema, stdin: stdin, stdout: stdout, stderr: stderr}
	root := a.root()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var exit exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	}
	return a.explain(cmd, err)
}

// explain says on stderr what went wrong, as JSON with --json, and gives the exit code.
func (a *app) explain(cmd *cobra.Command, err error) int {
	code, hint := exitFailure, ""
	if usage := (usageError{}); errors.As(err, &usage) {
		code, hint = exitUsage, "Try: "+cmd.CommandPath()+" --help\n"
	}
	if !a.json {
		fmt.Fprintf(a.stderr, "relay: %v\n%s", err, hint)
		return code
	}
	line, _ := json.Marshal(struct { // strings and a number: it cannot fail
		Error string  `json:"error"`
		Code  *string `json:"code"` // of the API
		Exit  int     `json:"exit"`
	}{err.Error(), optional(string(codeOf(err))), code})
	fmt.Fprintf(a.stderr, "%s\n", line)
	return code
}

// codeOf gives the API's code of an error, "" if it has none.
func codeOf(err error) relay.Code {
	var r *refusal
	var s *sentence
	var e *relay.Error
	switch {
	case errors.As(err, &r):
		return r.code
	case errors.As(err, &s):
		return s.code
	case errors.As(err, &e):
		return e.Code
	}
	return ""
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "relay",
		Version: version,
		Short:   "A message relay for AI agents: one binary, one file",
		Long: `relay passes JSON messages between AI agents ("Mechas", addresses <name>^<crew>)
over HTTP and WebSockets, and keeps them in one SQLite file.
A message that was accepted is on disk.

Every flag can be set in the environment: --addr is RELAY_ADDR.
Exit codes: 0 done, 1 failed, 2 wrong usage; relay serve: 75, start it again.
With --json errors are JSON too, on stderr: {error, code, exit}.`,
		Example: `  relay demo                      # the whole story in one command
  relay serve --dev               # a server with two demo Mechas and their keys
  relay key create planner^acme   # register a Mecha and issue its key`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no command %q", args[0])
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return fromEnvironment(cmd.Flags()) },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, for machines")
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"The server:", []*cobra.Command{a.serveCommand(), a.demoCommand(), a.benchCommand()}},
		{"Keys and Mechas, in the database:", []*cobra.Command{a.keyCommand(), a.mechaCommand()}},
		{"A client, over the API:", []*cobra.Command{a.sendCommand(), a.listenCommand(), a.inboxCommand(), a.ackCommand(), a.deliverCommand(),
			a.searchCommand(), a.whoamiCommand(), a.curlCommand(), a.signCommand()}},
		{"A look into the database, while a server runs or not:", []*cobra.Command{a.messageCommand(), a.statsCommand()}},
		{"Operating:", []*cobra.Command{a.backupCommand(), a.restoreCommand(), a.checkCommand(), a.compactCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	root.AddCommand(a.docsCommand(), a.errorsCommand(), a.manCommand(), a.versionCommand())
	root.SetHelpCommand(helpCommand(root))
	a.teachCompletion(root)
	return root
}

// helpCommand is cobra's, but that an unknown command is a wrong usage.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Help about any command",
		Example: "  relay help key create",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usagef("there is no command %s", strings.Join(args, " "))
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// onlyGroups makes a command that does nothing but hold others.
func onlyGroups(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("there is no command %s %s", cmd.Name(), args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// fromEnvironment sets every flag that was not given from RELAY_<FLAG>. Hidden
// ones must be typed.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "RELAY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, set := os.LookupEnv(name)
		if err != nil || f.Changed || !set || f.Hidden || f.Name == "help" {
			return
		}
		if e := flags.Set(f.Name, value); e != nil {
			err = usagef("%s: %v", name, e)
		}
	})
	return err
}

// exactly refuses another number of arguments than n.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("this takes %s", what)
		}
		return nil
	}
}

// between refuses fewer than low or more than high arguments.
func between(low, high int, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return usagef("this takes %s", what)
		}
		return nil
	}
}

// printJSON prints v on a line of its own.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (a *app) dbFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.dbPath, "db", "relay.db", "the database `file`")
}

// createFlag is dbFlag for commands that may come before the first relay serve.
// Without it, a mistyped path would quietly get a database of its own.
func (a *app) createFlag(cmd *cobra.Command) {
	a.dbFlag(cmd)
	cmd.Flags().BoolVar(&a.create, "create", false, "make the database if there is none (relay serve does)")
}
