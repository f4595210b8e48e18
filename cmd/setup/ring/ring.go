// Package ring has the commands that an agent's program uses. relay setup writes them into the
// program's configuration, with package setup. relay hook and relay listen --bell wake the agent
// when messages are pending; relay doctor finds what is wrong. A bell is a line that announces
// pending messages: it has their ids and senders, never their contents.
package ring

import (
	"github.com/spf13/cobra"

	"relay/cmd/internal/cli"
)

type app struct{ *cli.App }

func init() {
	cli.Register(cli.Ring{
		Name:     "setup",
		Commands: cli.Commands("agents", (*app).setupCommand, (*app).doctorCommand, (*app).hookCommand),
		Extend: map[string]func(*cli.App, *cobra.Command){
			"listen": func(a *cli.App, listen *cobra.Command) { (&app{a}).belling(listen) },
		},
	})
}
