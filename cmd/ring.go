package cmd

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// A ring is a part of the program that can be taken off: without its packages, and its
// line in package cmd, the rest builds. It registers itself when it is imported.
type ring struct {
	name     string
	commands []command
	// extend adds flags to commands of others, by their words, as in "key create". A
	// command that is not there is left out.
	extend map[string]func(*app, *cobra.Command)
}

// A command is made for each run of the program. group is a key of groups.
type command struct {
	group string
	make  func(*app) *cobra.Command
}

// groups are the subjects of the commands, in the order of relay --help.
var groups = []struct{ key, title string }{
	{"server", "The server:"},
	{"keys", "Keys and Mechas, in the database:"},
	{"client", "A client, over the API:"},
	{"agents", "For agents and their programs:"},
	{"look", "A look into the database, with or without a server:"},
	{"operating", "Operating:"},
	{"about", "About this program:"},
}

var rings []ring

// register adds a ring to the program. It panics if there is one of this name.
func register(r ring) {
	for _, other := range rings {
		if other.name == r.name {
			panic("two rings are named " + r.name)
		}
	}
	rings = append(rings, r)
}

// assemble makes root the root of all commands: those of the core and those of the rings.
// It panics if two have the same name, or one has a group that there is not.
func (a *app) assemble(root *cobra.Command, core ...[]command) {
	a.dress(root)
	titles := map[string]string{}
	for _, g := range groups {
		titles[g.key] = g.title
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
	}
	taken := map[string]bool{}
	add := func(group string, cmd *cobra.Command) {
		if titles[group] == "" || taken[cmd.Name()] {
			panic(fmt.Sprintf("the command %s of the group %q has no place", cmd.Name(), group))
		}
		taken[cmd.Name()] = true
		cmd.GroupID = titles[group]
		root.AddCommand(cmd)
	}
	help := helpCommand(root)
	root.SetHelpCommand(help)
	add("about", help)
	for _, r := range rings {
		core = append(core, r.commands)
	}
	for _, commands := range core {
		for _, c := range commands {
			add(c.group, c.make(a))
		}
	}
	for _, r := range rings {
		for words, extend := range r.extend {
			if cmd, rest, err := root.Find(strings.Fields(words)); err == nil && len(rest) == 0 {
				extend(a, cmd)
			}
		}
	}
}

// dress makes root speak as relay does: its errors, its usage, the flags of all commands.
func (a *app) dress(root *cobra.Command) {
	root.Version = buildVersion().Version
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.command = words(cmd)
		return fromEnvironment(cmd.Flags())
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
}
