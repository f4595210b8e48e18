package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"relay/cmd/internal/show"
)

// App holds what every command needs: the streams, the schema, the common flags.
type App struct {
	Schema    string
	Stdin     io.Reader
	Stdout    io.Writer // a screen if it is a terminal
	Stderr    io.Writer // a screen if it is a terminal
	JSON      bool
	DBPath    string
	MayCreate bool // create a missing database
	// Command is the words of the command that runs, as in "key create", for the audit log.
	Command string
}

// PrintJSON prints v on a line of its own.
func (a *App) PrintJSON(v any) error { return show.JSON(a.Stdout, v) }

// PrintIndented prints v as JSON: on several lines for people, on one with --json.
func (a *App) PrintIndented(v any) error {
	if a.JSON {
		return a.PrintJSON(v)
	}
	text, err := show.Indented(v)
	if err == nil {
		_, err = a.Stdout.Write(text)
	}
	return err
}

// Run runs the command that args name, and returns the exit code of the process.
func (a *App) Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	if len(args) > 0 && args[0] == cobra.ShellCompRequestCmd {
		describeFlags(root)
	}
	cmd, err := root.ExecuteContextC(ctx)
	var code Exit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	}
	return a.explain(cmd, err)
}

// explain prints an error to stderr, as JSON with --json, and returns the exit code.
func (a *App) explain(cmd *cobra.Command, err error) int {
	code, hint := int(ExitFailure), ""
	if errors.As(err, new(usageError)) {
		hint = "Try: " + cmd.CommandPath() + " --help\n"
		if cmd.Annotations[UsageFails] == "" {
			code = exitUsage
		}
	}
	if errors.As(err, new(timeoutError)) {
		code = exitTimeUp
	}
	if !a.JSON {
		fmt.Fprintf(a.Stderr, "relay: %v\n%s", err, hint)
		return code
	}
	_ = show.JSON(a.Stderr, struct { // there is no other place to report to
		Error string  `json:"error"`
		Code  *string `json:"code"` // of the API
		Exit  int     `json:"exit"`
	}{err.Error(), show.Optional(string(codeOf(err))), code})
	return code
}
