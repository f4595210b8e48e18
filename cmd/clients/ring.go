// Package clients is the command relay client, which prints the clients of package source.
package clients

import (
	"github.com/spf13/cobra"

	"relay/cmd/clients/source"
	"relay/cmd/internal/cli"
)

func init() {
	cli.Register(cli.Ring{Name: "clients", Commands: []cli.Command{{Group: "agents", Make: command}}})
}

func command(a *cli.App) *cobra.Command {
	group := &cobra.Command{
		Use:   "client",
		Short: "Print a client for programs in other languages, such as Python",
		Long: `Print a client for a program in another language: one file without dependencies,
to keep next to the program's own source. It sends with retries, listens through
restarts of the relay, and acknowledges. The page "clients" has its use:
relay docs clients.`,
		Example: "  relay client python > relay_client.py\n  relay client js > relay.mjs",
	}
	cli.Group(group)
	for _, l := range source.Languages {
		group.AddCommand(printing(a, l))
	}
	return group
}

// printing makes the command that prints the client of a language.
func printing(a *cli.App, l source.Language) *cobra.Command {
	var example bool
	c := &cobra.Command{
		Use:     l.Name,
		Short:   "Print " + l.File + ": " + l.About,
		Long:    "Print " + l.File + ": " + l.About + ".\nThe file says which version of relay it comes from.",
		Example: "  relay client " + l.Name + " > " + l.File,
		Args:    cli.Exactly(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := cli.BuildVersion().Version
			file, text := l.File, l.Client(v)
			if example {
				file, text = l.Example, l.ExampleText(v)
			}
			if a.JSON {
				return a.PrintJSON(map[string]string{"file": file, "version": v, "text": string(text)})
			}
			_, err := a.Stdout.Write(text)
			return err
		},
	}
	if l.Example != "" {
		c.Flags().BoolVar(&example, "example", false, "print "+l.Example+" instead: a worker, and a program that asks it")
		c.Example += "\n  relay client " + l.Name + " --example > " + l.Example
	}
	return c
}
