// Package cmd is the command line. It reads what a person types, and puts the
// other packages together. Every command has a file of its own; serve.go and
// instance.go start the server and stop it again.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"relay/cmd/internal/show"
	"relay/cmd/internal/system"
	"relay/db/relay"
	"relay/http/client"
)

// Exit codes. exitStore is EX_TEMPFAIL: a supervisor should start the process again.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitTimeUp  = 3
	exitBell    = 2 // relay hook wait: messages are pending
	exitStore   = 75
)

// app holds what every command needs: the streams, the schema, the common flags.
type app struct {
	schema string
	stdin  io.Reader
	stdout io.Writer // a screen if it is a terminal
	stderr io.Writer // a screen if it is a terminal
	json   bool
	dbPath string
	create bool // create the database if there is none
	// command is the words of the command that runs, as in "key create", for the audit log.
	command string
}

// printJSON prints v on a line of its own.
func (a *app) printJSON(v any) error { return show.JSON(a.stdout, v) }

// printIndented prints v as JSON: on several lines for people, on one with --json.
func (a *app) printIndented(v any) error {
	if a.json {
		return a.printJSON(v)
	}
	text, err := show.Indented(v)
	if err == nil {
		_, err = a.stdout.Write(text)
	}
	return err
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// timeUp is a wait that was in vain.
type timeUp struct{ error }

// exitError carries an exit code; its message has been printed.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// Main runs one command and returns the process's exit code. schema is the SQL
// that makes a new database; args are the words after the program's name. An
// interrupt or SIGTERM cancels the command.
func Main(schema string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	system.StopBetweenWrites()
	a := &app{schema: schema, stdin: stdin, stdout: show.Stream(stdout), stderr: show.Stream(stderr)}
	root := a.root()
	root.SetArgs(args)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		describeFlags(root)
	}
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

// explain says on stderr what went wrong, as JSON with --json. It returns the exit code.
func (a *app) explain(cmd *cobra.Command, err error) int {
	code, hint := exitFailure, ""
	if usage := (usageError{}); errors.As(err, &usage) {
		code, hint = exitUsage, "Try: "+cmd.CommandPath()+" --help\n"
		if words(cmd) == "hook wait" { // whose exit code 2 wakes an agent, each time that it goes idle
			code = exitFailure
		}
	}
	if errors.As(err, new(timeUp)) {
		code = exitTimeUp
	}
	if !a.json {
		fmt.Fprintf(a.stderr, "relay: %v\n%s", err, hint)
		return code
	}
	_ = show.JSON(a.stderr, struct { // there is no other place to report to
		Error string  `json:"error"`
		Code  *string `json:"code"` // of the API
		Exit  int     `json:"exit"`
	}{err.Error(), show.Optional(string(codeOf(err))), code})
	return code
}

// codeOf gives the API's code of an error, "" if it has none.
func codeOf(err error) relay.Code {
	var r *client.Refusal
	var s *sentence
	var e *relay.Error
	switch {
	case errors.As(err, &r):
		return r.Code
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
		Version: buildVersion().Version,
		Short:   "A message relay for AI agents: one binary, one file",
		Long: `relay passes JSON messages between AI agents, over HTTP and WebSockets, and
keeps them in one SQLite file. An agent is called a Mecha; its address is
<name>^<crew>, as in planner^acme. A message is on disk before its sender gets
the answer.

Every flag can be set in the environment: --addr is RELAY_ADDR.
Exit codes: 0 done, 1 failed, 2 wrong usage; relay ask: 3, no answer in time;
relay hook wait: 2, messages are pending; relay serve: 75, start it again.
With --json, errors are JSON too, on stderr: {error, code, exit}.`,
		Example: `  relay demo                      # the whole story in one command
  relay serve --dev               # a server with two demo Mechas and their keys
  relay key create planner^acme   # register a Mecha and issue its key`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.command = words(cmd)
			return fromEnvironment(cmd.Flags())
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	onlyGroups(root)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(printUsage)
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON, for programs")
	root.PersistentFlags().BoolP("help", "h", false, "print this help")
	root.Flags().BoolP("version", "v", false, "print the version")
	help := helpCommand(root)
	root.SetHelpCommand(help)
	for _, g := range []struct {
		title    string
		commands []*cobra.Command
	}{
		{"The server:", []*cobra.Command{a.serveCommand(), a.demoCommand(), a.benchCommand()}},
		{"Keys and Mechas, in the database:", []*cobra.Command{a.keyCommand(), a.mechaCommand()}},
		{"A client, over the API:", []*cobra.Command{a.sendCommand(), a.askCommand(), a.listenCommand(), a.inboxCommand(), a.replyCommand(), a.ackCommand(), a.deliverCommand(),
			a.searchCommand(), a.whoamiCommand(), a.curlCommand(), a.signCommand()}},
		{"For agents and their programs:", []*cobra.Command{a.clientCommand(), a.mcpCommand(), a.a2aCommand(), a.setupCommand(), a.doctorCommand(), a.hookCommand(), a.conformanceCommand()}},
		{"A look into the database, with or without a server:", []*cobra.Command{a.consoleCommand(), a.messageCommand(), a.whyCommand(), a.statsCommand()}},
		{"Operating:", []*cobra.Command{a.readyzCommand(), a.auditCommand(), a.backupCommand(), a.restoreCommand(), a.checkCommand(), a.pruneCommand(), a.compactCommand(), a.clusterCommand()}},
		{"About this program:", []*cobra.Command{a.docsCommand(), a.errorsCommand(), a.openAPICommand(), a.asyncAPICommand(), a.manCommand(), a.versionCommand(), a.completionCommand(), help}},
	} {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
			root.AddCommand(c)
		}
	}
	a.teachChoices(root)
	return root
}

// fromEnvironment sets every flag that was not typed from RELAY_<FLAG>.
func fromEnvironment(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := variable(f)
		value, set := os.LookupEnv(name)
		if err != nil || f.Changed || !set || f.Name == "help" {
			return
		}
		var invalid *pflag.InvalidValueError
		if e := flags.Set(f.Name, value); errors.As(e, &invalid) {
			err = invalidValue(name, invalid)
		} else if e != nil {
			err = usagef("%s: %v", name, e)
		}
	})
	return err
}

// variable is the environment variable that sets a flag.
func variable(f *pflag.Flag) string {
	return "RELAY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}
