package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const helpWidth = 80 // columns

// printUsage prints what --help shows after the description. Unlike cobra's own, it makes no line of flags
// wider than a terminal.
func printUsage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprintf(w, "Usage:\n  %s\n", Synopsis(cmd))
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		printCommands(w, cmd)
	}
	printFlags(w, "Flags", cmd.LocalFlags())
	printFlags(w, "Global flags", cmd.InheritedFlags())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nMore about a command: %s COMMAND --help\n", cmd.CommandPath())
	}
	return nil
}

// Synopsis is the line that shows how a command is called.
func Synopsis(cmd *cobra.Command) string {
	if cmd.HasAvailableSubCommands() && !strings.Contains(cmd.Use, " ") { // else it has arguments of its own, too
		return cmd.CommandPath() + " COMMAND [flags]"
	}
	return cmd.UseLine()
}

// printCommands prints the commands of a group; those of relay itself by subject.
func printCommands(w io.Writer, parent *cobra.Command) {
	width := 0
	for _, c := range parent.Commands() {
		width = max(width, len(c.Name()))
	}
	subjects := parent.Groups()
	if len(subjects) == 0 {
		subjects = []*cobra.Group{{Title: "Commands:"}}
	}
	for _, subject := range subjects {
		fmt.Fprintf(w, "\n%s\n", subject.Title)
		for _, c := range parent.Commands() {
			if c.GroupID == subject.ID && (c.IsAvailableCommand() || c.Name() == "help") {
				fmt.Fprintf(w, "  %-*s  %s\n", width, c.Name(), c.Short)
			}
		}
	}
}

func printFlags(w io.Writer, title string, flags *pflag.FlagSet) {
	if flags.HasAvailableFlags() {
		fmt.Fprintf(w, "\n%s:\n%s\n", title, strings.TrimRight(flags.FlagUsagesWrapped(helpWidth), "\n"))
	}
}

// helpCommand is like cobra's, but treats an unknown command as wrong usage.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show the help of any command",
		Example: "  relay help key create",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err == nil && len(rest) > 0 {
				err = noCommand(cmd, rest[0])
			}
			if err != nil {
				return err
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
