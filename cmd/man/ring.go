// Package man generates the files that accompany an installed program from its commands: manual pages, and
// the completions of shells, which read addresses and ids from the database. It knows the commands by
// their usage lines and flags alone, those of rings too.
package man

import (
	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
	"relay/http/docs"
)

func init() {
	cli.Register(cli.Ring{Name: "man", Commands: cli.Commands("about", (*app).manCommand, (*app).completionCommand),
		Last: func(a *cli.App, root *cobra.Command) { (&app{a}).teachChoices(root) }})
	docs.Register(docs.Ring{Name: "man"}) // the page "command-line" tells of it
}

type app struct{ *cli.App }
