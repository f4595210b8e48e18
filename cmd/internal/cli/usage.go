package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exactly refuses any number of arguments but n. takes ends the sentence "check takes …", as in "one file".
func Exactly(n int, takes string) cobra.PositionalArgs { return Between(n, n, takes) }

// Between refuses fewer than low and more than high arguments.
func Between(low, high int, takes string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < low || len(args) > high {
			return Usagef("%s takes %s", words(cmd), takes)
		}
		return nil
	}
}

// words returns the words that name a command after "relay", as in "key create".
func words(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "relay"), " ")
}

// Group turns cmd into a command that only holds others.
func Group(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return noCommand(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// noCommand refuses a word that is not a command of group, and suggests the
// command that was probably meant.
func noCommand(group *cobra.Command, word string) error {
	var names []string
	for _, c := range group.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	path := ""
	if group.HasParent() {
		path = words(group) + " "
	}
	return Usagef("there is no command %q%s", path+word, DidYouMean(path, word, names))
}

// DidYouMean returns the end of a sentence about a mistyped word: the name that was probably meant, after
// before. It returns "" if no name is similar.
func DidYouMean(before, word string, names []string) string {
	meant := nearest(word, names)
	if meant == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", before+meant)
}

// flagError words an error of pflag as relay does, and suggests the flag that was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	if typed := cmd.Flags().Args(); cmd.HasSubCommands() && len(typed) > 0 {
		return noCommand(cmd, typed[0]) // the flags after a mistyped command belong to no command
	}
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
		return noFlag(cmd, unknown)
	case errors.As(err, &missing):
		f := missing.GetFlag()
		placeholder, _ := pflag.UnquoteUsage(f)
		return Usagef("--%s needs a value: --%s %s", f.Name, f.Name, strings.ToUpper(placeholder))
	case errors.As(err, &invalid):
		return invalidValue("--"+invalid.GetFlag().Name, invalid)
	}
	return usageError{err}
}

func noFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	typed, name := "--"+e.GetSpecifiedName(), e.GetSpecifiedName()
	if short := e.GetSpecifiedShortnames(); short != "" { // -json is read as -j -s -o -n
		typed, name = "-"+short, short
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return Usagef("unknown flag %q%s", typed, DidYouMean("--", name, names))
}

// invalidValue returns the error about a flag's value. from is its source: the flag, or the environment
// variable.
func invalidValue(from string, e *pflag.InvalidValueError) error {
	kind := map[string]string{
		"bool": "true or false", "int": "a whole number", "int64": "a whole number", "float64": "a number",
		"duration": "a duration, as in 30s or 5m", "days": "a duration, as in 30d or 12h",
		"intSlice": "a list of whole numbers, as in 1,8,64",
	}[e.GetFlag().Value.Type()]
	switch {
	case errors.Is(e, strconv.ErrRange):
		return Usagef("%s: %s is too large", from, e.GetValue())
	case kind == "":
		return Usagef("%s: %q is not a valid value: %v", from, e.GetValue(), errors.Unwrap(e))
	}
	return Usagef("%s: %q is not %s", from, e.GetValue(), kind)
}

// nearest returns the name that was probably meant by a typed word: one that begins with the word, or differs
// from it by one slip, or by two if the word is long. It returns "" if no name is similar.
func nearest(typed string, names []string) string {
	best, least := "", 2
	if len(typed) > 4 {
		least = 3
	}
	for _, name := range names {
		d := slips(typed, name)
		if len(typed) > 1 && strings.HasPrefix(name, typed) {
			d = 1
		}
		if d < least {
			best, least = name, d
		}
	}
	return best
}

// slips returns the distance of two words by optimal string alignment: the bytes that were left out, added or
// replaced, and the neighbours that were swapped.
func slips(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// describeFlags removes the backquotes from the texts of flags, which a shell would show. In --help and in
// manual pages they mark the placeholder of the value.
func describeFlags(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		describeFlags(c)
	}
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	}
}
