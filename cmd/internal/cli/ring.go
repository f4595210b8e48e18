package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// A Ring is a removable part of the program: without its packages, and its line in package cmd, the rest
// builds. It registers itself when it is imported.
type Ring struct {
	Name     string
	Commands []Command
	// Extend adds flags to other commands, by their words, as in "key create". Missing commands are skipped.
	Extend map[string]func(*App, *cobra.Command)
	// Last gets the root of all commands after they have their flags; it may be nil.
	Last func(a *App, root *cobra.Command)
}

// A Command is made for each run of the program. It belongs to a group of relay's own commands, a key of
// groups, or to another command, as in "search", if that exists. With both, it belongs to a command of that
// name, which is added to the group if it is missing.
type Command struct {
	Group, Under string
	Make         func(*App) *cobra.Command
}

// Commands lists the commands of a group that are methods of a package's own app.
func Commands[A ~struct{ *App }](group string, made ...func(*A) *cobra.Command) (list []Command) {
	for _, m := range made {
		list = append(list, Command{Group: group, Make: func(a *App) *cobra.Command { return m(&A{a}) }})
	}
	return list
}

// groups are the subjects of the commands, in the order of relay --help.
var groups = []struct{ key, title string }{
	{"server", "The server:"},
	{"keys", "Keys and Mechas, in the database:"},
	{"client", "Send and receive, over the API:"},
	{"agents", "For agents and their programs:"},
	{"look", "Inspect the database, with or without a server:"},
	{"operating", "Operating:"},
	{"about", "About this program:"},
}

var rings []Ring

// Register adds a ring to the program. It panics if a ring of this name exists.
func Register(r Ring) {
	for _, other := range rings {
		if other.Name == r.Name {
			panic("two rings are named " + r.Name)
		}
	}
	rings = append(rings, r)
}

// Assemble makes root the root of all commands: those of the core and those of the rings. It panics
// if two have the same name, or if one has an unknown group.
func (a *App) Assemble(root *cobra.Command, core ...[]Command) {
	a.dress(root)
	titles := map[string]string{}
	for _, g := range groups {
		titles[g.key] = g.title
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
	}
	taken := map[string]bool{}
	add := func(c Command) {
		cmd := c.Make(a)
		if titles[c.Group] == "" || taken[cmd.Name()] {
			panic(fmt.Sprintf("the command %s of the group %q has no place", cmd.Name(), c.Group))
		}
		taken[cmd.Name()] = true
		cmd.GroupID = titles[c.Group]
		root.AddCommand(cmd)
	}
	help := helpCommand(root)
	root.SetHelpCommand(help)
	add(Command{Group: "about", Make: func(*App) *cobra.Command { return help }})
	for _, r := range rings {
		core = append(core, r.Commands)
	}
	all := slices.Concat(core...)
	for _, c := range all {
		if c.Under == "" {
			add(c)
		}
	}
	for _, c := range all {
		if c.Under == "" {
			continue
		}
		cmd, parent := c.Make(a), find(root, c.Under)
		if parent == nil && c.Group != "" {
			parent = &cobra.Command{Use: c.Under, Short: cmd.Short}
			Group(parent)
			add(Command{Group: c.Group, Make: func(*App) *cobra.Command { return parent }})
		}
		if parent != nil {
			parent.AddCommand(cmd)
		}
	}
	for _, r := range rings {
		for words, extend := range r.Extend {
			if cmd := find(root, words); cmd != nil {
				extend(a, cmd)
			}
		}
	}
	for _, r := range rings {
		if r.Last != nil {
			r.Last(a, root)
		}
	}
}

// find returns the command of these words, or nil.
func find(root *cobra.Command, words string) *cobra.Command {
	cmd, rest, err := root.Find(strings.Fields(words))
	if err != nil || len(rest) > 0 || cmd == root {
		return nil
	}
	return cmd
}

// dress sets relay's form of errors and usage, and the flags of all commands.
func (a *App) dress(root *cobra.Command) {
	root.Version = BuildVersion().Version
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.Command = words(cmd)
		return FromEnvironment(cmd.Flags())
	}
	root.SetIn(a.Stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	Group(root)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(printUsage)
	root.PersistentFlags().BoolVar(&a.JSON, "json", false, "print JSON, for programs")
	root.PersistentFlags().BoolP("help", "h", false, "print this help")
	root.Flags().BoolP("version", "v", false, "print the version")
}
