package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"relay/cmd/internal/show"
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

// run runs the command that args name, and returns the exit code of the process.
func (a *app) run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		describeFlags(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	var code exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	return a.explain(cmd, err)
}

// explain says on stderr what went wrong, as JSON with --json. It returns the exit code.
func (a *app) explain(cmd *cobra.Command, err error) int {
	code, hint := int(exitFailure), ""
	if errors.As(err, new(usageError)) {
		hint = "Try: " + cmd.CommandPath() + " --help\n"
		if cmd.Annotations[usageFails] == "" {
			code = exitUsage
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
