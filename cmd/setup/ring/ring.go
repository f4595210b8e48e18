// Package ring is what an agent's program needs of the relay: relay setup puts it into the
// program's configuration, by package setup; relay hook and relay listen --bell wake the
// agent when messages are pending, and relay doctor says what is wrong. A bell tells ids
// and senders, never what the messages say.
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
